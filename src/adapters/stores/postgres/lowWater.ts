import type { Clock } from "../../../ports/runtime.ts";
import type { Marks } from "../sql/marks.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/**
 * An expression (bigint): the position below which nothing is unfinished. The guarded mark where this snapshot sees none of its transactions ended, else
 * the settled mark.
 *
 * @param first the number of the first of three parameters, as {@link LowWater.bound} gives them: settled mark, guarded mark, its transactions
 */
export function markBound(first: number): string {
  return `CASE WHEN EXISTS (SELECT FROM unnest($${first + 2}::xid8[]) AS t(id) WHERE pg_visible_in_snapshot(t.id, pg_current_snapshot()))
    THEN $${first}::bigint ELSE greatest($${first}::bigint, $${first + 1}::bigint) END`;
}

/**
 * A statement's end that tells a mark and its snapshot.
 *
 * A snapshot names the transactions that ran up to the newest one that had ended; what had begun behind that one it does not tell. So a transaction is
 * begun, which shows how many there can be: but only for another mark than the last one, so that an idle process writes nothing.
 *
 * @param mark a scalar (bigint), null for none
 * @param last the parameter that holds the mark of the last read
 */
export function markRead(mark: string, last: number): string {
  return `
SELECT l.mark, array(SELECT pg_snapshot_xip(pg_current_snapshot())::text) AS running, pg_snapshot_xmax(pg_current_snapshot())::text AS "end",
  CASE WHEN l.mark IS NOT NULL AND l.mark IS DISTINCT FROM $${last}::bigint THEN pg_current_xact_id()::text END AS later
FROM (SELECT ${mark} AS mark OFFSET 0) l`;
}

/** Keeps the low-water marks of a table. */
export class LowWater {
  readonly #pool: Pick<PostgresPool, "run">;
  readonly #statement: Statement;
  readonly #clock: Clock;
  readonly #marks: Marks;

  /** @param statement ends with {@link markRead}; $1 to $3 as in {@link bound}, $4 the mark where nothing is unfinished, $5 the mark of the last read */
  constructor(pool: Pick<PostgresPool, "run">, statement: Statement, clock: Clock, marks: Marks) {
    this.#pool = pool;
    this.#statement = statement;
    this.#clock = clock;
    this.#marks = marks;
  }

  /** Three parameters of a statement: below what they say nothing is unfinished. */
  bound(): readonly unknown[] {
    const { settledMark, guardedMark } = this.#marks;
    return [settledMark, guardedMark.mark, guardedMark.running.map(String)];
  }

  /**
   * @param intervalMs since the last time; by default about a second
   * @throws StoreError
   */
  async refreshIfDue(intervalMs?: number): Promise<void> {
    if (!this.#marks.markIsDue(intervalMs)) return;
    const isFull = this.#marks.fullMarkIsDue();
    const startedAt = this.#clock.monotonic();
    const { behindMet = null, lastRead = null } = this.#marks;
    const values = [...(isFull ? NO_BOUND : this.bound()), behindMet, lastRead];
    const [row = {}] = await this.#pool.run(this.#statement, values);
    if (isFull) this.#marks.fullMarkTook(this.#clock.monotonic() - startedAt);
    const { mark, running, end, later } = row;
    this.#marks.setMark(typeof mark === "string" ? mark : undefined, {
      running: (running as readonly string[]).map(BigInt),
      end: BigInt(String(end)),
      later: typeof later === "string" ? BigInt(later) : undefined,
    });
  }
}

const NO_BOUND: readonly unknown[] = ["0", "0", []];
