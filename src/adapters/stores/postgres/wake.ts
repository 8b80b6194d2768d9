import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { atMost } from "../../../time/wait.ts";
import type { PostgresPool } from "./pool.ts";
import type { SessionUser } from "./session.ts";
import { type Statement, statement } from "./statement.ts";
import type { PostgresWatch } from "./watch.ts";

/** Wakes between processes by `LISTEN` and `NOTIFY`, on a channel of the store. */
export class PostgresWake {
  readonly #pool: PostgresPool;
  readonly #channel: string;
  readonly #watch: PostgresWatch;
  readonly #clock: Clock;
  readonly #log: Log;
  #user: SessionUser | undefined;
  #announceTimer: NodeJS.Timeout | undefined;
  #lastAnnounced = Number.NEGATIVE_INFINITY;
  #announcing: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(pool: PostgresPool, channel: string, watch: PostgresWatch, clock: Clock, log: Log) {
    this.#pool = pool;
    this.#channel = channel;
    this.#watch = watch;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Subscribes, and again whenever the session ends. Returns after the first try.
   *
   * @param sharesWatch whether this process listens only while it has the watch
   */
  async listen(listener: () => void, sharesWatch = false): Promise<void> {
    if (this.#closed) return;
    const watch = this.#watch;
    this.#user = {
      channel: this.#channel,
      notified: listener,
      begin: async (client) => {
        const begin = async () => {
          await client.query(`LISTEN "${this.#channel}"`);
          // A notification may have been missed while nobody listened.
          listener();
        };
        if (sharesWatch && watch.isShared) watch.takePart(client, () => void begin().catch(() => {}));
        else await begin();
      },
      end: () => watch.end(),
    };
    await this.#pool.connections.session.join(this.#user);
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
    await this.#watch.leave();
    if (this.#announceTimer !== undefined) {
      clearTimeout(this.#announceTimer);
      this.#notify();
    }
    // The limit of the statement does not count the wait for a connection.
    await atMost(NOTIFY_TIMEOUT_MS, this.#announcing);
    if (this.#user !== undefined) await this.#pool.connections.session.leave(this.#user);
  }

  #notify(): void {
    this.#announceTimer = undefined;
    this.#lastAnnounced = this.#clock.monotonic();
    this.#announcing = this.#pool.run(NOTIFY, { channel: this.#channel }).then(
      () => undefined,
      (error: unknown) => this.#log.debug({ err: error }, "outbox wake not sent"),
    );
  }
}

/** `NOTIFY` takes a database-wide lock at commit: twenty a second do not matter. */
const ANNOUNCE_INTERVAL_MS = 50;
/** A database that hangs must not delay the stop for a hint. */
const NOTIFY_TIMEOUT_MS = 3000;
const NOTIFY: Statement = statement("outbox.wake(channel)", { timeoutMs: NOTIFY_TIMEOUT_MS })(
  "SELECT pg_notify($1, '')",
);
