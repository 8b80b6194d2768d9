import { DEFAULT_TOLERANCE_MS, providerOf } from "../adapters/sources/http/kind.ts";
import type { DeclaredAuth, InboundAuth } from "../adapters/sources/http/schema.ts";
import type { SchemaNode } from "../model/schema.ts";
import { Secret } from "../model/secret.ts";
import { parseDuration } from "../model/text.ts";
import { DATABASES, parseJdbcUrl } from "./databases.ts";
import type { DatabaseTarget } from "./jdbc/target.ts";
import { formatKeyPath, type KeyPath } from "./keyPath.ts";
import { TARGET_DEFAULTS } from "./schema/sections.ts";
import type { CaptureConfig, CellConfig, Config, DeclaredConfig, RouteConfig, SourceConfig } from "./types.ts";

interface Derived {
  readonly config: Config;
  /** The absent keys, each with the origin of its value. */
  readonly derivedFrom: ReadonlyMap<string, string>;
}

/** Fills in what depends on other keys. @param declared without problems @param target `database.url`, parsed */
export function derive(declared: DeclaredConfig, target: DatabaseTarget): Derived {
  const derivedFrom = new Map<string, string>();
  const derived = <T>(path: KeyPath, given: T | undefined, from: string, value: T): T => {
    if (given !== undefined) return given;
    derivedFrom.set(formatKeyPath(path), from);
    return value;
  };

  const withAuth = <T extends { readonly auth?: DeclaredAuth }>(path: KeyPath, block: T) => {
    const { auth, ...rest } = block;
    return auth === undefined ? rest : { ...rest, auth: completeAuth([...path, "auth"], auth) };
  };
  const completeAuth = (path: KeyPath, auth: DeclaredAuth): InboundAuth => {
    if (auth.kind === "provider") {
      const { toleranceMs = DEFAULT_TOLERANCE_MS } = providerOf(auth.provider);
      const key = [...path, "timestampTolerance"];
      return { ...auth, timestampTolerance: derived(key, auth.timestampTolerance, "provider", toleranceMs) };
    }
    if (auth.kind !== "hmac") return auth;
    const hasTime = auth.timestampHeader !== undefined || auth.timestampField !== undefined;
    const format = hasTime ? "TIMESTAMP_DOT_BODY" : "BODY";
    const key = [...path, "signaturePayloadFormat"];
    return { ...auth, signaturePayloadFormat: derived(key, auth.signaturePayloadFormat, "timestampHeader", format) };
  };

  const source = (name: string, entry: DeclaredConfig["sources"][string]): SourceConfig =>
    entry.kind === "http" ? { ...withAuth(["sources", name], entry), path: withLeadingSlash(entry.path) } : entry;

  const capture = (): CaptureConfig => {
    const { connection, schema, ...rest } = declared.outbox.capture;
    const base = ["outbox", "capture"];
    const { username, password } = declared.database;
    const here = addressOf(target);
    const own = <K extends keyof typeof connection, V>(key: K, from: string, value: V) =>
      derived<NonNullable<(typeof connection)[K]> | V>(
        [...base, "connection", key],
        connection[key] ?? undefined,
        from,
        value,
      );
    return {
      ...rest,
      schema: derived([...base, "schema"], schema, "database.type", DATABASES[target.type].defaultSchema),
      connection: {
        ...connection,
        hostname: own("hostname", "database.url", here.host),
        port: own("port", "database.url", here.port),
        database: own("database", "database.url", target.database ?? username),
        username: own("username", "database.username", username),
        password: own("password", "database.password", password),
      },
    };
  };

  const { relay, pull } = declared.inbox;
  const attemptsKey = ["inbox", "relay", "maxAttempts"];
  const maxAttempts = derived(attemptsKey, relay.maxAttempts, "outbox.maxAttempts", declared.outbox.maxAttempts);
  const config: Config = {
    ...declared,
    database: { ...declared.database, target, cells: declared.database.cells.map((cell) => withTarget(cell, target)) },
    outbox: { ...declared.outbox, capture: capture() },
    inbox: {
      ...declared.inbox,
      basePath: basePath(declared.inbox.basePath),
      relay: { ...relay, maxAttempts },
      pull: { ...withAuth(["inbox", "pull"], pull), basePath: basePath(pull.basePath) },
    },
    admin: withAuth(["admin"], declared.admin),
    routes: declared.routes.map(completeRoute),
    sources: Object.fromEntries(Object.entries(declared.sources).map(([name, entry]) => [name, source(name, entry)])),
  };
  return { config, derivedFrom };
}

function completeRoute({ destination, destinations, ...rest }: DeclaredConfig["routes"][number]): RouteConfig {
  const { topicPattern } = rest;
  if (destination === undefined) return { topicPattern, destinations: destinations ?? [] };
  return { ...TARGET_DEFAULTS, ...rest, destination };
}

/** A cell with the target of its connections. Its URL has been checked. */
function withTarget(cell: DeclaredConfig["database"]["cells"][number], whole: DatabaseTarget): CellConfig {
  const target = cell.url === undefined ? whole : parseJdbcUrl(whole.type, cell.url).target;
  const isOwn = target.type === "postgresql" && cell.schema !== undefined;
  return { ...cell, target: isOwn ? { ...target, currentSchema: cell.schema } : target };
}

export function addressOf(target: DatabaseTarget): { readonly host: string; readonly port: number | undefined } {
  if (target.type === "sqlserver") return { host: target.host, port: target.port };
  return target.hosts[0] ?? { host: "localhost", port: undefined };
}

/** `orders` and `/orders` mean the same path. */
export function withLeadingSlash(path: string): string {
  return path.startsWith("/") ? path : `/${path}`;
}

/** A prefix without slash at the end, so that `<basePath><path>` holds no double one; `/` becomes the empty prefix. */
export function basePath(path: string): string {
  const trimmed = path.replace(/\/+$/, "");
  return trimmed === "" ? "" : withLeadingSlash(trimmed);
}

/**
 * Turns validated JSON into typed values: secrets become `Secret`, durations ms; refused values stay.
 *
 * @param secretFiles of `file:` secrets, by their key path
 */
export function materialise(
  node: SchemaNode,
  value: unknown,
  secretFiles: ReadonlyMap<string, string>,
  path: KeyPath = [],
): unknown {
  if (node.secret === true)
    return typeof value === "string" ? new Secret(value, secretFiles.get(formatKeyPath(path))) : value;
  if (node.duration === true) return typeof value === "string" ? (parseDuration(value) ?? value) : value;
  if (Array.isArray(value))
    return value.map((item, index) => materialise(node.items ?? {}, item, secretFiles, [...path, index]));
  if (typeof value !== "object" || value === null) return value;
  const schema = node.kinds === undefined ? node : (node.kinds[(value as { kind: string }).kind] ?? {});
  const entries = Object.entries(value).map(([key, item]): [string, unknown] => [
    key,
    materialise(schema.properties?.[key] ?? schema.additionalProperties ?? {}, item, secretFiles, [...path, key]),
  ]);
  return Object.fromEntries(entries);
}

/** Freezes a tree of plain objects, arrays and secrets, and returns it. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const item of Object.values(value)) deepFreeze(item);
  }
  return value;
}
