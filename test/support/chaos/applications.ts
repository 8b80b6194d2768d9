import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import type { History } from "../history.ts";
import { seeded } from "../random.ts";
import { type Way, wayOf } from "./senders.ts";

/** What the applications' transactions lock, besides the outbox. */
export const APPLICATION_SCHEMA = `
CREATE TABLE application_rows (key text PRIMARY KEY, changes int NOT NULL DEFAULT 0);
`;

export interface ApplicationsOptions {
  readonly history: History;
  readonly database: { connect(): Promise<pg.Client> };
  /** Nothing new is begun after it. */
  readonly durationMs: number;
  readonly ways: readonly Way[];
  readonly seed: number;
  readonly signal: AbortSignal;
}

/**
 * How the transactions of a key come one after another, as docs/outbox.md says: by a row that they change or lock, by an advisory lock, or because one
 * application writes them one after another, each in a statement of its own.
 */
const ORDERS = ["changed row", "locked row", "changed row", "advisory lock", "changed row", "one writer"] as const;

const KEYS = 12;
/** Transactions of a key that are under way at a time, most of them waiting for the lock. */
const WRITERS = 6;
/** Of each writer between two transactions, on average. */
const PAUSE_MS = 300;
/** Between BEGIN and the lock, in half of the transactions: who begins first is often not the first to get the lock. */
const LONGEST_THOUGHT_MS = 800;
const RECONNECT_MS = 200;

/** All transactions of a second, about. */
export const APPLICATION_ROWS_PER_SECOND = (KEYS * WRITERS * 1000) / PAUSE_MS;

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
    const { durationMs, seed, signal } = this.#options;
    const random = seeded(seed * 1000 + this.#number * WRITERS + writer);
    const end = performance.now() + durationMs;
    let client: pg.Client | undefined;
    try {
      while (performance.now() < end) {
        await sleep(2 * PAUSE_MS * random(), undefined, { signal });
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
    const order = orderOf(this.#number);
    if (order === "one writer") {
      const message = this.#next();
      await client.query(INSERT, this.#row(message));
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
    // Whoever has the lock is the next one: the one before has committed, and numbered its messages long before that.
    const messages = random() < 0.8 ? [this.#next()] : [this.#next(), this.#next()];
    for (const message of messages) await client.query(INSERT, this.#row(message));
    await client.query("COMMIT");
    for (const message of messages) this.#options.history.acknowledged(message);
  }

  /** The rest of a transaction in one request, which takes the database a millisecond: the row that it changes says which one in the order it was. */
  async #changeAtOnce(client: pg.Client): Promise<void> {
    const { history } = this.#options;
    const message = this.#next(Number.NaN);
    const values = this.#row(message).map((value) => client.escapeLiteral(value));
    const insert = INSERT.replace(/\$(\d)/g, (_, n) => values[Number(n) - 1] ?? "");
    const change = `UPDATE application_rows SET changes = changes + 1 WHERE key = '${this.#key}' RETURNING changes`;
    const results: unknown = await client.query(`${change}; ${insert}; COMMIT`);
    const [changed] = results as pg.QueryResult<{ changes: number }>[];
    history.ordered(message, changed?.rows[0]?.changes ?? Number.NaN);
    history.acknowledged(message);
  }

  #next(position?: number): string {
    const message = `a-${this.#number}-${this.#messages}`;
    this.#messages += 1;
    this.#options.history.sent(message, this.#key, position);
    return message;
  }

  /** The parameters of {@link INSERT}. */
  #row(message: string): string[] {
    return [`orders.${wayOf(this.#key, this.#options.ways)}`, this.#key, message];
  }
}

const LOCKS = {
  "locked row": "SELECT changes FROM application_rows WHERE key = $1 FOR UPDATE",
  "advisory lock": "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
};

/** $1 topic, $2 key, $3 id of the message. */
const INSERT = `
INSERT INTO outbox (topic, key, payload, headers, max_attempts)
VALUES ($1, $2, json_build_object('id', $3::text, 'key', $2::text), jsonb_build_object('x-idempotency-key', $3::text), 1000)`;
