import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "@jest/globals";

/** Holds the direction of imports (design, "The house"), so that the core stays free of I/O and an adapter can be taken out. */

/** What each part may import besides itself. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  svc: ["roles", "cli", "setup", "model"],
  cli: ["setup", "dev", "http", "runtime", "config", "core", "adapters", "ports", "model", "time"],
  roles: ["setup", "http", "runtime", "config", "core", "adapters", "ports", "model", "time"],
  setup: ["runtime", "config", "core", "adapters", "ports", "model", "time"],
  dev: ["runtime", "config", "ports", "model", "time"],
  http: ["core", "adapters", "ports", "model", "time"],
  runtime: ["ports", "model", "time"],
  config: ["core", "adapters", "ports", "model"],
  core: ["ports", "model", "time"],
  adapters: ["ports", "model", "time"],
  ports: ["model", "time"],
  model: [],
  time: [],
  // The browser's own code; it shares types with the service.
  console: ["core", "ports"],
};

/** What alone of the console imports from the service. */
const CONSOLE_TYPES = "src/console/types.ts";

/** The table of the kinds. */
const KINDS = "src/adapters/kinds.ts";
/** What an adapter tells of itself without loading its client library. */
const DATA = ["kind.ts", "schema.ts"];

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** File by path from the root, with `/`, to its text. */
type Sources = ReadonlyMap<string, string>;

function readSources(...folders: readonly string[]): Sources {
  const files = folders.flatMap((top) =>
    readdirSync(path.join(ROOT, top), { recursive: true, encoding: "utf8" }).map((file) =>
      path.posix.join(top, ...file.split(path.sep)),
    ),
  );
  const sources = files.filter((file) => /\.tsx?$/.test(file));
  return new Map(sources.map((file) => [file, readFileSync(path.join(ROOT, file), "utf8")]));
}

/** The specifiers of every import and re-export, type imports and `import()` included. */
function specifiers(text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
  const statements =
    /^\s*(?:import|export)\b[^;"'`]*?\bfrom\s*["']([^"']+)["']|^\s*import\s*["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']/gm;
  return [...code.matchAll(statements)].map((match) => match[1] ?? match[2] ?? match[3] ?? "");
}

/** The project's files that a file imports. */
function imports(file: string, text: string): { readonly specifier: string; readonly target: string }[] {
  return specifiers(text)
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => ({ specifier, target: path.posix.join(path.posix.dirname(file), specifier) }));
}

/** `src/core/delivery/deliver.ts` is of the part `core`, `roles/poller.ts` of `roles`; the binary, `roles/svc.ts`, is a part of its own. */
function partOf(file: string): string {
  if (file === "roles/svc.ts") return "svc";
  const [top = "", second = ""] = file.split("/");
  return top === "src" ? second : top;
}

/** `src/adapters/stores/postgres/...` is of the adapter `stores/postgres`. */
function adapterOf(file: string): string {
  return file.split("/").slice(2, 4).join("/");
}

/** What a broker's source and destination have in common, such as its connection, or all brokers, such as the backoff. */
function sharesBroker(own: string, target: string): boolean {
  const [, , folder, broker = ""] = target.split("/");
  if (folder !== "brokers" || own.endsWith("/http")) return false;
  return broker.endsWith(".ts") || own.split("/")[1] === broker;
}

/** A capture reaches its database as the store does. */
function sharesDatabase(own: string, target: string): boolean {
  const databases: Readonly<Record<string, string>> = {
    "capture/postgresLogical.ts": "postgres",
    "capture/sqlServerCdc.ts": "sqlserver",
  };
  return target.startsWith(`src/adapters/stores/${databases[own]}/`);
}

/** Why a file may not import another; undefined when it may. */
function violation(file: string, target: string): string | undefined {
  const [from, to] = [partOf(file), partOf(target)];
  const allowed = ALLOWED[from];
  if (allowed === undefined) return `${from} is no known part: add it to the rules`;
  if (from === "adapters" && to === "adapters") {
    if (file === KINDS) return path.posix.basename(target) === "kind.ts" ? undefined : `${KINDS} imports only kind.ts`;
    const [own, other] = [adapterOf(file), adapterOf(target)];
    if (own === other || (other === "stores/sql" && own.startsWith("stores/"))) return undefined;
    if (own.startsWith("destinations/") && /^destinations\/\w+\.ts$/.test(other)) return undefined;
    if (sharesBroker(own, target) || sharesDatabase(own, target)) return undefined;
    return "an adapter imports no other adapter (stores may import adapters/stores/sql, destinations the files of adapters/destinations, a broker's source and destination its folder in adapters/brokers, a database's capture its store)";
  }
  if (from === to) return undefined;
  if (from === "console" && file !== CONSOLE_TYPES) return `of the console only ${CONSOLE_TYPES} imports the service`;
  if (!allowed.includes(to)) return `${from} may import only ${allowed.length === 0 ? "itself" : allowed.join(", ")}`;
  if (
    from !== "roles" &&
    from !== "setup" &&
    to === "adapters" &&
    target !== KINDS &&
    !DATA.includes(path.posix.basename(target))
  ) {
    return `${from} imports only ${KINDS}, and kind.ts and schema.ts of an adapter, which load no client library`;
  }
  return undefined;
}

