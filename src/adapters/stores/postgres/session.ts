import type pg from "pg";
import type { Log } from "../../../ports/runtime.ts";
import { Backoff } from "../../../time/wait.ts";

interface Connections {
  /** One of its own, whose queries may take any time. */
  dedicated(): Promise<pg.Client>;
  connect(name: string): Promise<pg.PoolClient>;
}

/** A store's use of the session. */
export interface SessionUser {
  /** Of the notifications that it wants. */
  readonly channel: string;
  notified(): void;
  begin(client: pg.ClientBase): Promise<void>;
  end(): void;
}

/**
 * The session of all stores of a database for `LISTEN`, and for locks that end with the process. These are hints: a
 * fault costs one warning. It needs a direct connection to the server (no transaction pooler).
 */
export class Session {
  readonly #connections: Connections;
  readonly #log: Log;
  readonly #users = new Set<SessionUser>();
  #client: pg.Client | undefined;
  #opening: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  readonly #backoff = new Backoff(Math.random);
  #warned = false;

  constructor(connections: Connections, log: Log) {
    this.#connections = connections;
    this.#log = log;
  }

  /** The user begins now and whenever the session is opened again. Returns after the first try. */
  async join(user: SessionUser): Promise<void> {
    this.#users.add(user);
    if (this.#client === undefined || this.#opening !== undefined) return await this.#open();
    await user.begin(this.#client).catch((error: unknown) => this.#failed(error));
  }

  /** The session ends with the last user. */
  async leave(user: SessionUser): Promise<void> {
    if (!this.#users.delete(user)) return;
    user.end();
    if (this.#users.size > 0) return;
    clearTimeout(this.#retry);
    const client = this.#client;
    this.#client = undefined;
    await client?.end().catch((error: unknown) => this.#log.debug({ err: error }, "closing the LISTEN connection"));
  }

  #open(): Promise<void> {
    clearTimeout(this.#retry);
    this.#opening ??= this.#tryToOpen();
    return this.#opening;
  }

  async #tryToOpen(): Promise<void> {
    try {
      const client = await this.#connections.dedicated();
      if (this.#users.size === 0) return await client.end();
      this.#client = client;
      client.once("end", () => {
        if (client === this.#client) this.#openLater();
      });
      if (await this.#isShared(client)) {
        throw new Error(
          "a pooler in transaction mode gives the server connection to others, and notifications with it",
        );
      }
      this.#backoff.reset();
      client.on("notification", ({ channel }) => {
        for (const user of this.#users) if (user.channel === channel) user.notified();
      });
      // Also users that join meanwhile.
      for (const user of this.#users) await user.begin(client);
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#opening = undefined;
    }
  }

  #failed(error: unknown): void {
    if (this.#users.size === 0) return;
    if (!this.#warned) {
      this.#log.warn(
        { err: error },
        "cannot LISTEN for outbox wakes: polling at outbox.pollIntervalMs, and trying again",
      );
    }
    this.#warned = true;
    this.#openLater();
  }

  #openLater(): void {
    for (const user of this.#users) user.end();
    const client = this.#client;
    this.#client = undefined;
    // Not awaited: a server that hangs does not answer.
    void client?.end().catch(() => {});
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.#open(), this.#backoff.next());
    this.#retry.unref();
  }

  /**
   * Whether a pooler shares the server's session between transactions: another connection meets it, or this one
   * changes. Runs before `LISTEN`, which would stay behind in that session.
   */
  async #isShared(client: pg.Client): Promise<boolean> {
    let first: unknown;
    for (let asked = 0; asked < TIMES_ASKED; asked += 1) {
      const pid = await backendOf(client);
      first ??= pid;
      const other = await this.#connections.connect("backend");
      try {
        if (pid !== first || pid === (await backendOf(other))) return true;
      } finally {
        other.release();
      }
    }
    return false;
  }
}

/** The server process of a connection; behind a pooler that of one transaction. */
async function backendOf(client: pg.ClientBase): Promise<unknown> {
  return (await client.query("SELECT pg_backend_pid() AS pid")).rows[0]?.pid;
}

/** The busier a pooler is, the sooner a session has another user; at rest the other connection gets the last one used. */
const TIMES_ASKED = 5;
