import { type DestinationStatements, MOST_DOUBLINGS, SLOW_FOR_MS } from "../sql/destinations.ts";
import type { TableNames } from "../sql/names.ts";
import { BATCH, COLLATED, NOW } from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

/** They read and write a few rows: a longer wait is for a session that holds a row without need. */
const short = (declaration: string) => statement(declaration, { timeoutMs: 10_000 });

/** A change locks its row, or the gap for it, before it reads the clock: it uses time and row after the wait. */
export function destinationStatements(names: TableNames): DestinationStatements<Statement> {
  const table = names.destinationTable;
  const c = names.destination;
  const locked = `${table} d WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE d.${c.name} = @name`;
  const behindLock = (work: string): string => `${BATCH}
BEGIN TRANSACTION;
DECLARE @found int = (SELECT COUNT(*) FROM ${locked});
${NOW}
${work}
COMMIT TRANSACTION;`;
  const makeRow = `INSERT INTO ${table} (${c.name}) VALUES (@name);`;
  const change = (assignments: string, condition: string): string => `DECLARE @changed int;
UPDATE d SET ${assignments} FROM ${table} d WHERE d.${c.name} = @name AND (${condition});
SET @changed = @@ROWCOUNT;`;
  const changeExisting = (assignments: string, condition: string): string =>
    `${behindLock(change(assignments, `@found = 1 AND (${condition})`))}\nSELECT @changed AS changed;`;

  const isPaused = `(d.${c.pausedAt} IS NOT NULL AND (d.${c.pausedUntil} IS NULL OR d.${c.pausedUntil} > @now))`;
  const isProbed = `d.${c.breakerState} = N'half-open' AND d.${c.probeToken} = @probe`;
  /** A time is over when it has passed, or when it began later than now: the clock was set back. */
  const isOver = (from: string, until: string): string =>
    `(d.${until} IS NULL OR d.${until} <= @now OR d.${from} > @now)`;
  const remaining = (from: string, until: string): string =>
    `CASE WHEN ${isOver(from, until)} THEN 0 ELSE ${microsecondsFrom("@now", `d.${until}`)} / 1000.0 END`;
  const noProbe = `${c.probeToken} = NULL, ${c.probeAt} = NULL, ${c.probeUntil} = NULL`;

  const SECOND = "DECLARE @second datetimeoffset(0) = DATEADD(nanosecond, -DATEPART(nanosecond, @now), @now);";
  const justBefore = "DATEADD(second, -1, @second)";
  const takenBefore = `CASE WHEN d.${c.rateSecond} = @second THEN d.${c.rateTakenBefore} WHEN d.${c.rateSecond} = ${justBefore} THEN d.${c.rateTaken} ELSE 0 END`;
  const fullBucket = addMicroseconds("-@savedUs", "@now");
  const start =
    `CASE WHEN d.${c.rateNextAt} > ${addMicroseconds("@mostAheadUs", "@now")} THEN @now ` +
    `WHEN d.${c.rateNextAt} > ${fullBucket} THEN d.${c.rateNextAt} ELSE ${fullBucket} END`;

  const wasStable = `(d.${c.closedAt} IS NULL OR d.${c.closedAt} > @now OR d.${c.closedAt} < ${addMilliseconds("-@stableAfterMs", "@now")})`;

  return {
    states: short("destinations.states")`${NOW}
${SECOND}
SELECT d.${c.name} AS name, CASE WHEN ${isPaused} THEN d.${c.pausedAt} END AS paused_at, d.${c.pausedUntil} AS paused_until,
  d.${c.pausedBy} AS paused_by, d.${c.pauseReason} AS pause_reason,
  d.${c.breakerState} AS breaker_state, d.${c.openings} AS openings, d.${c.breakerReason} AS breaker_reason,
  CASE d.${c.breakerState} WHEN N'open' THEN ${remaining(c.openedAt, c.openUntil)}
    WHEN N'half-open' THEN ${remaining(c.probeAt, c.probeUntil)} END AS remaining_ms,
  d.${c.lastSuccessAt} AS last_success_at, d.${c.lastFailureAt} AS last_failure_at, d.${c.lastError} AS last_error,
  CASE WHEN d.${c.slowAt} <= @now THEN d.${c.slowAt} END AS slow_at,
  CASE WHEN d.${c.slowAt} > DATEADD(millisecond, -${SLOW_FOR_MS}, @now) AND d.${c.slowAt} <= @now THEN 1 ELSE 0 END AS is_slow,
  ${takenBefore} AS taken_per_second
FROM ${table} d ORDER BY d.${c.name};`,

    pause: short("destinations.pause(name text, by text, reason text, forMs bigint)")(
      behindLock(
        `IF @found = 0 ${makeRow}
UPDATE d
SET ${c.pausedAt} = @now, ${c.pausedUntil} = ${addMilliseconds("@forMs", "@now")}, ${c.pausedBy} = @by, ${c.pauseReason} = @reason
FROM ${table} d WHERE d.${c.name} = @name;`,
      ),
    ),

    resume: short("destinations.resume(name text)")(
      changeExisting(
        `${c.pausedAt} = NULL, ${c.pausedUntil} = NULL, ${c.pausedBy} = NULL, ${c.pauseReason} = NULL`,
        isPaused,
      ),
    ),

    /** `@savedUs`: most unused time; `@mostAheadUs`: furthest ahead of the clock. Returns the wait. */
    takeFromRate: short(
      "destinations.take from rate(name text, tokens bigint, costUs bigint, savedUs bigint, mostAheadUs bigint)",
    )`${behindLock(
      `IF @found = 0 ${makeRow}
${SECOND}
DECLARE @start datetimeoffset(7) = (SELECT ${start} FROM ${table} d WHERE d.${c.name} = @name);
DECLARE @next datetimeoffset(7) = ${addMicroseconds("@costUs", "@start")};
UPDATE d
SET ${c.rateNextAt} = @next, ${c.rateSecond} = @second, ${c.rateTakenBefore} = ${takenBefore},
  ${c.rateTaken} = CASE WHEN d.${c.rateSecond} = @second THEN d.${c.rateTaken} ELSE 0 END + @tokens
FROM ${table} d WHERE d.${c.name} = @name;`,
    )}
SELECT CASE WHEN @next > @now THEN ${microsecondsFrom("@now", "@next")} / 1000.0 ELSE 0 END AS wait_ms;`,

    /** `@probe` NULL opens a closed breaker, and makes its row. */
    open: short(
      `destinations.open(name text, probe uuid, reason text, firstMs bigint, mostMs bigint, atLeastMs bigint,
        stableAfterMs bigint)`,
    )`${behindLock(
      `IF @found = 0 AND @probe IS NULL ${makeRow}
DECLARE @openings int = COALESCE((
  SELECT CASE WHEN d.${c.breakerState} = N'closed' AND ${wasStable} THEN 1 WHEN d.${c.openings} < 1000000 THEN d.${c.openings} + 1 ELSE d.${c.openings} END
  FROM ${table} d WHERE d.${c.name} = @name), 1);
DECLARE @openMs bigint = @firstMs * POWER(CONVERT(bigint, 2), CASE WHEN @openings > ${MOST_DOUBLINGS} THEN ${MOST_DOUBLINGS} ELSE @openings - 1 END);
IF @openMs > @mostMs SET @openMs = @mostMs;
IF @openMs < @atLeastMs SET @openMs = @atLeastMs;
${change(
  `${c.breakerState} = N'open', ${c.breakerReason} = @reason, ${noProbe}, ${c.openings} = @openings, ${c.openedAt} = @now,
  ${c.openUntil} = ${addMilliseconds("@openMs", "@now")}`,
  `(@probe IS NULL AND d.${c.breakerState} = N'closed') OR (${isProbed})`,
)}`,
    )}
SELECT CASE WHEN @changed = 1 THEN @openMs END AS open_ms;`,

    takeProbe: short("destinations.take probe(name text, probe uuid, leaseMs bigint)")(
      changeExisting(
        `${c.breakerState} = N'half-open', ${c.probeToken} = @probe, ${c.probeAt} = @now,
  ${c.probeUntil} = ${addMilliseconds("@leaseMs", "@now")}`,
        `(d.${c.breakerState} = N'open' AND ${isOver(c.openedAt, c.openUntil)})
  OR (d.${c.breakerState} = N'half-open' AND ${isOver(c.probeAt, c.probeUntil)})`,
      ),
    ),

    renewProbe: short("destinations.renew probe(name text, probe uuid, leaseMs bigint)")(
      changeExisting(`${c.probeAt} = @now, ${c.probeUntil} = ${addMilliseconds("@leaseMs", "@now")}`, isProbed),
    ),

    /** How often it has opened is kept: it may open again soon. */
    close: short("destinations.close(name text, probe uuid)")(
      changeExisting(
        `${c.breakerState} = N'closed', ${c.closedAt} = @now, ${c.openedAt} = NULL, ${c.openUntil} = NULL,
  ${c.breakerReason} = NULL, ${noProbe}`,
        isProbed,
      ),
    ),

    returnProbe: short("destinations.return probe(name text, probe uuid, waitMs bigint)")(
      changeExisting(
        `${c.breakerState} = N'open', ${noProbe}, ${c.openedAt} = @now, ${c.openUntil} = ${addMilliseconds("@waitMs", "@now")}`,
        isProbed,
      ),
    ),

    /** `@rows`: JSON array of `ReportValues`. */
    report: short("destinations.report(rows list)")`${BATCH}
DECLARE @reports TABLE (name nvarchar(400) ${COLLATED} NOT NULL PRIMARY KEY, succeeded bigint NULL, failed bigint NULL,
  error nvarchar(2000) ${COLLATED} NULL, slow bit NOT NULL);
INSERT INTO @reports (name, succeeded, failed, error, slow)
SELECT j.name, j.succeeded, j.failed, j.error, j.slow
FROM OPENJSON(@rows) WITH (name nvarchar(400) ${COLLATED} '$.name', succeeded bigint '$.succeededAgoMs', failed bigint '$.failedAgoMs',
  error nvarchar(2000) ${COLLATED} '$.error', slow bit '$.isSlow') j;
BEGIN TRANSACTION;
INSERT INTO ${table} (${c.name})
SELECT r.name FROM @reports r
WHERE NOT EXISTS (SELECT * FROM ${table} d WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE d.${c.name} = r.name)
ORDER BY r.name;
${NOW}
UPDATE d
SET ${c.lastError} = CASE WHEN r.failed IS NOT NULL AND (d.${c.lastFailureAt} IS NULL OR d.${c.lastFailureAt} > @now
      OR d.${c.lastFailureAt} <= ${addMilliseconds("-r.failed", "@now")}) THEN r.error ELSE d.${c.lastError} END,
  ${c.lastSuccessAt} = ${latest(c.lastSuccessAt, addMilliseconds("-r.succeeded", "@now"), "r.succeeded IS NOT NULL")},
  ${c.lastFailureAt} = ${latest(c.lastFailureAt, addMilliseconds("-r.failed", "@now"), "r.failed IS NOT NULL")},
  ${c.slowAt} = CASE WHEN r.slow = 1 THEN @now ELSE d.${c.slowAt} END
FROM @reports r JOIN ${table} d WITH (ROWLOCK) ON d.${c.name} = r.name
OPTION (FORCE ORDER, LOOP JOIN);
COMMIT TRANSACTION;`,

    makeRows: undefined,
    dialect: { reportValues: (rows) => ({ rows }) },
  };
}

/** The later of the stored and the reported time; a stored time after now comes from a clock that was set back. */
function latest(column: string, reported: string, isReported: string): string {
  return `CASE WHEN ${isReported} AND (d.${column} IS NULL OR d.${column} > @now OR d.${column} < ${reported}) THEN ${reported} ELSE d.${column} END`;
}

/** DATEADD takes an `int`: seconds and rest are added separately. @param count a `bigint`; NULL gives NULL */
function addMicroseconds(count: string, time: string): string {
  return `DATEADD(microsecond, CONVERT(int, (${count}) % 1000000), DATEADD(second, CONVERT(int, (${count}) / 1000000), ${time}))`;
}

function addMilliseconds(count: string, time: string): string {
  return `DATEADD(millisecond, CONVERT(int, (${count}) % 1000), DATEADD(second, CONVERT(int, (${count}) / 1000), ${time}))`;
}

function microsecondsFrom(from: string, until: string): string {
  return `DATEDIFF_BIG(microsecond, ${from}, ${until})`;
}
