import type pg from "pg";
import type { Log } from "../../../ports/runtime.ts";
import { Backoff } from "../../../time/backoff.ts";
import type { Clock } from "../../../time/clock.ts";
import { atMost } from "../../../time/wait.ts";
import type { Row } from "../sql/rows.ts";
import { BACKEND, type PostgresPool } from "./pool.ts";
import { type Statement, statement } from "./statement.ts";
import type { PostgresWatch } from "./watch.ts";

/**
 * Wakes between processes by `LISTEN` and `NOTIFY`: hints, so every fault here costs one warning. `LISTEN` needs a
 * direct connection to the server (no transaction pooler).
 */
export class PostgresWake {
  readonly #pool: PostgresPool;
  readonly #channel: string;
  readonly #watch: PostgresWatch;
  readonly #clock: Clock;
  readonly #log: Log;
  #listening: { end(): Promise<void> } | undefined;
  #retry: NodeJS.Timeout | undefined;
  #announceTimer: NodeJS.Timeout | undefined;
  #lastAnnounced = Number.NEGATIVE_INFINITY;
  #announcing: Promise<void> = Promise.resolve();
  readonly #backoff = new Backoff(Math.random);
  #warned = false;
  #closed = false;

  constructor(pool: PostgresPool, channel: string, watch: PostgresWatch, clock: Clock, log: Log) {
    this.#pool = pool;
    this.#channel = channel;
    this.#watch = watch;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Subscribes, and again whenever the connection ends. Returns after the first try.
   *
   * @param sharesWatch whether this process listens only while it has the watch
   */
  async listen(listener: () => void, sharesWatch = false): Promise<void> {
    if (this.#closed) return;
    try {
      const client = await this.#pool.dedicated();
      const again = () => this.#listenLater(listener, sharesWatch);
      client.once("end", again);
      this.#listening = { end: () => client.removeListener("end", again).end() };
      if (this.#closed) return await this.#listening.end();
      if (await this.#isShared(client)) {
        throw new Error(
          "a pooler in transaction mode gives the server connection to others, and notifications with it",
        );
      }
      client.on("notification", listener);
      this.#backoff.reset();
      const begin = async () => {
        await client.query(`LISTEN "${this.#channel}"`);
        // A notification may have been missed while nobody listened.
        listener();
      };
      if (sharesWatch && this.#watch.isShared) this.#watch.takePart(client, () => void begin().catch(() => {}));
      else await begin();
    } catch (error) {
      if (this.#closed) return;
      // Not awaited: a server that hangs does not answer.
      void this.#listening?.end().catch(() => {});
      if (!this.#warned) {
        this.#log.warn(
          { err: error },
          "cannot LISTEN for outbox wakes: polling at outbox.pollIntervalMs, and trying again",
        );
      }
      this.#warned = true;
      this.#listenLater(listener, sharesWatch);
    }
  }

  /** Sends one notification now, or at the end of the current interval. */
  announce(): void {
    if (this.#announceTimer !== undefined || this.#closed) return;
    const wait = Math.max(0, this.#lastAnnounced + ANNOUNCE_INTERVAL_MS - this.#clock.monotonic());
    this.#announceTimer = setTimeout(() => this.#notify(), wait);
    this.#announceTimer.unref();
  }

  /** Sends what was announced and not sent, and ends the subscription. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#watch.end();
    clearTimeout(this.#retry);
    if (this.#announceTimer !== undefined) {
      clearTimeout(this.#announceTimer);
      this.#notify();
    }
    // The limit of the statement does not count the wait for a connection.
    await atMost(NOTIFY_TIMEOUT_MS, this.#announcing);
    await this.#listening
      ?.end()
      .catch((error: unknown) => this.#log.debug({ err: error }, "closing the LISTEN connection"));
  }

  /**
   * Whether a pooler gives the server's session to others between transactions: another connection meets it, or this
   * one has another. Asked before `LISTEN`, which would stay behind in that session.
   */
  async #isShared(client: pg.Client): Promise<boolean> {
    let first: unknown;
    for (let asked = 0; asked < TIMES_ASKED; asked += 1) {
      const { pid } = (await client.query(BACKEND.text)).rows[0] as Row;
      const [other] = await this.#pool.run(BACKEND);
      first ??= pid;
      if (pid !== first || pid === other?.pid) return true;
    }
    return false;
  }

  #notify(): void {
    this.#announceTimer = undefined;
    this.#lastAnnounced = this.#clock.monotonic();
    this.#announcing = this.#pool.run(NOTIFY, { channel: this.#channel }).then(
      () => undefined,
      (error: unknown) => this.#log.debug({ err: error }, "outbox wake not sent"),
    );
  }

  #listenLater(listener: () => void, sharesWatch: boolean): void {
    this.#watch.end();
    if (this.#closed) return;
    this.#listening = undefined;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.listen(listener, sharesWatch), this.#backoff.next());
    this.#retry.unref();
  }
}

/** `NOTIFY` takes a database-wide lock at commit: twenty a second do not matter. */
const ANNOUNCE_INTERVAL_MS = 50;
/** A database that hangs must not delay the stop for a hint. */
const NOTIFY_TIMEOUT_MS = 3000;
const NOTIFY: Statement = statement("outbox.wake(channel)", { timeoutMs: NOTIFY_TIMEOUT_MS })(
  "SELECT pg_notify($1, '')",
);
/** The busier a pooler is, the sooner a session has another user; at rest the other connection gets the last one used. */
const TIMES_ASKED = 5;
