import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type ConnectionOptions, DebugEvents, Events, type Msg, type NatsConnection } from "nats";
import { NatsConnectionImpl, setTransportFactory } from "nats/lib/nats-base-client/internal_mod.js";
import { NodeTransport, nodeResolveHost } from "nats/lib/src/node_transport.js";
import type { Random } from "../../../time/clock.ts";
import { connectFault, lossText, NatsFault } from "./faults.ts";
import { NATS_SERVER, type NatsConnectionConfig } from "./schema.ts";

/** Something the server does not permit this user; it reports that asynchronously. */
interface Violation {
  readonly operation: "publish" | "subscription";
  readonly subject: string;
}

/** With two unanswered pings allowed, a dead connection is detected within 20 seconds. */
const PING_INTERVAL_MS = 5000;
const MAX_PINGS_OUT = 2;

/** Makes connections to the servers of one configuration. */
export class NatsDialer {
  readonly #servers: NatsServers;
  readonly #login: NatsLogin | undefined;
  readonly #name: string;
  readonly #timeoutMs: number;

  /**
   * @param name the client's name in the server's lists
   * @param timeoutMs timeout per server: TCP, TLS and login
   * @throws Error when `servers` is invalid
   */
  constructor(config: NatsConnectionConfig, name: string, timeoutMs: number, random: Random) {
    this.#servers = new NatsServers(config.servers, random);
    this.#login = loginOf(config);
    this.#name = name;
    this.#timeoutMs = timeoutMs;
  }

  /** The configured addresses without credentials, for messages. */
  get servers(): string {
    return this.#servers.text;
  }

  /**
   * Tries the servers in turn until one accepts the connection. The client never reconnects by itself: it would buffer
   * publishes and send them after they were reported as failed.
   *
   * @throws NatsFault with the reason for each server; the signal's reason on abort
   */
  async dial(signal: AbortSignal): Promise<NatsLink> {
    const faults: NatsFault[] = [];
    for (const server of this.#servers.inTurn()) {
      signal.throwIfAborted();
      try {
        const connection = await this.#connect(server, signal);
        this.#servers.setAnnounced(connection.info?.connect_urls ?? [], server);
        return new NatsLink(connection, server.address);
      } catch (error) {
        signal.throwIfAborted();
        faults.push(connectFault(server.address, error, this.#timeoutMs));
      }
    }
    throw joined(faults);
  }

  async #connect(server: NatsServer, signal: AbortSignal): Promise<NatsConnection> {
    const { outcome, destroy } = connectTracked({
      servers: [server.address],
      ...(server.login ?? this.#login),
      ...(server.tls ? { tls: {} } : {}),
      name: this.#name,
      reconnect: false,
      maxReconnectAttempts: 0,
      ignoreClusterUpdates: true,
      timeout: this.#timeoutMs,
      pingInterval: PING_INTERVAL_MS,
      maxPingOut: MAX_PINGS_OUT,
    });
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        destroy();
        reject(signal.reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      outcome
        .then(
          (connection) => (signal.aborted ? connection.close() : resolve(connection)),
          (error) => {
            destroy();
            reject(error);
          },
        )
        .finally(() => signal.removeEventListener("abort", onAbort));
    });
  }
}

/** One connection, from its greeting to its end. */
export class NatsLink {
  readonly connection: NatsConnection;
  /** `host:port`. */
  readonly server: string;
  /** Resolves with the reason when the connection has ended. */
  readonly ended: Promise<string>;
  #reason: string | undefined;
  readonly #listeners = new Set<(violation: Violation) => void>();
  readonly #flushes = new Set<(error: Error) => void>();

