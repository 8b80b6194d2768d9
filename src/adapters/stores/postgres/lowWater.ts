import type { Clock } from "../../../time/clock.ts";
import { higher, type LowWater, lower, type Row } from "../sql/rows.ts";
import { IS_CITUS } from "./fragments.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** Elements of the parameter `lowWater` (bigint[], from 1); from `running` on they are transactions. */
const ELEMENT = {
  stable: 1,
  conditional: 2,
  mark: 3,
  running: 4,
} as const;

const element = (lowWater: string, name: keyof typeof ELEMENT): string => `(${lowWater}::bigint[])[${ELEMENT[name]}]`;
export const newestMark = (lowWater: string): string => element(lowWater, "mark");

/**
 * An expression (bigint): the position below which nothing is unfinished. It is the conditional mark if this snapshot
 * shows none of its transactions ended, else the stable mark.
 */
export function markBound(lowWater: string): string {
  return `CASE
    WHEN (${lowWater}::bigint[])[${ELEMENT.running}:] <@ array(SELECT t.id::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS t(id))
      THEN greatest(${element(lowWater, "stable")}, ${element(lowWater, "conditional")})
    ELSE ${element(lowWater, "stable")} END`;
}

/**
 * Reads a mark and its snapshot. Parameters: `lowWater`, `afterHighest` (the mark if nothing is unfinished), `lastRead`
 * (the mark read last) and `awaited` (writers that the marks wait for).
 *
 * A snapshot names the running transactions up to the newest ended one, and none that began later. So the statement
 * draws a transaction number as their bound, but only if the mark has changed: an idle process writes nothing. A writer
 * without a number is known by its lock on the table, which is read before that.
 *
 * There is no mark on Citus: a writer takes its position on the coordinator before the node with the table knows of it.
 *
 * @param table already quoted
 * @param lowest a scalar (bigint) over the parameters: the lowest unfinished position, null for none
 */
export function markRead(table: string, lowest: string): string {
  return `
SELECT l.mark, array(SELECT pg_snapshot_xip(pg_current_snapshot())::text) AS running,
  pg_snapshot_xmax(pg_current_snapshot())::text AS "end", w.writers,
  CASE WHEN l.is_new AND w.writers IS NOT NULL THEN pg_current_xact_id()::text END AS later
FROM (SELECT m.mark, m.mark IS NOT NULL AND m.mark IS DISTINCT FROM $3::bigint AS is_new
  FROM (SELECT CASE WHEN NOT ${IS_CITUS} THEN coalesce(${lowest}, $2::bigint) END AS mark OFFSET 0) m) l
CROSS JOIN LATERAL (SELECT CASE WHEN l.is_new OR cardinality($4::text[]) > 0 THEN array(${writers(table)}) END AS writers OFFSET 0) w`;
}

/**
 * A query for who writes to a table or its partitions without a transaction number yet, or is awaited ($4). A writer
 * takes this lock before anything else, even a position, and keeps it to its end. The locks of this statement identify
 * the database: Citus refuses a table of the catalogue beside the outbox.
 */
function writers(table: string): string {
  return `
  WITH k AS MATERIALIZED (SELECT * FROM pg_lock_status() WHERE granted),
  own AS MATERIALIZED (SELECT k.database FROM k WHERE k.pid = pg_backend_pid() AND k.locktype = 'relation' AND k.database <> 0)
  SELECT k.virtualtransaction FROM k
  WHERE ${writesTo(table, "k")} AND k.database IN (SELECT database FROM own)
    OR k.locktype = 'transactionid' AND k.mode = 'ExclusiveLock'
  GROUP BY k.virtualtransaction
  HAVING bool_or(k.locktype = 'relation')
    AND (k.virtualtransaction = ANY ($4::text[]) OR NOT bool_or(k.locktype = 'transactionid'))`;
}

/** Of a granted lock: its holder may write to the table or a partition. */
export function writesTo(table: string, lock: string): string {
  const oid = `'${literal(table)}'::regclass`;
  return `${lock}.locktype = 'relation' AND ${lock}.mode = 'RowExclusiveLock'
    AND (${lock}.relation = ${oid} OR ${lock}.relation IN (SELECT relid FROM pg_partition_tree(${oid})))`;
}

/** @returns the text of an SQL literal, without its quotes */
export const literal = (text: string): string => text.replaceAll("'", "''");

/**
 * The marks of the outbox. Positions are sequence numbers; a later writer has a higher one.
 *
 * - newest: the lowest unfinished position, refreshed about once a second. It passes parked rows, which are looked up
 *   below it.
 * - stable: nothing can appear below it, as every transaction that ran when it was read has ended.
 * - conditional: stable too, while the snapshot of a statement shows none of its `running` transactions ended.
 *
 * A row below the newest mark whose transaction commits late becomes a candidate at the next refresh. As an earlier row
 * of its key it must count at once: hence the other two marks. See `docs/low-water-mark.md`.
 *
 * A writer takes its position before its transaction number, with triggers and waits for other writers in between: a
 * mark counts only after the writers without a number that its read saw have ended.
 */
export class PostgresLowWater implements LowWater {
  readonly #pool: Pick<PostgresPool, "run" | "lostConnections">;
  readonly #statement: Statement;
  readonly #clock: Clock;
  #marks = NO_MARKS;
  #readAt = Number.NEGATIVE_INFINITY;
  /** When a mark is read without a bound: this finds what appeared below, as a sequence was set back or by hand. */
  #fullReadDueAt = 0;
  #lostConnections = 0;

  /** @param statement made with {@link markRead} */
  constructor(pool: Pick<PostgresPool, "run" | "lostConnections">, statement: Statement, clock: Clock) {
    this.#pool = pool;
    this.#statement = statement;
    this.#clock = clock;
  }

