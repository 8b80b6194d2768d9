import type { StoreError } from "../../../model/errors.ts";
import type { Clock } from "../../../time/clock.ts";
import { HeldTokens } from "../sql/heldTokens.ts";
import { type LowWater, LowWaterMarks, lower } from "../sql/lowWaterMarks.ts";
import type { TableNames } from "../sql/names.ts";
import type { Row, Values } from "../sql/rows.ts";
import { IS_CITUS } from "./fragments.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** Low-water marks in SQL: see `docs/low-water-mark.md`. */

/** Elements of the parameter `lowWater` (bigint[], from 1); from `running` on they are transactions. */
const ELEMENT = {
  stable: 1,
  conditional: 2,
  /** A transaction that has ended. */
  ended: 3,
  server: 4,
  /** The sequence behind the positions, 0 when unknown. */
  sequence: 5,
  /** A position that it has given. */
  given: 6,
  mark: 7,
  /** For positions that are times: the least that the server's clock shows by now, as a position; 0 when unknown. */
  clock: 8,
  /** The transactions on which the conditional mark depends. */
  running: 9,
} as const;

const XMAX = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
/** An expression (bigint): when this server was started. After a restart, a restore or a failover it is another time. */
export const SERVER = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/** @param lowWater the text of the parameter `lowWater`, here and below */
const element = (lowWater: string, name: keyof typeof ELEMENT): string => `(${lowWater}::bigint[])[${ELEMENT[name]}]`;
export const newestMark = (lowWater: string): string => element(lowWater, "mark");

/**
 * An expression (boolean): this is the table of which the marks were read, and it has not gone back in time. A restored
 * backup, a clone and a promoted standby are other servers, or their transactions or their sequence are further back.
 */
export function isSameHistory(lowWater: string): string {
  const sequence = element(lowWater, "sequence");
  return `(${SERVER} = ${element(lowWater, "server")} AND ${XMAX} > ${element(lowWater, "ended")}
    AND (${sequence} = 0
      OR coalesce(pg_sequence_last_value(${sequence}::oid::regclass), 0) >= ${element(lowWater, "given")}))`;
}

/**
 * An expression (boolean), for positions that are times: the server's clock is where it must be by now, and was not set
 * while this statement waited for its locks, as far as it can tell. One that was set back gives positions below the
 * marks, even after it has reached them again.
 */
function isSameClock(lowWater: string): string {
  return `(${positionOf("now()")} >= ${element(lowWater, "clock")}
    AND clock_timestamp() BETWEEN now() AND now() + interval '${LONGEST_WAIT_MS} milliseconds')`;
}

const positionOf = (time: string): string => `(extract(epoch FROM ${time}) * 1000000)::bigint`;

/**
 * The CTE `history (is_same)`: see {@link isSameHistory}.
 *
 * @param positions `times` where a clock gives them
 * @param from a `FROM` of one row, which decides on which node of Citus it is asked
 */
export function history(lowWater: string, positions: "sequence" | "times" = "sequence", from = ""): string {
  const isSame = positions === "times" ? ` AND ${isSameClock(lowWater)}` : "";
  return `
history AS MATERIALIZED (SELECT ${isSameHistory(lowWater)}${isSame} AS is_same${from})`;
}

/**
 * An expression (bigint): the position below which nothing is unfinished. The conditional mark where this snapshot sees
 * none of its transactions ended, else the stable mark; 0 for another history. Follows {@link history}.
 */
export function markBound(lowWater: string): string {
  return `CASE
    WHEN NOT (SELECT is_same FROM history) THEN 0
    WHEN (${lowWater}::bigint[])[${ELEMENT.running}:] <@ array(SELECT t.id::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS t(id))
      THEN greatest(${element(lowWater, "stable")}, ${element(lowWater, "conditional")})
    ELSE ${element(lowWater, "stable")} END`;
}

/**
 * The rest of a statement that reads a mark and its snapshot, after {@link history}. Its parameters are `lowWater`,
 * `afterHighest` (the mark where nothing is unfinished), `lastRead` (the mark read last) and `awaited` (writers that
 * the marks wait for).
 *
 * A snapshot names the running transactions up to the newest one that had ended, and none that began later. So it
 * begins a transaction, whose number bounds them: but only for another mark than the last one, so that an idle process
 * writes nothing. A writer without a number is known by its lock on the table, which is read before that.
 *
 * @param table already quoted
 * @param position its column of positions, where a sequence gives them; else they are times
 * @param lowest a scalar (bigint) over the parameters: the lowest unfinished position, null for none
 * @param atMost an expression (bigint) that a mark never exceeds
 */