  constructor(connection: NatsConnection, server: string) {
    this.connection = connection;
    this.server = server;
    this.ended = connection.closed().then(async (error) => {
      // Its cause may still be in the client's event queue.
      await nextTurn();
      this.#reason ??= lossText(server, error ?? undefined);
      for (const fail of this.#flushes) fail(new Error(this.#reason));
      return this.#reason;
    });
    void this.#watch();
  }

  /** Why the connection ended; undefined while it is open. */
  get endReason(): string | undefined {
    if (this.#reason === undefined && this.connection.isClosed()) return lossText(this.server, undefined);
    return this.#reason;
  }

  /** Calls `listener` for everything the server does not permit. */
  onViolation(listener: (violation: Violation) => void): void {
    this.#listeners.add(listener);
  }

  /**
   * Resolves when the server has read everything sent before.
   *
   * @throws Error with the reason when the connection ends first
   */
  flush(): Promise<void> {
    return new Promise((resolve, reject) => {
      // The client never settles a flush whose connection ends.
      this.#flushes.add(reject);
      this.connection
        .flush()
        .then(resolve, () => reject(new Error(this.endReason ?? lossText(this.server, undefined))))
        .finally(() => this.#flushes.delete(reject));
    });
  }

  /** Ends the connection at once; unflushed data may be lost. Safe to call twice. */
  async close(reason = "the connection was closed"): Promise<void> {
    this.#reason ??= reason;
    await this.connection.close();
  }

  async #watch(): Promise<void> {
    for await (const { type, permissionContext } of this.connection.status()) {
      if (type === DebugEvents.StaleConnection) {
        // The client would first flush everything, which never ends if the server hangs.
        await this.close(`${this.server} no longer answers`);
      }
      if (type === Events.Error && permissionContext !== undefined) {
        const operation = permissionContext.operation === "publish" ? "publish" : "subscription";
        for (const listener of this.#listeners) listener({ operation, subject: permissionContext.subject });
      }
    }
  }
}

/** The status of an answer (NATS ADR-4); 0 without one. The client may be unable to read a responder's headers. */
export function statusOf(message: Msg): { readonly code: number; readonly description: string } {
  try {
    return { code: message.headers?.code ?? 0, description: message.headers?.description || "no reason given" };
  } catch {
    return { code: 0, description: "an answer that cannot be read" };
  }
}

function loginOf({ username, password, token }: NatsConnectionConfig): NatsLogin | undefined {
  if (username !== undefined) return { user: username, pass: password?.reveal() ?? "" };
  return token === undefined ? undefined : { token: token.reveal() };
}

function joined(faults: readonly NatsFault[]): NatsFault {
  const [first] = faults;
  return new NatsFault(first?.code ?? "other", faults.map(({ message }) => message).join("; "));
}

/** The client keeps unknown options and passes them to its transport. */
type TrackedOptions = ConnectionOptions & { readonly onSocket: (socket: Socket) => void };

const CHANNEL = "net.client.socket";

/** The client's own transport; reports the socket that it opens. */
class TrackedTransport extends NodeTransport {
  override connect(server: Parameters<NodeTransport["connect"]>[0], options: TrackedOptions): Promise<void> {
    const onSocket = (message: unknown) => options.onSocket((message as { readonly socket: Socket }).socket);
    // Opened synchronously: no other socket can interfere.
    subscribe(CHANNEL, onSocket);
    try {
      return super.connect(server, options);
    } finally {
      unsubscribe(CHANNEL, onSocket);
    }
  }
}

const TRANSPORT = { factory: () => new TrackedTransport(), dnsResolveFn: nodeResolveHost };

/**
 * Connects like the client's `connect`, with sockets that can be destroyed from outside. The client cannot cancel an
 * attempt, and leaks the socket of a server that accepts it and never sends its greeting. An asynchronous context could
 * also identify the socket, but makes Node track every promise of the process: while a server keeps an attempt waiting,
 * each delivery to any destination took a tenth more CPU, and a third more at first.
 *
 * @returns the connection, and a function that destroys the sockets of the attempt, later ones included
 */
function connectTracked(options: ConnectionOptions): {
  readonly outcome: Promise<NatsConnection>;
  readonly destroy: () => void;
} {
  const sockets = new Set<Socket>();
  let destroyed = false;
  const onSocket = (socket: Socket) => {
    sockets.add(socket);
    // A socket that is destroyed before it connects would connect anyway: wait a turn.
    if (destroyed) setImmediate(() => socket.destroy());
  };
  const destroy = () => {
    destroyed = true;
    for (const socket of sockets) socket.destroy();
  };
  setTransportFactory(TRANSPORT);
  const tracked: TrackedOptions = { ...options, onSocket };
  return { outcome: NatsConnectionImpl.connect(tracked), destroy };
}

type NatsLogin = { readonly user: string; readonly pass: string } | { readonly token: string };

interface NatsServer {
  /** `host:port`, IPv6 in brackets; without credentials. */
  readonly address: string;
  readonly tls: boolean;
  /** From the user info of the URL. */
  readonly login: NatsLogin | undefined;
}

const DEFAULT_PORT = 4222;

/** The servers of a source or destination: the configured ones, and the members that a cluster announced. */
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
