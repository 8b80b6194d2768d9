import type { Random } from "../../../time/clock.ts";
import { NATS_SERVER } from "./schema.ts";

/** The client's credentials. */
export type NatsLogin = { readonly user: string; readonly pass: string } | { readonly token: string };

export interface NatsServer {
  /** `host:port`, IPv6 in brackets; without credentials. */
  readonly address: string;
  readonly tls: boolean;
  /** From the user info of the URL. */
  readonly login: NatsLogin | undefined;
}

const DEFAULT_PORT = 4222;

/** The servers of a source or destination: the configured ones, and those that a cluster member announced. */
export class NatsServers {
  readonly #configured: readonly NatsServer[];
  readonly #random: Random;
  #announced: readonly NatsServer[] = [];

  /**
   * @param text `nats://host:port`, `tls://host:port` or `host:port`, comma-separated; user info holds a user name and
   * password, or a token
   * @throws Error that names the entry by its position and does not repeat it: it may hold a password
   */
  constructor(text: string, random: Random) {
    this.#configured = text
      .split(",")
      .map((entry) => entry.trim())
      .filter((entry) => entry !== "")
      .map((entry, index) => parseServer(entry, index + 1));
    if (this.#configured.length === 0) throw new Error("servers: the list is empty; expected nats://host:port");
    this.#random = random;
  }

  /** The configured addresses without credentials, for messages. */
  get text(): string {
    return this.#configured.map(({ address }) => address).join(", ");
  }

  /** All servers, the configured ones first, each part in random order: replicas spread over a cluster. */
  inTurn(): readonly NatsServer[] {
    const known = new Set(this.#configured.map(({ address }) => address));
    const announced = this.#announced.filter(({ address }) => !known.has(address));
    return [...this.#shuffled(this.#configured), ...this.#shuffled(announced)];
  }

  /**
   * Replaces the announced servers of the cluster.
   *
   * @param urls `connect_urls` of the server's greeting: `host:port` each
   * @param from the announcing server: its scheme and login apply to them too
   */
  setAnnounced(urls: readonly string[], from: NatsServer): void {
    this.#announced = urls.map((address) => ({ address, tls: from.tls, login: from.login }));
  }

  #shuffled(servers: readonly NatsServer[]): readonly NatsServer[] {
    return servers
      .map((server) => ({ server, place: this.#random() }))
      .sort((a, b) => a.place - b.place)
      .map(({ server }) => server);
  }
}

function parseServer(entry: string, place: number): NatsServer {
  const [, scheme = "nats", userInfo, host = "", port = String(DEFAULT_PORT)] = NATS_SERVER.exec(entry) ?? [];
  if (host === "" || Number(port) < 1 || Number(port) > 65_535) {
    throw new Error(
      `servers: entry ${place} is not a server URL; expected nats://host:port, tls://host:port or host:port`,
    );
  }
  return {
    address: `${host}:${Number(port)}`,
    tls: scheme.toLowerCase() === "tls",
    login: userInfo === undefined || userInfo === "" ? undefined : parseUserInfo(userInfo),
  };
}

function parseUserInfo(userInfo: string): NatsLogin {
  const colon = userInfo.indexOf(":");
  if (colon < 0) return { token: decoded(userInfo) };
  return { user: decoded(userInfo.slice(0, colon)), pass: decoded(userInfo.slice(colon + 1)) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
