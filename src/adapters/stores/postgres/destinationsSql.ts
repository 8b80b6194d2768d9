import { type DestinationStatements, MOST_DOUBLINGS, SLOW_FOR_MS } from "../sql/destinations.ts";
import type { TableNames } from "../sql/names.ts";
import { clockBehind, msOf } from "./fragments.ts";
import { arraysOf, byIndex, type Statement } from "./statement.ts";

/** They read and write a few rows: a longer wait is for a session that holds a row without need. */
const short = (declaration: string, takesTurns = false) => byIndex(declaration, { timeoutMs: 10_000, takesTurns });

/**
 * A change locks the row first, then reads the clock, then computes from the locked row: `now()` is the beginning of
 * the transaction, and an `UPDATE` computes its values before it waits for a lock. It changes only rows that exist;
 * callers that need a row make it with `makeRows`.
 */
export function destinationStatements(names: TableNames): DestinationStatements<Statement> {
  const table = names.destinationTable;
  const c = names.destination;
  const milliseconds = (count: string): string => `${count}::bigint * interval '1 millisecond'`;
  const microseconds = (count: string): string => `${count}::bigint * interval '1 microsecond'`;
  /**
   * The parts of a `WITH` that change locked rows.
   *
   * @param which a condition on the rows `e`
   * @param values by column: expressions over the locked row `d` and the time `t.now`
   * @param condition over the same
   * @param returned of the changed rows `u`
   */
  const lockAndChange = (
    which: string,
    values: Readonly<Record<string, string>>,
    condition = "true",
    from = "",
    returned = "1",
  ): string => `
WITH d AS MATERIALIZED (SELECT e.* FROM ${table} e WHERE ${which} FOR NO KEY UPDATE OF e),
t AS MATERIALIZED (${clockBehind("d")}),
n AS MATERIALIZED (
  SELECT d.${c.name} AS name_of, ${Object.entries(values)
    .map(([column, value]) => `${value} AS ${column}`)
    .join(", ")}
  FROM d CROSS JOIN t${from} WHERE ${condition}
),
changed AS (
  UPDATE ${table} u SET ${Object.keys(values)
    .map((column) => `${column} = n.${column}`)
    .join(", ")}
  FROM n WHERE u.${c.name} = n.name_of RETURNING ${returned}
)`;
  const COUNTED = "\nSELECT count(*)::int AS changed FROM changed";
  const change = (values: Readonly<Record<string, string>>, condition?: string): string =>
    `${lockAndChange(`e.${c.name} = $1`, values, condition)}${COUNTED}`;

  const isPaused = (now: string): string =>
    `(d.${c.pausedAt} IS NOT NULL AND (d.${c.pausedUntil} IS NULL OR d.${c.pausedUntil} > ${now}))`;
  const isProbed = `d.${c.breakerState} = 'half-open' AND d.${c.probeToken} = $2::uuid`;
  /** A time is over when it has passed, or when it began later than now: the clock was set back. */
  const isOver = (from: string, until: string): string =>
    `(d.${until} IS NULL OR d.${until} <= t.now OR d.${from} > t.now)`;
  const remaining = (from: string, until: string): string =>
    `CASE WHEN ${isOver(from, until)} THEN 0 ELSE date_part('epoch', d.${until} - t.now) * 1000 END`;
  const NO_TIME = "NULL::timestamptz";
  const noProbe = { [c.probeToken]: "NULL::uuid", [c.probeAt]: NO_TIME, [c.probeUntil]: NO_TIME };

  const second = "date_trunc('second', t.now)";
  const justBefore = `${second} - interval '1 second'`;
  const takenBefore = `CASE d.${c.rateSecond} WHEN ${second} THEN d.${c.rateTakenBefore} WHEN ${justBefore} THEN d.${c.rateTaken} ELSE 0 END`;

  const wasStable = `(d.${c.closedAt} IS NULL OR d.${c.closedAt} > t.now OR d.${c.closedAt} < t.now - ${milliseconds("$7")})`;
  const openings = `CASE WHEN d.${c.breakerState} = 'closed' AND ${wasStable} THEN 1 ELSE least(d.${c.openings}, 1000000) + 1 END`;
  /** $4 the first opening, $5 the longest (ms), $6 the shortest. */
  const openUntil = `t.now + ${milliseconds(`greatest(least($4::bigint * (1::bigint << least(o.openings - 1, ${MOST_DOUBLINGS})), $5::bigint), $6::bigint)`)}`;

  return {
    states: short("destinations.states", true)`
SELECT d.${c.name} AS name, CASE WHEN ${isPaused("t.now")} THEN ${msOf(`d.${c.pausedAt}`)} END AS paused_at,
  ${msOf(`d.${c.pausedUntil}`)} AS paused_until, d.${c.pausedBy} AS paused_by, d.${c.pauseReason} AS pause_reason,
  d.${c.breakerState} AS breaker_state, d.${c.openings} AS openings, d.${c.breakerReason} AS breaker_reason,
  CASE d.${c.breakerState} WHEN 'open' THEN ${remaining(c.openedAt, c.openUntil)}
    WHEN 'half-open' THEN ${remaining(c.probeAt, c.probeUntil)} END AS remaining_ms,
  ${msOf(`d.${c.lastSuccessAt}`)} AS last_success_at, ${msOf(`d.${c.lastFailureAt}`)} AS last_failure_at, d.${c.lastError} AS last_error,
  CASE WHEN d.${c.slowAt} <= t.now THEN ${msOf(`d.${c.slowAt}`)} END AS slow_at,
  CASE WHEN d.${c.slowAt} > t.now - ${milliseconds(String(SLOW_FOR_MS))} AND d.${c.slowAt} <= t.now THEN 1 ELSE 0 END AS is_slow,
  CASE d.${c.rateSecond} WHEN ${second} THEN d.${c.rateTakenBefore} WHEN ${justBefore} THEN d.${c.rateTaken} ELSE 0 END AS taken_per_second
FROM ${table} d, (SELECT clock_timestamp() AS now OFFSET 0) AS t ORDER BY d.${c.name}`,

    makeRows: short("destinations.make rows(names)")`
INSERT INTO ${table} (${c.name}) SELECT r.name FROM unnest($1::text[]) AS r(name) ORDER BY r.name COLLATE "C"
ON CONFLICT (${c.name}) DO NOTHING`,

    pause: short("destinations.pause(name, by, reason, forMs)")(
      change({
        [c.pausedAt]: "t.now",
        [c.pausedUntil]: `t.now + ${milliseconds("$4")}`,
        [c.pausedBy]: "$2::text",
        [c.pauseReason]: "$3::text",
      }),
    ),

    resume: short("destinations.resume(name)")(
      change(
        {
          [c.pausedAt]: NO_TIME,
          [c.pausedUntil]: NO_TIME,
          [c.pausedBy]: "NULL::text",
          [c.pauseReason]: "NULL::text",
        },
        isPaused("t.now"),
      ),
    ),

    /** `savedUs`: most unused time; `mostAheadUs`: furthest ahead of the clock. The first takes find the bucket full. */
    takeFromRate: short("destinations.take from rate(name, tokens, costUs, savedUs, mostAheadUs)")`${lockAndChange(
      `e.${c.name} = $1`,
      {
        [c.rateNextAt]: `CASE WHEN d.${c.rateNextAt} > t.now + ${microseconds("$5")} THEN t.now
    ELSE greatest(d.${c.rateNextAt}, t.now - ${microseconds("$4")}) END + ${microseconds("$3")}`,
        [c.rateSecond]: second,
        [c.rateTaken]: `CASE WHEN d.${c.rateSecond} = ${second} THEN d.${c.rateTaken} ELSE 0 END + $2::bigint`,
        [c.rateTakenBefore]: takenBefore,
      },
    )}
SELECT greatest(date_part('epoch', n.${c.rateNextAt} - clock_timestamp()) * 1000, 0) AS wait_ms FROM n`,

    /** Null for `probe` opens a closed breaker. */
    open: short("destinations.open(name, probe, reason, firstMs, mostMs, atLeastMs, stableAfterMs)")`${lockAndChange(
      `e.${c.name} = $1`,
      {
        [c.breakerState]: "'open'",
        [c.breakerReason]: "$3::text",
        ...noProbe,
        [c.openings]: "o.openings",
        [c.openedAt]: "t.now",
        [c.openUntil]: openUntil,
      },
      `($2::uuid IS NULL AND d.${c.breakerState} = 'closed') OR (${isProbed})`,
      ` CROSS JOIN LATERAL (SELECT ${openings} AS openings) AS o`,
    )}
SELECT date_part('epoch', n.${c.openUntil} - n.${c.openedAt}) * 1000 AS open_ms FROM n`,

    takeProbe: short("destinations.take probe(name, probe, leaseMs)")(
      change(
        {
          [c.breakerState]: "'half-open'",
          [c.probeToken]: "$2::uuid",
          [c.probeAt]: "t.now",
          [c.probeUntil]: `t.now + ${milliseconds("$3")}`,
        },
        `(d.${c.breakerState} = 'open' AND ${isOver(c.openedAt, c.openUntil)})
  OR (d.${c.breakerState} = 'half-open' AND ${isOver(c.probeAt, c.probeUntil)})`,
      ),
    ),

    renewProbe: short("destinations.renew probe(name, probe, leaseMs)")(
      change({ [c.probeAt]: "t.now", [c.probeUntil]: `t.now + ${milliseconds("$3")}` }, isProbed),
    ),

    /** How often it has opened is kept: it may open again soon. */
    close: short("destinations.close(name, probe)")(
      change(
        {
          [c.breakerState]: "'closed'",
          [c.closedAt]: "t.now",
          [c.openedAt]: NO_TIME,
          [c.openUntil]: NO_TIME,
          [c.breakerReason]: "NULL::text",
          ...noProbe,
        },
        isProbed,
      ),
    ),

    returnProbe: short("destinations.return probe(name, probe, waitMs)")(
      change(
        {
          [c.breakerState]: "'open'",
          ...noProbe,
          [c.openedAt]: "t.now",
          [c.openUntil]: `t.now + ${milliseconds("$3")}`,
        },
        isProbed,
      ),
    ),

    report: short(`destinations.report(${Object.keys(REPORT).join(", ")})`)(
      `${lockAndChange(
        `e.${c.name} = ANY ($1::text[]) ORDER BY e.${c.name}`,
        {
          [c.lastSuccessAt]: latest(c.lastSuccessAt, "r.succeeded"),
          [c.lastFailureAt]: latest(c.lastFailureAt, "r.failed"),
          [c.slowAt]: latest(c.slowAt, "r.slow"),
          [c.lastError]: `CASE WHEN r.failed IS NOT NULL AND ${latest(c.lastFailureAt, "r.failed")} = r.failed THEN r.error ELSE d.${c.lastError} END`,
        },
        "true",
        ` CROSS JOIN LATERAL (
    SELECT t.now - ${milliseconds("u.succeeded")} AS succeeded, t.now - ${milliseconds("u.failed")} AS failed, u.error,
      CASE WHEN u.slow THEN t.now END AS slow
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::boolean[]) AS u(name, succeeded, failed, error, slow)
    WHERE u.name = d.${c.name}) AS r`,
      )}${COUNTED}`,
    ),

    dialect: { reportValues: (reports) => arraysOf(reports, REPORT) },
  };
}

const REPORT = {
  names: "name",
  succeeded: "succeededAgoMs",
  failed: "failedAgoMs",
  errors: "error",
  slow: "isSlow",
} as const;

/** The later of the stored and the reported time. One after now comes from a clock that was set back. */
function latest(column: string, reported: string): string {
  const past = `CASE WHEN d.${column} <= t.now THEN d.${column} END`;
  return `coalesce(greatest(${past}, ${reported}), d.${column})`;
}
