import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import type { History } from "../history.ts";
import { seeded } from "../random.ts";
import type { Backlog } from "./backlog.ts";
import { between } from "./draw.ts";
import type { FaultName } from "./selection.ts";
import { typeOf, type Way, wayOf } from "./senders.ts";

/**
 * What the applications' transactions lock, besides the outbox, and an owner's check that takes as long over an insert as the row asks for: with a trigger
 * for each row receipts would leave their rows to the relay.
 */
export const APPLICATION_SCHEMA = `
CREATE TABLE application_rows (key text PRIMARY KEY, changes int NOT NULL DEFAULT 0);
CREATE FUNCTION takes_time(seconds text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(seconds::float);
  RETURN true;
END $$;
ALTER TABLE outbox ADD CONSTRAINT takes_time CHECK (
  NOT (headers ? 'x-takes-s' AND state = 'pending' AND updated_at = created_at) OR takes_time(headers->>'x-takes-s'));
`;

export interface ApplicationsOptions {
  readonly history: History;
  readonly backlog: Pick<Backlog, "room">;
  readonly database: { readonly epoch: number; connect(): Promise<pg.Client> };
  /** Nothing new is begun after it. */
  readonly durationMs: number;
  readonly ways: readonly Way[];
  readonly seed: number;
  readonly selected: ReadonlySet<FaultName>;
  readonly signal: AbortSignal;
}

/**
 * How the transactions of a key come one after another, as docs/outbox.md says: by a row that they change or lock, by an advisory lock, or because one
 * application writes them one after another, each in a statement of its own.
 */
const ORDERS = [
  "changed row",
  "locked row",
  "one writer",
  "changed row",
  "advisory lock",
  "one writer",
  "changed row",
] as const;

const KEYS = 14;
/** Transactions of a key that are under way at a time, most of them waiting for the lock. */
const WRITERS = 6;
/** Of each writer between two transactions, on average. */
const PAUSE_MS = 300;
/** Between BEGIN and the lock, in half of the transactions: who begins first is often not the first to get the lock. */
const LONGEST_THOUGHT_MS = 800;
const RECONNECT_MS = 200;
/** More changes of a row than a run makes. */
const EPOCH = 1e9;
/** How many of the inserts an owner's trigger makes slow, and how slow, most of them near to the longest. */
const SLOW_INSERTS = 0.08;
const SLOW_INSERT_S = [0.1, 4] as const;
/** How many of one writer's inserts wait for another transaction that has inserted the same id, and how long. */
const CONFLICTS = 0.06;
const CONFLICT_MS = [100, 4000] as const;

/**
 * Applications that write into the outbox themselves, at the same time and in order per key. Only what was committed for sure counts as acknowledged; a
 * transaction whose end nobody knows may be delivered or not.
 */
export async function runApplications(options: ApplicationsOptions): Promise<void> {
  const client = await options.database.connect();
  try {
    await client.query("INSERT INTO application_rows SELECT 'app-' || n FROM generate_series(0, $1) n", [KEYS - 1]);
  } finally {
    await client.end();
  }
  await Promise.all(
    Array.from({ length: KEYS }, (_, n) => {
      const writers = orderOf(n) === "one writer" ? 1 : WRITERS;
      const key = new ApplicationKey(options, n);
      return Promise.all(Array.from({ length: writers }, (_, writer) => key.write(writer)));
    }),
  );
}

function orderOf(keyNumber: number): (typeof ORDERS)[number] {
  // Neighbours go different ways, so that each order is met on each of them.
  return ORDERS[Math.floor(keyNumber / 2) % ORDERS.length] ?? "changed row";
}

/** The writers of one key. */
class ApplicationKey {
  readonly #options: ApplicationsOptions;
  readonly #number: number;
  readonly #key: string;
  #messages = 0;

  constructor(options: ApplicationsOptions, keyNumber: number) {
    this.#options = options;
    this.#number = keyNumber;
    this.#key = `app-${keyNumber}`;
  }

