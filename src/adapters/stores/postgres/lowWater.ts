import type { Clock } from "../../../time/clock.ts";
import { type LowWater, LowWaterMarks, lower } from "../sql/lowWaterMarks.ts";
import type { Row, Values } from "../sql/rows.ts";
import { IS_CITUS } from "./fragments.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** Low-water marks in SQL: see `docs/low-water-mark.md`. */

/** Elements of the parameter `lowWater` (bigint[], from 1); from `running` on they are transactions. */
const ELEMENT = {
  stable: 1,
  conditional: 2,
  mark: 3,
  /** The transactions on which the conditional mark depends. */
  running: 4,
} as const;

const XMAX = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
/** @param lowWater the text of the parameter `lowWater`, here and below */
const element = (lowWater: string, name: keyof typeof ELEMENT): string => `(${lowWater}::bigint[])[${ELEMENT[name]}]`;
export const newestMark = (lowWater: string): string => element(lowWater, "mark");

const positionOf = (time: string): string => `(extract(epoch FROM ${time}) * 1000000)::bigint`;

/**
 * An expression (bigint): the position below which nothing is unfinished. The conditional mark where this snapshot sees
 * none of its transactions ended, else the stable mark.
 */
export function markBound(lowWater: string): string {
  return `CASE
    WHEN (${lowWater}::bigint[])[${ELEMENT.running}:] <@ array(SELECT t.id::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS t(id))
      THEN greatest(${element(lowWater, "stable")}, ${element(lowWater, "conditional")})
    ELSE ${element(lowWater, "stable")} END`;
}

/**
 * A statement that reads a mark and its snapshot. Its parameters are `lowWater`, `afterHighest` (the mark where nothing
 * is unfinished), `lastRead` (the mark read last) and `awaited` (writers that the marks wait for).
 *
 * A snapshot names the running transactions up to the newest one that had ended, and none that began later. So it
 * begins a transaction, whose number bounds them: but only for another mark than the last one, so that an idle process
 * writes nothing. A writer without a number is known by its lock on the table, which is read before that.
 *
 * @param table already quoted
 * @param lowest a scalar (bigint) over the parameters: the lowest unfinished position, null for none
 * @param atMost an expression (bigint) that a mark never exceeds
 */
export function markRead(
  table: string,
  { lowest, atMost }: { readonly lowest: string; readonly atMost?: string },
): string {
  const mark = `coalesce(${lowest}, $2::bigint)`;
  return `
SELECT l.mark, array(SELECT pg_snapshot_xip(pg_current_snapshot())::text) AS running, ${XMAX}::text AS "end", w.writers,
  CASE WHEN l.is_new AND w.writers IS NOT NULL THEN pg_current_xact_id()::text END AS later,
  ${IS_CITUS} AS is_citus
FROM (SELECT m.mark, m.mark IS NOT NULL AND m.mark IS DISTINCT FROM $3::bigint AS is_new FROM (SELECT ${
    atMost === undefined
      ? mark
      : `(SELECT CASE WHEN n.mark IS NOT NULL THEN least(n.mark, ${atMost}) END FROM (SELECT ${mark} AS mark OFFSET 0) n)`
  } AS mark OFFSET 0) m) l
CROSS JOIN LATERAL (SELECT CASE WHEN l.is_new OR cardinality($4::text[]) > 0 THEN array(${writers(table)}) END AS writers OFFSET 0) w`;
}

/**
 * A query for who writes to a table or its partitions without a transaction number yet, or is awaited ($4). A writer
 * takes this lock before anything else, even a position, and keeps it to its end.
 *
 * It names no table of the catalogue, which Citus would read on another server: the locks of this statement tell the
 * database. There the table is another one, whose writers {@link markCoordination} finds.
 */
function writers(table: string): string {
  const oid = `'${literal(table)}'::regclass`;
  return `
  WITH k AS MATERIALIZED (SELECT * FROM pg_lock_status() WHERE granted),
  own AS MATERIALIZED (SELECT k.database FROM k WHERE k.pid = pg_backend_pid() AND k.locktype = 'relation' AND k.database <> 0)
  SELECT k.virtualtransaction FROM k
  WHERE k.locktype = 'relation' AND k.mode = 'RowExclusiveLock' AND k.database IN (SELECT database FROM own)
      AND (k.relation = ${oid} OR k.relation IN (SELECT relid FROM pg_partition_tree(${oid})))
    OR k.locktype = 'transactionid' AND k.mode = 'ExclusiveLock'
  GROUP BY k.virtualtransaction
  HAVING bool_or(k.locktype = 'relation')
    AND (k.virtualtransaction = ANY ($4::text[]) OR NOT bool_or(k.locktype = 'transactionid'))`;
}

/**
 * On Citus, for the node that the service is connected to, before a mark is read on the node that holds the table: up to
 * where positions have been given (`bound`), and who may still write such a position (`writers`). A writer locks the
 * table here, takes its position here, and only then becomes known to the other node; with its end there this lock ends.
 *
 * @param table already quoted
 * @param position its column of positions, where a sequence gives them; else they are times
 */