function violations(sources: Sources): string[] {
  return [...sources].flatMap(([file, text]) =>
    imports(file, text).flatMap(({ specifier, target }) => {
      const rule = violation(file, target);
      return rule === undefined ? [] : [`${file} imports "${specifier}": ${rule}`];
    }),
  );
}

/** Circles of files that load each other, each once, as `a -> b -> a`: types load nothing, `import()` loads later. */
function cycles(sources: Sources): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, way: readonly string[]) => {
    const start = way.indexOf(file);
    if (start >= 0) found.push([...way.slice(start), file].join(" -> "));
    if (start >= 0 || done.has(file)) return;
    const loading = (sources.get(file) ?? "").replace(/^import type [^;]*;|\bimport\([^)]*\)/gm, "");
    for (const { target } of imports(file, loading)) visit(target, [...way, file]);
    done.add(file);
  };
  for (const file of sources.keys()) visit(file, []);
  return found;
}

/** Exports of a file that no other file names, as `file: name`. */
function deadExports(sources: Sources, others: Sources): string[] {
  const all = [...sources, ...others];
  return [...sources].flatMap(([file, text]) => {
    const users = all.filter(([other, code]) => other !== file && code.includes(`/${path.posix.basename(file)}"`));
    const names = text.matchAll(/^export (?:abstract )?(?:async )?(?:const|function\*?|class|interface|type) (\w+)/gm);
    return [...names].flatMap(([, name = ""]) =>
      users.some(([, code]) => new RegExp(`\\b${name}\\b`).test(code)) ? [] : [`${file}: ${name}`],
    );
  });
}

describe("the project's imports", () => {
  const sources = readSources("src", "roles");

  test("run in the direction of the design", () => {
    expect(sources.size).toBeGreaterThan(10);
    expect(violations(sources)).toEqual([]);
  });

  test("bring no code of the service into the console, only types", () => {
    expect(sources.get(CONSOLE_TYPES)).not.toMatch(/^(?:import|export) (?!type |interface )/m);
  });

  test("form no circles", () => {
    expect(cycles(sources)).toEqual([]);
  });

  test("use every export", () => {
    expect(deadExports(sources, readSources("test"))).toEqual([]);
  });
});

describe("the rules", () => {
  const check = (file: string, specifier: string) => violations(new Map([[file, `import { x } from "${specifier}";`]]));

  test.each([
    ["src/core/a.ts", "../adapters/stores/postgres/index.ts"],
    ["src/model/a.ts", "../ports/store.ts"],
    ["src/http/a.ts", "../../roles/wire.ts"],
    ["src/adapters/stores/postgres/a.ts", "../sqlserver/index.ts"],
    ["src/adapters/brokers/kafka/a.ts", "../nats/connection.ts"],
    ["src/adapters/destinations/http/a.ts", "../../brokers/headerText.ts"],
    ["src/adapters/sources/kafka/a.ts", "../../destinations/pendingPublish.ts"],
    ["src/adapters/capture/sqlServerCdc.ts", "../stores/postgres/pool.ts"],
    ["src/config/a.ts", "../adapters/destinations/http/index.ts"],
    ["src/adapters/kinds.ts", "./destinations/http/index.ts"],
    ["src/surprise/a.ts", "../model/rows.ts"],
    ["src/console/types.ts", "../http/exchange.ts"],
  ])("refuse %s an import of %s", (file, specifier) => {
    expect(check(file, specifier)).toEqual([expect.stringContaining(`${file} imports "${specifier}": `)]);
  });

  test("find an export that nobody imports", () => {
    const sources = new Map([
      ["src/core/a.ts", "export const used = 1;\nexport function dead() {}"],
      ["src/core/b.ts", 'import { used } from "./a.ts";'],
    ]);
    expect(deadExports(sources, new Map())).toEqual(["src/core/a.ts: dead"]);
  });

  test("find a circle over several files", () => {
    const sources = new Map([
      ["src/core/a.ts", 'import "./b.ts";'],
      ["src/core/b.ts", 'import { c } from "./c.ts";'],
      ["src/core/c.ts", 'import "./b.ts";\nimport type { A } from "./a.ts";\nconst later = () => import("./a.ts");'],
    ]);
    expect(cycles(sources)).toEqual(["src/core/b.ts -> src/core/c.ts -> src/core/b.ts"]);
  });
});
