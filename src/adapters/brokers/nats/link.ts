import { setImmediate as nextTurn } from "node:timers/promises";
import { DebugEvents, Events, type NatsConnection } from "nats";
import type { Infer } from "../../../model/schema.ts";
import type { Random } from "../../../time/clock.ts";
import { connectFault, lossText, NatsFault } from "./faults.ts";
import type { natsConnectionKeys } from "./schema.ts";
import { type NatsLogin, type NatsServer, NatsServers } from "./servers.ts";
import { connectTracked } from "./sockets.ts";

/** The keys of a source or destination for its connection. */
type NatsConnectionConfig = Infer<{
  readonly type: "object";
  readonly properties: typeof natsConnectionKeys;
  readonly required: readonly ["servers"];
}>;

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
   * @param signal gives up at once
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
  get lost(): string | undefined {
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
        .then(resolve, () => reject(new Error(this.lost ?? lossText(this.server, undefined))))
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

function loginOf({ username, password, token }: NatsConnectionConfig): NatsLogin | undefined {
  if (username !== undefined) return { user: username, pass: password?.reveal() ?? "" };
  return token === undefined ? undefined : { token: token.reveal() };
}

function joined(faults: readonly NatsFault[]): NatsFault {
  const [first] = faults;
  return new NatsFault(first?.code ?? "other", faults.map(({ message }) => message).join("; "));
}
