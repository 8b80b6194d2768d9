import { type DestinationStatements, MOST_DOUBLINGS, SLOW_FOR_MS } from "../sql/destinations.ts";
import type { TableNames } from "../sql/names.ts";
import { msOf } from "./fragments.ts";
import { arraysOf, byIndex, type Statement } from "./statement.ts";

/** They read and write a few rows: a longer wait is for a session that holds a row without need. */
const short = (declaration: string) => byIndex(declaration, { timeoutMs: 10_000 });

/**
 * Every statement about destinations.
 *
 * Each statement reads the clock after it has the row's lock. `now()` is the beginning of the transaction, and an
 * `UPDATE` computes its values before it waits for a lock. `ON CONFLICT DO UPDATE` locks the row first, and then
 * computes its condition and values from the row as it is. So changes of an existing row are inserts, too.
 */
export function destinationStatements(names: TableNames): DestinationStatements<Statement> {
  const table = names.destinationTable;
  const c = names.destination;
  const clock = "(SELECT clock_timestamp() AS now OFFSET 0) AS t";
  const milliseconds = (count: string): string => `${count}::bigint * interval '1 millisecond'`;
  const microseconds = (count: string): string => `${count}::bigint * interval '1 microsecond'`;
  /** For a row that exists; else it does nothing. */
  const changeExisting = (assignments: string, condition: string): string => `
INSERT INTO ${table} AS d (${c.name}) SELECT e.${c.name} FROM ${table} e WHERE e.${c.name} = $1
ON CONFLICT (${c.name}) DO UPDATE SET ${assignments}
WHERE ${condition}
RETURNING 1 AS changed`;

  const isPaused = (now: string): string =>
    `(d.${c.pausedAt} IS NOT NULL AND (d.${c.pausedUntil} IS NULL OR d.${c.pausedUntil} > ${now}))`;
  const isProbed = `d.${c.breakerState} = 'half-open' AND d.${c.probeToken} = $2::uuid`;
  /** A time is over when it has passed, or when it began later than now: the clock was set back. */
  const isOver = (from: string, until: string, now: string): string =>
    `(d.${until} IS NULL OR d.${until} <= ${now} OR d.${from} > ${now})`;
  const remaining = (from: string, until: string): string =>
    `CASE WHEN ${isOver(from, until, "t.now")} THEN 0 ELSE date_part('epoch', d.${until} - t.now) * 1000 END`;
  const noProbe = `${c.probeToken} = NULL, ${c.probeAt} = NULL, ${c.probeUntil} = NULL`;

  const second = "date_trunc('second', t.now)";
  const justBefore = `${second} - interval '1 second'`;
  /** The first deliveries of a destination find the bucket full. */
  const fullBucket = `t.now - ${microseconds("$4")}`;

  /** $4 the first opening, $5 the longest (ms), $6 the shortest. @param openings an expression */
  const openUntil = (openings: string): string =>
    `t.now + ${milliseconds(`greatest(least($4::bigint * (1::bigint << least(${openings} - 1, ${MOST_DOUBLINGS})), $5::bigint), $6::bigint)`)}`;
  const wasStable = `(d.${c.closedAt} IS NULL OR d.${c.closedAt} > t.now OR d.${c.closedAt} < t.now - ${milliseconds("$7")})`;
  const openings = `CASE WHEN d.${c.breakerState} = 'closed' AND ${wasStable} THEN 1 ELSE least(d.${c.openings}, 1000000) + 1 END`;

  return {
    states: short("destinations.states")`
SELECT d.${c.name} AS name, CASE WHEN ${isPaused("t.now")} THEN ${msOf(`d.${c.pausedAt}`)} END AS paused_at,
  ${msOf(`d.${c.pausedUntil}`)} AS paused_until, d.${c.pausedBy} AS paused_by, d.${c.pauseReason} AS pause_reason,
  d.${c.breakerState} AS breaker_state, d.${c.openings} AS openings, d.${c.breakerReason} AS breaker_reason,
  CASE d.${c.breakerState} WHEN 'open' THEN ${remaining(c.openedAt, c.openUntil)}
    WHEN 'half-open' THEN ${remaining(c.probeAt, c.probeUntil)} END AS remaining_ms,
  ${msOf(`d.${c.lastSuccessAt}`)} AS last_success_at, ${msOf(`d.${c.lastFailureAt}`)} AS last_failure_at, d.${c.lastError} AS last_error,
  CASE WHEN d.${c.slowAt} > t.now - ${milliseconds(String(SLOW_FOR_MS))} AND d.${c.slowAt} <= t.now THEN 1 ELSE 0 END AS is_slow,
  CASE d.${c.rateSecond} WHEN ${second} THEN d.${c.rateTakenBefore} WHEN ${justBefore} THEN d.${c.rateTaken} ELSE 0 END AS taken_per_second
FROM ${table} d, ${clock} ORDER BY d.${c.name}`,

    pause: short("destinations.pause(name, by, reason, forMs)")`
INSERT INTO ${table} (${c.name}, ${c.pausedAt}, ${c.pausedUntil}, ${c.pausedBy}, ${c.pauseReason})
SELECT $1, t.now, t.now + ${milliseconds("$4")}, $2, $3 FROM ${clock}
ON CONFLICT (${c.name}) DO UPDATE
SET ${c.pausedAt} = clock_timestamp(), ${c.pausedUntil} = clock_timestamp() + ${milliseconds("$4")},
  ${c.pausedBy} = EXCLUDED.${c.pausedBy}, ${c.pauseReason} = EXCLUDED.${c.pauseReason}`,

    resume: short("destinations.resume(name)")(
      changeExisting(
        `${c.pausedAt} = NULL, ${c.pausedUntil} = NULL, ${c.pausedBy} = NULL, ${c.pauseReason} = NULL`,
        isPaused("clock_timestamp()"),
      ),
    ),

    /** `savedUs`: most unused time; `mostAheadUs`: furthest ahead of the clock. */
    takeFromRate: short("destinations.take from rate(name, tokens, costUs, savedUs, mostAheadUs)")`
INSERT INTO ${table} AS d (${c.name}, ${c.rateNextAt}, ${c.rateSecond}, ${c.rateTaken})
SELECT $1, ${fullBucket} + ${microseconds("$3")}, ${second}, $2::bigint FROM ${clock}
ON CONFLICT (${c.name}) DO UPDATE
SET (${c.rateNextAt}, ${c.rateSecond}, ${c.rateTaken}, ${c.rateTakenBefore}) = (
  SELECT CASE WHEN d.${c.rateNextAt} > t.now + ${microseconds("$5")} THEN t.now ELSE greatest(d.${c.rateNextAt}, ${fullBucket}) END
      + ${microseconds("$3")},
    ${second}, CASE WHEN d.${c.rateSecond} = ${second} THEN d.${c.rateTaken} ELSE 0 END + $2::bigint,
    CASE d.${c.rateSecond} WHEN ${second} THEN d.${c.rateTakenBefore} WHEN ${justBefore} THEN d.${c.rateTaken} ELSE 0 END
  FROM ${clock})
RETURNING greatest(date_part('epoch', d.${c.rateNextAt} - clock_timestamp()) * 1000, 0) AS wait_ms`,

    open: short("destinations.open(name, probe, reason, firstMs, mostMs, atLeastMs, stableAfterMs)")`
INSERT INTO ${table} AS d (${c.name}, ${c.breakerState}, ${c.openings}, ${c.breakerReason}, ${c.openedAt}, ${c.openUntil})
SELECT $1, 'open', 1, $3, t.now, ${openUntil("1")} FROM ${clock}
WHERE $2::uuid IS NULL OR EXISTS (SELECT FROM ${table} e WHERE e.${c.name} = $1)
ON CONFLICT (${c.name}) DO UPDATE
SET ${c.breakerState} = 'open', ${c.breakerReason} = $3, ${noProbe}, (${c.openings}, ${c.openedAt}, ${c.openUntil}) = (
  SELECT n.openings, t.now, ${openUntil("n.openings")} FROM ${clock}, LATERAL (SELECT ${openings} AS openings) AS n)
WHERE ($2::uuid IS NULL AND d.${c.breakerState} = 'closed') OR (${isProbed})
RETURNING date_part('epoch', d.${c.openUntil} - d.${c.openedAt}) * 1000 AS open_ms`,

    takeProbe: short("destinations.take probe(name, probe, leaseMs)")(
      changeExisting(
        `${c.breakerState} = 'half-open', ${c.probeToken} = $2::uuid, ${c.probeAt} = clock_timestamp(),
  ${c.probeUntil} = clock_timestamp() + ${milliseconds("$3")}`,
        `(d.${c.breakerState} = 'open' AND ${isOver(c.openedAt, c.openUntil, "clock_timestamp()")})
  OR (d.${c.breakerState} = 'half-open' AND ${isOver(c.probeAt, c.probeUntil, "clock_timestamp()")})`,
      ),
    ),

    renewProbe: short("destinations.renew probe(name, probe, leaseMs)")(
      changeExisting(
        `${c.probeAt} = clock_timestamp(), ${c.probeUntil} = clock_timestamp() + ${milliseconds("$3")}`,
        isProbed,
      ),
    ),

    /** How often it has opened is kept: it may open again soon. */
    close: short("destinations.close(name, probe)")(
      changeExisting(
        `${c.breakerState} = 'closed', ${c.closedAt} = clock_timestamp(), ${c.openedAt} = NULL, ${c.openUntil} = NULL,
  ${c.breakerReason} = NULL, ${noProbe}`,
        isProbed,
      ),
    ),

    returnProbe: short("destinations.return probe(name, probe, waitMs)")(
      changeExisting(
        `${c.breakerState} = 'open', ${noProbe}, (${c.openedAt}, ${c.openUntil}) = (
  SELECT t.now, t.now + ${milliseconds("$3")} FROM ${clock})`,
        isProbed,
      ),
    ),

    report: short(`destinations.report(${Object.keys(REPORT).join(", ")})`)`
INSERT INTO ${table} AS d (${c.name}, ${c.lastSuccessAt}, ${c.lastFailureAt}, ${c.lastError}, ${c.slowAt})
SELECT r.name, t.now - ${milliseconds("r.succeeded")}, t.now - ${milliseconds("r.failed")}, r.error, CASE WHEN r.slow THEN t.now END
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::boolean[]) AS r(name, succeeded, failed, error, slow), ${clock}
ORDER BY r.name COLLATE "C"
ON CONFLICT (${c.name}) DO UPDATE
SET ${c.lastSuccessAt} = ${latest(c.lastSuccessAt)}, ${c.lastFailureAt} = ${latest(c.lastFailureAt)}, ${c.slowAt} = ${latest(c.slowAt)},
  ${c.lastError} = CASE WHEN EXCLUDED.${c.lastFailureAt} IS NOT NULL AND ${latest(c.lastFailureAt)} = EXCLUDED.${c.lastFailureAt}
    THEN EXCLUDED.${c.lastError} ELSE d.${c.lastError} END`,

    dialect: { reportValues: (reports) => arraysOf(reports, REPORT) },
  };
}

/** The parameters of `report`, in order: arrays, each of a property. */
const REPORT = {
  names: "name",
  succeeded: "succeededAgoMs",
  failed: "failedAgoMs",
  errors: "error",
  slow: "isSlow",
} as const;

/** The later of the stored and the reported time. One after now comes from a clock that was set back. */
function latest(column: string): string {
  const past = `CASE WHEN d.${column} <= clock_timestamp() THEN d.${column} END`;
  return `coalesce(greatest(${past}, EXCLUDED.${column}), d.${column})`;
}
