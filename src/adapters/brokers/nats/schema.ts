import type { Secret } from "../../../model/secret.ts";
import type { When } from "../../../ports/kinds.ts";
import { checkServers } from "../serverList.ts";

/**
 * Connection keys of NATS sources and destinations (spec, "Subject-broker destination" and "Subject-broker source").
 */
export const natsConnectionKeys = {
  servers: { type: "string", url: true, syntax: "notBlank", description: "Server URLs, comma-separated." },
  username: { type: "string", description: "User name; needs `password`." },
  password: { type: "string", secret: true, description: "Password; needs `username`." },
  token: { type: "string", secret: true, description: "Token. Set a token or a user name, not both." },
} as const;

/**
 * One entry of `servers`: scheme, user info, host, port. The user info extends to the last @, since people forget to
 * percent-encode one in a password.
 */
export const NATS_SERVER =
  /^(?:(nats|tls):\/\/)?(?:(?![a-z][a-z0-9+.-]*:\/\/)(.*)@)?(\[[0-9a-f:.%]+\]|[^\s:/@[\]]+)(?::(\d{1,5}))?\/?$/i;

interface NatsKeys {
  readonly servers: string;
  readonly username?: string;
  readonly password?: Secret;
  readonly token?: Secret;
}

/** User name and password require each other; a token excludes them. */
export function checkNats(entry: NatsKeys, when: When): void {
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
