import type pg from "pg";
import { errorText } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { atMost } from "../../../time/wait.ts";
import type { PostgresPool } from "./pool.ts";
import type { SessionUser } from "./session.ts";
import { type Statement, socketOf, statement } from "./statement.ts";

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
        if (sharesWatch && watch.isShared) watch.join(client, () => void begin().catch(() => {}));
        else await begin();
      },
      end: () => watch.end(),
    };
    await this.#pool.connections.session.join(this.#user);
  }

  announce(): void {
    if (this.#announceTimer !== undefined || this.#closed) return;
    const wait = Math.max(0, this.#lastAnnounced + ANNOUNCE_INTERVAL_MS - this.#clock.monotonic());
    this.#announceTimer = setTimeout(() => this.#notify(), wait);
    this.#announceTimer.unref();
  }

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

/**
 * The session that holds an advisory lock watches the outbox for all. No transaction number is drawn, the server frees
 * the lock with its session, and a resting process finds out with its glances. It does not listen: the server wakes
 * every listening session for each notification, whatever its channel.
 */
export class PostgresWatch {
  readonly #table: string;
  readonly #clock: Clock;
  readonly #log: Log;
  /** The session for the lock; undefined while there is none, and after {@link leave}. */
  #client: pg.ClientBase | undefined;
  #onTaken: () => void = () => {};
  #timer: NodeJS.Timeout | undefined;
  #isMine = false;
  #isAsking = false;
  /** When another process was last known to have the watch; monotonic ms. */
  #othersAt = Number.NEGATIVE_INFINITY;
  #hasLeft = false;
  /** On Citus glances run on the node of the table, the locks of sessions are on the coordinator: each process watches. */
  isShared = true;

  /** @param table the outbox, already quoted: it names the locks */
  constructor(table: string, clock: Clock, log: Log) {
    this.#table = table;
    this.#clock = clock;
    this.#log = log;
  }

  /** Another process had the watch some seconds ago at most. */
  get isOthers(): boolean {
    return this.#clock.monotonic() - this.#othersAt < KNOWN_FOR_MS;
  }

  /**
   * Takes the watch now, or when it is free.
   *
   * @param client a session, until {@link end}; other stores may hold locks of theirs in it
   */
  join(client: pg.ClientBase, onTaken: () => void): void {
    this.end();
    if (this.#hasLeft) return;
    this.#client = client;
    this.#onTaken = onTaken;
    void this.#begin(client);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#client = undefined;
    this.#isMine = false;
    this.#othersAt = Number.NEGATIVE_INFINITY;
  }

  noteGlance(isWatched: boolean): void {
    if (this.#client === undefined || this.#isMine) return;
    if (isWatched) this.#othersAt = this.#clock.monotonic();
    else void this.#ask(this.#client);
  }

  /** Gives up the watch for good. Never rejects. */
  async leave(): Promise<void> {
    this.#hasLeft = true;
    const [client, isMine] = [this.#client, this.#isMine];
    this.end();
    // What is being taken meanwhile is given back with its answer.
    if (client !== undefined && isMine) await atMost(TIMEOUT_MS, this.#query(client, LEAVE));
  }

  async #begin(client: pg.ClientBase): Promise<void> {
    await this.#query(client, SOON_DEAD);
    await this.#ask(client);
  }

  async #ask(client: pg.ClientBase): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    clearTimeout(this.#timer);
    const isTaken = await this.#query(client, TAKE);
    this.#isAsking = false;
    if (client !== this.#client) {
      // It has left, or listens anew, meanwhile.
      if (isTaken === true) await this.#query(client, LEAVE);
      return;
    }
    if (isTaken === true) {
      this.#isMine = true;
      this.#othersAt = Number.NEGATIVE_INFINITY;
      this.#onTaken();
      return;
    }
    if (isTaken === false) this.#othersAt = this.#clock.monotonic();
    this.#askLater(client, ASK_INTERVAL_MS);
  }

  #askLater(client: pg.ClientBase, ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      // Glances do it, unless the process does not rest.
      const leftMs = this.#othersAt + ASK_INTERVAL_MS - this.#clock.monotonic();
      if (leftMs > 0) this.#askLater(client, leftMs);
      else void this.#ask(client);
    }, ms);
    this.#timer.unref();
  }

  /** @returns the answer; undefined when the statement failed, which is logged */
  async #query(client: pg.ClientBase, text: string): Promise<unknown> {
    const values = text === SOON_DEAD ? undefined : [this.#table];
    try {
      const { rows } = await client.query({ text, values, query_timeout: TIMEOUT_MS } as pg.QueryConfig);
      return (rows?.[0] as { answer?: unknown } | undefined)?.answer;
    } catch (error) {
      this.#log.debug({ reason: errorText(error) }, "the watch over the outbox is not shared");
      // A session that passes no answer passes no notification either: its end makes the process take part anew.
      const isAnswered = typeof (error as { code?: unknown }).code === "string";
      if (client === this.#client && !isAnswered) socketOf(client).destroy();
      return undefined;
    }
  }
}

/** Keys of the table itself: schemas may have outboxes of one name. @param table an expression with the quoted name */
const watchKey = (table: string): string => `hashtextextended('svc watch', ${table}::text::regclass::oid::bigint)`;

/** Of a glance: whether some process has the watch. Glances share the lock, which ends with the statement. */
export const isWatched = (table: string): string => `NOT pg_try_advisory_xact_lock_shared(${watchKey(table)})`;

const TAKE = `SELECT pg_try_advisory_lock(${watchKey("$1")}) AS answer`;
const LEAVE = `SELECT pg_advisory_unlock(${watchKey("$1")}) AS answer`;
/** The server notices within some ten seconds that the machine of the watching process is gone, not in two hours. */
const SOON_DEAD =
  "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 11000";
const ASK_INTERVAL_MS = 5000;
const TIMEOUT_MS = 3000;
/** Until the next answer, or its timeout. */
const KNOWN_FOR_MS = ASK_INTERVAL_MS + TIMEOUT_MS;