export function markCoordination(table: string, position?: string): string {
  const bound =
    position === undefined
      ? `SELECT ${positionOf("clock_timestamp()")} AS bound OFFSET 0`
      : `SELECT CASE WHEN has_sequence_privilege(q.name, 'SELECT, USAGE') THEN pg_sequence_last_value(q.name::regclass) END AS bound
        FROM pg_get_serial_sequence('${literal(table)}', '${literal(unquoted(position))}') AS q(name) OFFSET 0`;
  return `
SELECT b.bound::text AS bound, w.writers FROM (${bound}) b
CROSS JOIN LATERAL (SELECT CASE WHEN b.bound IS NOT NULL THEN array(
  SELECT DISTINCT '${COORDINATOR}' || k.virtualtransaction FROM pg_lock_status() k
  WHERE k.granted AND k.locktype = 'relation' AND k.mode = 'RowExclusiveLock' AND k.relation = '${literal(table)}'::regclass
    AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())) END AS writers OFFSET 0) w`;
}

/** Before the names of writers, which each node numbers itself. */
const COORDINATOR = "coordinator ";

/** @returns the text of an SQL literal, without its quotes */
export const literal = (text: string): string => text.replaceAll("'", "''");
const unquoted = (identifier: string): string => identifier.replace(/^"(.*)"$/, "$1");

/** What reads the marks of a table. */
export interface MarkStatements {
  /** Made with {@link markRead}. */
  readonly mark: Statement;
  /** Made with {@link markCoordination}. */
  readonly markCoordination: Statement;
}

export class PostgresLowWater implements LowWater {
  readonly marks: LowWaterMarks;
  readonly #pool: Pick<PostgresPool, "run" | "lostConnections">;
  readonly #statements: MarkStatements;
  readonly #clock: Clock;
  #lostConnections = 0;
  /** The table is on another node of Citus; false until the first read. */
  #isCitus = false;

  constructor(pool: Pick<PostgresPool, "run" | "lostConnections">, statements: MarkStatements, clock: Clock) {
    this.#pool = pool;
    this.#statements = statements;
    this.#clock = clock;
    this.marks = new LowWaterMarks(clock);
  }

  bound(from?: string): readonly string[] {
    this.#forgetAfterLoss();
    const { stable, conditional } = this.marks;
    return this.#parameter(stable, conditional.mark, conditional.running, from);
  }

  /** For a statement that reads below the marks, too. */
  noBound(): readonly string[] {
    return this.#parameter("0", "0", []);
  }

  /**
   * The same for a statement that Citus runs in parts: each has a snapshot of its own, so that a transaction of the
   * conditional mark may end between two of them.
   */
  boundOfParts(): readonly string[] {
    const bound = this.bound();
    return this.#isCitus ? this.#parameter(this.marks.stable, "0", []) : bound;
  }

  /** @param intervalMs since the last time; about a second by default @param more further values, always the same */
  async refreshIfDue(intervalMs?: number, more: Values = {}): Promise<void> {
    this.#forgetAfterLoss();
    if (!this.marks.isDue(intervalMs)) return;
    const isFull = this.marks.fullReadIsDue();
    const startedAt = this.#clock.monotonic();
    const { afterHighest = null, lastRead = null, awaited } = this.marks;
    const lowWater = isFull ? this.noBound() : this.bound();
    const isCitus = this.#isCitus;
    const [coordination] = isCitus ? await this.#pool.run(this.#statements.markCoordination) : [];
    const [row = {}] = await this.#pool.run(this.#statements.mark, {
      ...more,
      lowWater,
      afterHighest,
      lastRead,
      awaited,
    });
    this.#isCitus = row.is_citus === true;
    // What was read without the writers of the node that gives the positions may be too high.
    if (this.#isCitus && !isCitus) return await this.refreshIfDue(intervalMs, more);
    if (isFull) this.marks.fullReadTook(this.#clock.monotonic() - startedAt);
    // What was read before a loss is invalid for the database behind it.
    if (this.#forgetAfterLoss()) return;
    const { running, end, later } = row;
    this.marks.setNewest(markOf(row, coordination), {
      running: (running as readonly string[]).map(BigInt),
      end: BigInt(String(end)),
      later: typeof later === "string" ? BigInt(later) : undefined,
      writers: writersOf(row, coordination),
    });
  }

  #parameter(stable: string, conditional: string, running: readonly bigint[], from?: string): readonly string[] {
    return [stable, conditional, from ?? this.marks.newest, ...running.map(String)];
  }

  /** A failed-over or restored database has new connections. @returns whether one was lost since the last time */
  #forgetAfterLoss(): boolean {
    const { lostConnections } = this.#pool;
    if (lostConnections === this.#lostConnections) return false;
    this.#lostConnections = lostConnections;
    this.marks.forget();
    return true;
  }
}

/** @param coordination of Citus: no mark passes the positions given before it, and none counts where they are unknown */
function markOf({ mark }: Row, coordination: Row | undefined): string | undefined {
  if (typeof mark !== "string") return undefined;
  if (coordination === undefined) return mark;
  return typeof coordination.bound === "string" ? lower(mark, String(BigInt(coordination.bound) + 1n)) : undefined;
}

function writersOf({ writers }: Row, coordination: Row | undefined): readonly string[] | undefined {
  const all = [writers, coordination?.writers].filter((each) => Array.isArray(each)) as string[][];
  return all.length === 0 ? undefined : all.flat();
}