export function markRead(
  table: string,
  { position, lowest, atMost }: { readonly position?: string; readonly lowest: string; readonly atMost?: string },
): string {
  const mark = `coalesce(${lowest}, CASE WHEN (SELECT is_same FROM history) THEN $2::bigint END)`;
  const sequence = position === undefined ? "NULL" : `(SELECT ${sequenceOf(table, position)})`;
  return `
SELECT l.mark, array(SELECT pg_snapshot_xip(pg_current_snapshot())::text) AS running, ${XMAX}::text AS "end", w.writers,
  CASE WHEN l.is_new AND w.writers IS NOT NULL THEN pg_current_xact_id()::text END AS later,
  ${SERVER}::text AS server, ${sequence}::text AS sequence, (SELECT is_same FROM history) AS same_history,
  ${position === undefined ? positionOf("now()") : "NULL"}::text AS clock, ${IS_CITUS} AS is_citus
FROM (SELECT m.mark, m.mark IS NOT NULL AND m.mark IS DISTINCT FROM $3::bigint AS is_new FROM (SELECT ${
    atMost === undefined
      ? mark
      : `(SELECT CASE WHEN n.mark IS NOT NULL THEN least(n.mark, ${atMost}) END FROM (SELECT ${mark} AS mark OFFSET 0) n)`
  } AS mark OFFSET 0) m) l
CROSS JOIN LATERAL (SELECT CASE WHEN l.is_new OR cardinality($4::text[]) > 0 THEN array(${writers(table)}) END AS writers OFFSET 0) w`;
}

/**
 * A query for the sequence that gives the positions, NULL for none or one that may not be read. One that has given none
 * says nothing: a node of Citus has a sequence of its own, and another node gives the positions.
 */
const sequenceOf = (table: string, position: string): string => `CASE
    WHEN has_sequence_privilege(q.name, 'SELECT, USAGE') AND pg_sequence_last_value(q.name::regclass) IS NOT NULL THEN q.name::regclass::oid END
    FROM pg_get_serial_sequence('${literal(table)}', '${literal(unquoted(position))}') AS q(name)`;

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
      : `SELECT pg_sequence_last_value(s.sequence::regclass) AS bound FROM (SELECT ${sequenceOf(table, position)}) AS s(sequence) OFFSET 0`;
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

/** Longer than it takes to plan a statement on a busy machine, shorter than a mark lies behind the clock. */
const LONGEST_WAIT_MS = 1000;

/**
 * An expression (`bigint[]` as text) that identifies a snapshot: the transaction before which all writers of this
 * server have ended, and the time. Null while a transaction runs that began before an ended one: a snapshot would show
 * its end, but not that it rolls back a savepoint, which unlocks rows that a claim has skipped.
 */
export const SEEN = `(SELECT CASE WHEN pg_snapshot_xmin(s.now) = pg_snapshot_xmax(s.now)
  THEN ARRAY[${XMAX}, ${positionOf("now()")}]::text END FROM (SELECT pg_current_snapshot() AS now) s)`;

/**
 * An expression (boolean): rows of the outbox may be due, or keys free, that were not when a statement saw
 * {@link SEEN}.
 *
 * While no writing transaction has ended since, in any database of the server, every row is as it was, and no free one
 * is locked. Only time has passed: rows that were not due yet are among those with `scheduled_at <> created_at`, which
 * have an index. True where they are many. The index lacks rows without `created_at`: see {@link mayLackTimes}.
 *
 * @param names already quoted
 * @param seen the text of a parameter with a value of `SEEN`
 */
export function mayHaveChanged({ outboxTable: table, outbox: c }: TableNames, seen: string): string {
  const transaction = `(${seen}::bigint[])[1]`;
  const time = `(timestamptz 'epoch' + (${seen}::bigint[])[2] * interval '1 microsecond')`;
  return `
CASE WHEN ${XMAX} <> ${transaction} THEN true
  ELSE (SELECT count(*) > ${MOST_ROWS_READ} OR coalesce(bool_or(a.scheduled_at > ${time} AND a.scheduled_at <= now()), false)
    FROM (SELECT o.${c.scheduledAt} AS scheduled_at FROM ${table} o
      WHERE o.${c.state} IN ('pending', 'processing') AND o.${c.scheduledAt} <> o.${c.createdAt}
      ORDER BY o.${c.sequence} LIMIT ${MOST_ROWS_READ + 1}) a) END`;
}

/**
 * An expression (boolean): the table may hold rows without `created_at`. A statement of its own: on Citus one that reads
 * the catalogue and the table has several snapshots.
 */
export function mayLackTimes({ outboxTable: table, outbox: c }: TableNames): string {
  return `SELECT NOT a.attnotnull FROM pg_attribute a
  WHERE a.attrelid = '${literal(table)}'::regclass AND a.attname = '${literal(unquoted(c.createdAt))}'`;
}

/** Of rows that were retried, replayed or scheduled ahead: takes a millisecond. */
const MOST_ROWS_READ = 1000;

/** What reads the marks of a table. */
export interface MarkStatements {
  /** Made with {@link markRead}. */
  readonly mark: Statement;
  /** Made with {@link markCoordination}. */
  readonly markCoordination: Statement;
}

export class PostgresLowWater implements LowWater {
  readonly marks: LowWaterMarks;
  readonly held = new HeldTokens();
  readonly #pool: Pick<PostgresPool, "run" | "lostConnections">;
  readonly #statements: MarkStatements;
  readonly #clock: Clock;
  #lostConnections = 0;
  /** From the last read: when the server started, and the sequence of the positions. */
  #server = "0";
  #sequence = "0";
  /** Least advance of the server's clock over this process' monotonic one, in ms: see {@link clock}. */
  #clockAhead: number | undefined;
  #clockReadAt = 0;
  /** The table is on another node of Citus. */
  #isCitus = false;

