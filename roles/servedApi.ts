import type { Config } from "../src/config/types.ts";
import type { ServedAdmin, ServedApi, ServedPull, ServedSource } from "../src/http/openapi/served.ts";
import type { Role } from "../src/model/roles.ts";

/** What a process with these roles serves over HTTP. */
export function servedApi(config: Config, roles: ReadonlySet<Role>, version: string): ServedApi {
  const { server, inbox } = config;
  return {
    version,
    httpPort: server.httpPort,
    managementPort: server.managementPort,
    maxBodyBytes: inbox.maxBodyBytes,
    sources: roles.has("ingest") ? servedSources(config) : [],
    pull: roles.has("ingest") && inbox.pull.enabled ? servedPull(config) : undefined,
    admin: roles.has("admin") ? servedAdmin(config) : undefined,
  };
}

function servedSources({ inbox, sources }: Config): readonly ServedSource[] {
  return Object.entries(sources).flatMap(([name, source]) => {
    if (source.kind !== "http") return [];
    const served: ServedSource = {
      name,
      path: inbox.basePath + source.path,
      auth: source.auth,
      consumption: source.consumption,
      idempotencyKeyPath: source.idempotencyKeyPath,
      eventTypePath: source.eventTypePath,
      aggregateIdPath: source.aggregateIdPath,
      hasFilter: source.filter !== undefined,
      hasTransform: source.transform !== undefined,
      requestsPerMinute: source.rateLimit?.requestsPerMinute,
    };
    return [served];
  });
}

function servedPull({ inbox, sources }: Config): ServedPull {
  const { basePath, auth, leaseMs } = inbox.pull;
  const pulled = Object.entries(sources).filter(([, { consumption }]) => consumption === "pull");
  return { basePath, auth, leaseMs, sources: pulled.map(([name]) => name) };
}

function servedAdmin(config: Config): ServedAdmin {
  const { admin } = config;
  return {
    auth: admin.insecure ? undefined : admin.auth,
    destinations: Object.keys(config.destinations),
    maxPayloadBytes: adminBodyBytes(config),
    maxTransformTimeoutMs: admin.maxTransformTimeoutMs,
  };
}

/** The largest body of the admin routes: on the data port its own cap holds for them too. */
export function adminBodyBytes({ admin, inbox, server }: Pick<Config, "admin" | "inbox" | "server">): number {
  return server.managementPort === undefined
    ? Math.min(admin.maxPayloadBytes, inbox.maxBodyBytes)
    : admin.maxPayloadBytes;
}