  get newest(): string {
    return this.#marks.newest;
  }

  notePosition(position: string): void {
    const after = String(BigInt(position) + 1n);
    this.#marks = { ...this.#marks, afterHighest: higher(after, this.#marks.afterHighest ?? after) };
  }

  marks(): readonly string[] {
    this.#forgetAfterLoss();
    const { newest, stable, conditional } = this.#marks;
    return [stable, conditional.mark, newest, ...conditional.running.map(String)];
  }

  async refreshIfDue(intervalMs = READ_INTERVAL_MS): Promise<void> {
    this.#forgetAfterLoss();
    const startedAt = this.#clock.monotonic();
    if (startedAt < this.#readAt + intervalMs) return;
    const isFull = startedAt >= this.#fullReadDueAt;
    const { afterHighest, unstable, conditionalRead, nextConditional } = this.#marks;
    const [row = {}] = await this.#pool.run(this.#statement, {
      lowWater: isFull ? NO_BOUND : this.marks(),
      afterHighest,
      lastRead: (nextConditional ?? conditionalRead)?.mark ?? null,
      awaited: [...new Set([unstable, nextConditional].flatMap((read) => [...(read?.writers ?? [])]))],
    });
    if (isFull) this.#fullReadDueAt = nextFullRead(startedAt, this.#clock.monotonic());
    // What was read before a loss is invalid for the database behind it.
    if (!this.#forgetAfterLoss()) this.#accept(row);
  }

  #accept(row: Row): void {
    const end = BigInt(String(row.end));
    // A pooler may hide that the database went back to an earlier state.
    if (end <= this.#marks.newestTransaction) this.#forget();
    const mark = typeof row.mark === "string" ? row.mark : undefined;
    const running = (row.running as readonly string[]).map(BigInt);
    let { newest, stable, unstable, conditional, conditionalRead, nextConditional, newestTransaction } = this.#marks;
    newest = mark ?? newest;
    // All of them lie before `end`, since that is behind the transaction `next`.
    const stillRunning = ({ next }: ReadMark) => running.filter((transaction) => transaction < next);
    if (unstable?.writers.size === 0 && stillRunning(unstable).length === 0) {
      // Whatever they left below it is in `mark` by now; later writers have higher positions.
      stable = unstable.mark;
      unstable = undefined;
    }
    if (mark !== undefined) stable = lower(mark, stable);
    if (nextConditional?.writers.size === 0) {
      conditionalRead = nextConditional;
      nextConditional = undefined;
    }
    if (conditionalRead !== undefined) {
      // Transactions that ended between the two reads are in the second one.
      conditional = { mark: lower(conditionalRead.mark, newest), running: stillRunning(conditionalRead) };
    }
    // Writers that ended meanwhile count at the next read: this snapshot may be older than their end.
    const stillWriting = new Set(row.writers as readonly string[] | null);
    for (const read of [unstable, nextConditional]) {
      for (const writer of read?.writers ?? []) if (!stillWriting.has(writer)) read?.writers.delete(writer);
    }
    if (typeof row.later === "string") {
      const read = { mark: newest, next: BigInt(row.later), writers: stillWriting };
      newestTransaction = read.next;
      // A read that waits for writers is kept while others come: else none would ever count under constant writes.
      if (nextConditional === undefined || read.writers.size === 0) nextConditional = read;
      unstable ??= read;
    }
    const { afterHighest } = this.#marks;
    this.#marks = {
      ...{ newest, stable, unstable, conditional, conditionalRead, nextConditional, newestTransaction, afterHighest },
    };
    this.#readAt = this.#clock.monotonic();
  }

  /** A failed-over or restored database has new connections. @returns whether one was lost since the last time */
  #forgetAfterLoss(): boolean {
    const { lostConnections } = this.#pool;
    if (lostConnections === this.#lostConnections) return false;
    this.#lostConnections = lostConnections;
    this.#forget();
    return true;
  }

  #forget(): void {
    this.#marks = NO_MARKS;
    this.#readAt = Number.NEGATIVE_INFINITY;
  }
}

/** A mark, a transaction that began after its read, and the writers without a number since then. */
interface ReadMark {
  readonly mark: string;
  readonly next: bigint;
  readonly writers: Set<string>;
}

interface Marks {
  readonly newest: string;
  readonly stable: string;
  readonly unstable: ReadMark | undefined;
  readonly conditional: { readonly mark: string; readonly running: readonly bigint[] };
  /** The read behind the conditional mark; undefined before the first. */
  readonly conditionalRead: ReadMark | undefined;
  readonly nextConditional: ReadMark | undefined;
  readonly newestTransaction: bigint;
  /** The position after the highest one seen: the mark if nothing is unfinished. Null before the first. */
  readonly afterHighest: string | null;
}

const NO_MARKS: Marks = {
  newest: "0",
  stable: "0",
  unstable: undefined,
  conditional: { mark: "0", running: [] },
  conditionalRead: undefined,
  nextConditional: undefined,
  newestTransaction: 0n,
  afterHighest: null,
};
const NO_BOUND = ["0", "0", "0"];
const READ_INTERVAL_MS = 1000;
const FULL_READ_COST_FACTOR = 50;
const LONGEST_FULL_READ_WAIT_MS = 60_000;

/**
 * The next unbounded read, in monotonic ms: reads take a fiftieth of the time, one a minute at least. A read of over a
 * second mostly waited for a lock, which costs the database nothing.
 */
export function nextFullRead(startedAt: number, endedAt: number): number {
  return endedAt + Math.min(FULL_READ_COST_FACTOR * (endedAt - startedAt), LONGEST_FULL_READ_WAIT_MS);
}
