/** Every operation of the service: HTTP serves and describes them, and sources keep off their paths. */

export interface OperationPath {
  readonly method: "get" | "post";
  /** As in OpenAPI: `{name}` matches one segment. `<key>` is the value of a configuration key. */
  readonly path: string;
  /** `operator`: on the management port when there is one, else on the data port. */
  readonly port: "data" | "operator";
  readonly group: "inbox" | "pull" | "admin" | "console" | "operation";
}

/** By operation id. The operations of a source have one entry here, and in each process one for each source. */
export const OPERATIONS = {
  receive: { method: "post", path: "<inbox.basePath><source.path>", port: "data", group: "inbox" },
  pull_claim: { method: "post", path: "<inbox.pull.basePath>/{source}/claim", port: "data", group: "pull" },
  pull_ack: { method: "post", path: "<inbox.pull.basePath>/{source}/ack", port: "data", group: "pull" },
  pull_nack: { method: "post", path: "<inbox.pull.basePath>/{source}/nack", port: "data", group: "pull" },
  pull_extend: { method: "post", path: "<inbox.pull.basePath>/{source}/extend", port: "data", group: "pull" },
  root: { method: "get", path: "/", port: "data", group: "operation" },
  admin_transform_test: { method: "post", path: "/admin/transform/test", port: "operator", group: "admin" },
  admin_replay: { method: "post", path: "/admin/replay", port: "operator", group: "admin" },
  admin_destinations: { method: "get", path: "/admin/destinations", port: "operator", group: "admin" },
  admin_destination_pause: {
    method: "post",
    path: "/admin/destinations/{name}/pause",
    port: "operator",
    group: "admin",
  },
  admin_destination_resume: {
    method: "post",
    path: "/admin/destinations/{name}/resume",
    port: "operator",
    group: "admin",
  },
  admin_parked_list: { method: "get", path: "/admin/parked", port: "operator", group: "admin" },
  admin_parked_retry: { method: "post", path: "/admin/parked/retry", port: "operator", group: "admin" },
  admin_parked_discard: { method: "post", path: "/admin/parked/discard", port: "operator", group: "admin" },
  admin_messages: { method: "get", path: "/admin/messages", port: "operator", group: "admin" },
  admin_message: { method: "get", path: "/admin/messages/{id}", port: "operator", group: "admin" },
  admin_config: { method: "get", path: "/admin/config", port: "operator", group: "admin" },
  admin_events: { method: "get", path: "/admin/events", port: "operator", group: "admin" },
  console: { method: "get", path: "/console", port: "operator", group: "console" },
  console_slash: { method: "get", path: "/console/", port: "operator", group: "console" },
  console_asset: { method: "get", path: "/console/assets/{file}", port: "operator", group: "console" },
  console_session: { method: "get", path: "/console/session", port: "operator", group: "console" },
  console_sign_in: { method: "post", path: "/console/session", port: "operator", group: "console" },
  console_sign_out: { method: "post", path: "/console/sign-out", port: "operator", group: "console" },
  admin_message_retry: { method: "post", path: "/admin/messages/{id}/retry", port: "operator", group: "admin" },
  admin_message_discard: { method: "post", path: "/admin/messages/{id}/discard", port: "operator", group: "admin" },
  admin_message_replay: { method: "post", path: "/admin/messages/{id}/replay", port: "operator", group: "admin" },
  admin_replays: { method: "post", path: "/admin/replays", port: "operator", group: "admin" },
  admin_overview: { method: "get", path: "/admin/overview", port: "operator", group: "admin" },
  admin_failures: { method: "get", path: "/admin/failures", port: "operator", group: "admin" },
  admin_blocked_keys: { method: "get", path: "/admin/blocked-keys", port: "operator", group: "admin" },
  admin_audit: { method: "get", path: "/admin/audit", port: "operator", group: "admin" },
  health_live: { method: "get", path: "/health/live", port: "operator", group: "operation" },
  health_ready: { method: "get", path: "/health/ready", port: "operator", group: "operation" },
  health: { method: "get", path: "/health", port: "operator", group: "operation" },
  metrics: { method: "get", path: "/metrics", port: "operator", group: "operation" },
  openapi: { method: "get", path: "/openapi.json", port: "operator", group: "operation" },
} as const satisfies Readonly<Record<string, OperationPath>>;

export type OperationId = keyof typeof OPERATIONS;

/** The pattern of a path in {@link OPERATIONS} with the keys' values. @param path `{name}` matches one segment */
export function pathPattern(path: string): RegExp {
  const [first = "", ...further] = path.split(/\{\w+\}/).map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${[first, ...further].join("[^/]+")}$`);
}

/**
 * Whether the service answers a path itself, on any port and in any role: no source can have it.
 *
 * @param pullBasePath `inbox.pull.basePath`; undefined when the pull routes are off. No path ends with a slash, except
 *   `/`
 */
export function isOwnPath(path: string, pullBasePath: string | undefined): boolean {
  const { receive: _receive, ...own } = OPERATIONS;
  return Object.values(own).some(({ path: template, group }) => {
    if (group === "pull" && pullBasePath === undefined) return false;
    return pathPattern(template.replace("<inbox.pull.basePath>", () => pullBasePath ?? "")).test(path);
  });
}