  constructor(pool: Pick<PostgresPool, "run" | "lostConnections">, statements: MarkStatements, clock: Clock) {
    this.#pool = pool;
    this.#statements = statements;
    this.#clock = clock;
    this.marks = new LowWaterMarks(clock);
    this.marks.onForget(() => this.held.forget());
  }

  /** False until the first read. */
  get isCitus(): boolean {
    return this.#isCitus;
  }

  bound(from?: string): readonly string[] {
    this.#forgetAfterLoss();
    this.#forgetUnseenClock();
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

  /**
   * The least that the server's clock shows by now, as a position; 0 when unknown. It may be off by less than two
   * seconds: a mark is that far below the clock of its read.
   */
  clock(): string {
    if (this.#clockAhead === undefined) return "0";
    return String(Math.round((this.#clockAhead + this.#clock.monotonic() - CLOCK_TOLERANCE_MS) * 1000));
  }

  /** @param intervalMs since the last time; about a second by default @param more further values, always the same */
  async refreshIfDue(intervalMs?: number, more: Values = {}): Promise<void> {
    this.#forgetAfterLoss();
    this.#forgetUnseenClock();
    if (!this.marks.isDue(intervalMs)) return;
    const isFull = this.marks.fullReadIsDue();
    const startedAt = this.#clock.monotonic();
    const { afterHighest = null, lastRead = null, awaited } = this.marks;
    const lowWater = isFull ? this.noBound() : this.bound();
    const isCitus = this.#isCitus;
    let coordination: Row | undefined;
    let row: Row;
    try {
      if (isCitus) [coordination] = await this.#pool.run(this.#statements.markCoordination);
      [row = {}] = await this.#pool.run(this.#statements.mark, { ...more, lowWater, afterHighest, lastRead, awaited });
    } catch (error) {
      if (this.#sequence === "0" || (error as Partial<StoreError>).code === "unavailable") throw error;
      // The sequence may be gone, or no longer readable: read without it.
      this.#sequence = "0";
      return await this.refreshIfDue(intervalMs, more);
    }
    this.#isCitus = row.is_citus === true;
    // What was read without the writers of the node that gives the positions may be too high.
    if (this.#isCitus && !isCitus) return await this.refreshIfDue(intervalMs, more);
    if (isFull) this.marks.fullReadTook(this.#clock.monotonic() - startedAt);
    // What was read before a loss is invalid for the database behind it.
    if (this.#forgetAfterLoss()) return;
    if (row.same_history !== true) this.forget();
    const { running, end, later, server, sequence, clock } = row;
    if (typeof clock === "string") this.#seeClock(Number(clock) / 1000);
    this.#server = String(server);
    this.#sequence = typeof sequence === "string" ? sequence : "0";
    this.marks.setNewest(markOf(row, coordination), {
      running: (running as readonly string[]).map(BigInt),
      end: BigInt(String(end)),
      later: typeof later === "string" ? BigInt(later) : undefined,
      writers: writersOf(row, coordination),
    });
  }

  #parameter(stable: string, conditional: string, running: readonly bigint[], from?: string): readonly string[] {
    const { newestTransaction, afterHighest = "1", newest } = this.marks;
    const given = String(BigInt(afterHighest) - 1n);
    return [
      stable,
      conditional,
      String(newestTransaction),
      this.#server,
      this.#sequence,
      given,
      from ?? newest,
      this.clock(),
      ...running.map(String),
    ];
  }

  /** The server's clock has advanced at least as much as ours: keeps the tightest bound. @param ms since 1970 */
  #seeClock(ms: number): void {
    this.#clockReadAt = this.#clock.monotonic();
    this.#clockAhead = Math.max(ms - this.#clockReadAt, this.#clockAhead ?? Number.NEGATIVE_INFINITY);
  }

  /** A failed-over or restored database has new connections. @returns whether one was lost since the last time */
  #forgetAfterLoss(): boolean {
    const { lostConnections } = this.#pool;
    if (lostConnections === this.#lostConnections) return false;
    this.#lostConnections = lostConnections;
    this.forget();
    return true;
  }

  /** A clock that was not read for long may have been set back and forth. */
  #forgetUnseenClock(): void {
    if (this.#clockAhead === undefined) return;
    if (this.#clock.monotonic() - this.#clockReadAt > LONGEST_UNSEEN_CLOCK_MS) this.forget();
  }

  /** Discards the marks: a statement has found another history, or a clock that was set back. */
  forget(): void {
    this.#clockAhead = undefined;
    this.marks.forget();
  }
}

/** For the different speeds of two machines' clocks. */
const CLOCK_TOLERANCE_MS = 250;
/** An idle process reads its mark every five seconds. */
const LONGEST_UNSEEN_CLOCK_MS = 10_000;

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