  async write(writer: number): Promise<void> {
    const { backlog, durationMs, seed, signal } = this.#options;
    const random = seeded(seed * 1000 + this.#number * WRITERS + writer);
    const end = performance.now() + durationMs;
    let client: pg.Client | undefined;
    try {
      while (performance.now() < end) {
        await sleep(2 * PAUSE_MS * random(), undefined, { signal });
        await backlog.room();
        try {
          client ??= await this.#options.database.connect();
          await this.#transaction(client, random);
        } catch {
          // The database is away, or has ended the session, and the transaction with it.
          await client?.end().catch(() => {});
          client = undefined;
          await sleep(RECONNECT_MS, undefined, { signal });
        }
      }
    } finally {
      await client?.end().catch(() => {});
    }
  }

  async #transaction(client: pg.Client, random: () => number): Promise<void> {
    const { selected } = this.#options;
    const order = orderOf(this.#number);
    if (order === "one writer") {
      const message = this.#next();
      if (selected.has("conflicts") && random() < CONFLICTS) await this.#insertTwice(client, message, random);
      else await client.query(INSERT, this.#row(message, random));
      this.#options.history.acknowledged(message);
      return;
    }
    await client.query("BEGIN");
    if (random() < 0.5) await sleep(LONGEST_THOUGHT_MS * random());
    if (order === "changed row") {
      await this.#changeAtOnce(client);
      return;
    }
    await client.query(LOCKS[order], [this.#key]);
    // The holder of the lock is next in order: the previous holder has committed, and had numbered its messages long before.
    const messages = random() < 0.8 ? [this.#next()] : [this.#next(), this.#next()];
    for (const message of messages) await client.query(INSERT, this.#row(message, random));
    await client.query("COMMIT");
    for (const message of messages) this.#options.history.acknowledged(message);
  }

  /** The rest of a transaction in one request, which takes the database a millisecond: the row that it changes says which one in the order it was. */
  async #changeAtOnce(client: pg.Client): Promise<void> {
    const { history, database } = this.#options;
    const message = this.#next(Number.NaN);
    const values = this.#row(message).map((value) => client.escapeLiteral(value));
    const insert = INSERT.replace(/\$(\d)/g, (_, n) => values[Number(n) - 1] ?? "");
    const change = `UPDATE application_rows SET changes = changes + 1 WHERE key = '${this.#key}' RETURNING changes`;
    const results: unknown = await client.query(`${change}; ${insert}; COMMIT`);
    const [changed] = results as pg.QueryResult<{ changes: number }>[];
    // The counter goes back when the database does.
    history.ordered(message, database.epoch * EPOCH + (changed?.rows[0]?.changes ?? Number.NaN));
    history.acknowledged(message);
  }

  /**
   * A job that was started again while its first try is still under way: both insert the row with the same id, and the second one waits until the first
   * has committed, or has not.
   */
  async #insertTwice(client: pg.Client, message: string, random: () => number): Promise<void> {
    const row = this.#row(message);
    const first = await this.#options.database.connect();
    try {
      await first.query("BEGIN");
      await first.query(INSERT, row);
      const second = client.query(`${INSERT} ON CONFLICT (id) DO NOTHING`, row);
      second.catch(() => {}); // Awaited below.
      await sleep(between(CONFLICT_MS, Math.sqrt(random())));
      await first.query(random() < 0.5 ? "ROLLBACK" : "COMMIT");
      await second;
    } finally {
      await first.end().catch(() => {});
    }
  }

  #next(position?: number): string {
    const message = `a-${this.#number}-${this.#messages}`;
    this.#messages += 1;
    this.#options.history.sent(message, this.#key, position);
    return message;
  }

  /**
   * The parameters of {@link INSERT}.
   *
   * @param random decides whether it is slow
   */
  #row(message: string, random = () => 1): string[] {
    // Elsewhere the transaction has an id of its own by then, and with that many of them open for seconds the low-water marks would never move.
    const maySlow = this.#options.selected.has("slow inserts") && orderOf(this.#number) !== "locked row";
    const slow = maySlow && random() < SLOW_INSERTS;
    const headers = {
      "x-idempotency-key": message,
      ...(slow ? { "x-takes-s": between(SLOW_INSERT_S, Math.sqrt(random())).toFixed(3) } : {}),
    };
    const payload = JSON.stringify({ id: message, key: this.#key });
    return [
      `orders.${typeOf(message, wayOf(this.#key, this.#options.ways))}`,
      this.#key,
      randomUUID(),
      payload,
      JSON.stringify(headers),
    ];
  }
}

const LOCKS = {
  "locked row": "SELECT changes FROM application_rows WHERE key = $1 FOR UPDATE",
  "advisory lock": "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
};

/** $1 topic, $2 key, $3 id of the row, $4 payload, $5 headers. */
const INSERT = "INSERT INTO outbox (topic, key, id, payload, headers, max_attempts) VALUES ($1, $2, $3, $4, $5, 1000)";
