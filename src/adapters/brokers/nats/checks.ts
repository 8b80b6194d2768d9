import type { Secret } from "../../../model/secret.ts";
import type { When } from "../../../ports/kinds.ts";
import { checkServers } from "../serverList.ts";
import { NATS_SERVER } from "./schema.ts";

interface NatsKeys {
  readonly servers: string;
  readonly username?: string;
  readonly password?: Secret;
  readonly token?: Secret;
}

/** The rules of a NATS entry: user name and password need each other; a token excludes them. */
export function checkNats(entry: NatsKeys, when: When): void {
  when(["username", "password"], (report) => {
    if (entry.username !== undefined && entry.password === undefined)
      report.error("password", "is required by username");
    if (entry.password !== undefined && entry.username === undefined)
      report.error("username", "is required by password");
  });
  when(["username", "token"], (report) => {
    if (entry.token === undefined || entry.username === undefined) return;
    report.error("token", "cannot stand beside username: set a token or a user name, not both");
  });
  when(["servers"], (report) =>
    checkServers("servers", entry.servers, NATS_SERVER, "nats://host:port, tls://host:port or host:port", report),
  );
}
