import { type Infer, text } from "../../../model/schema.ts";
import type { When } from "../../../ports/kinds.ts";
import { checkServers } from "../schema.ts";

/** Connection keys (spec, "Subject-broker destination" and "Subject-broker source"). */
export const servers = text("Server URLs, comma-separated.", { url: true, syntax: "notBlank" });
export const natsLoginKeys = {
  username: text("User name; needs `password`."),
  password: text("Password; needs `username`.", { secret: true }),
  token: text("Token instead of a user name.", { secret: true }),
} as const;

export type NatsConnectionConfig = { readonly servers: string } & Infer<{
  readonly type: "object";
  readonly properties: typeof natsLoginKeys;
}>;

/**
 * An entry of `servers`. The user info extends to the last @, since people forget to percent-encode one in a password.
 */
export const NATS_SERVER =
  /^(?:(nats|tls):\/\/)?(?:(?![a-z][a-z0-9+.-]*:\/\/)(.*)@)?(\[[0-9a-f:.%]+\]|[^\s:/@[\]]+)(?::(\d{1,5}))?\/?$/i;

/** User name and password require each other; a token excludes them. */
export function checkNats(entry: NatsConnectionConfig, when: When): void {
  when(["username", "password"], (report) => {
    if (entry.username !== undefined && entry.password === undefined)
      report.error("password", "is required by username");
    if (entry.password !== undefined && entry.username === undefined)
      report.error("username", "is required by password");
  });
  when(["username", "token"], (report) => {
    if (entry.token === undefined || entry.username === undefined) return;
    report.error("token", "cannot be combined with username: set a token or a user name, not both");
  });
  when(["servers"], (report) =>
    checkServers("servers", entry.servers, NATS_SERVER, "nats://host:port, tls://host:port or host:port", report),
  );
}
