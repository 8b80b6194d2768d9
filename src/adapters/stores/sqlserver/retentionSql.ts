import type { TableNames } from "../sql/names.ts";
import { COUNT_TIMEOUT_MS, finishedWalks, type Walk } from "../sql/walks.ts";
import { BATCH, BY_ID, NOW, ONE_BY_ONE, TO_CHANGE, TO_LOOK, timeOf, timeText } from "./fragments.ts";
import type { Statement } from "./statement.ts";

/** Every statement of retention, with the configured names woven in once. */
export function retentionStatements(names: TableNames) {
  const { sent, dead, inbox } = finishedWalks(names, {
    text: (literal) => `N'${literal}'`,
    uuidType: "uniqueidentifier",
  });

  return {
    /** The newest row of each state that is older than `@bound` ms. */
    outboxByAge: {
      name: "retention.outbox by age",
      parameters: { bound: "bigint" },
      text: `${AGE_BOUND}
${newestTooOld("N'sent'", sent)}
UNION ALL
${newestTooOld("N'dead'", dead)};`,
    },

    /** The newest row of each state with `@bound` newer ones, which are kept. */
    outboxByCount: {
      timeoutMs: COUNT_TIMEOUT_MS,
      name: "retention.outbox by count",
      parameters: { bound: "bigint" },
      text: `${newestPastKept("N'sent'", sent)}
UNION ALL
${newestPastKept("N'dead'", dead)};`,
    },

    inboxByAge: {
      name: "retention.inbox by age",
      parameters: { bound: "bigint" },
      text: `${AGE_BOUND}
${newestTooOld("NULL", inbox)};`,
    },

    deleteSent: { name: "retention.delete sent", parameters: BATCH_PARAMETERS, text: deleteBatch(sent) },
    deleteDead: { name: "retention.delete dead", parameters: BATCH_PARAMETERS, text: deleteBatch(dead) },
    deleteInbox: { name: "retention.delete from the inbox", parameters: BATCH_PARAMETERS, text: deleteBatch(inbox) },

    nextSent: { name: "retention.next sent", parameters: RANGE_PARAMETERS, text: next(sent) },
    nextDead: { name: "retention.next dead", parameters: RANGE_PARAMETERS, text: next(dead) },
    nextInbox: { name: "retention.next of the inbox", parameters: RANGE_PARAMETERS, text: next(inbox) },
  } as const satisfies Record<string, Statement>;
}

export type RetentionStatements = ReturnType<typeof retentionStatements>;

const RANGE_PARAMETERS = { fromTime: "text", fromTie: "text", untilTime: "text", untilTie: "text" } as const;
const BATCH_PARAMETERS = { limit: "int", ...RANGE_PARAMETERS } as const;

/** In days and the rest of a day: DATEADD takes a number of 32 bits, which is 24 days in milliseconds. */
const AGE_BOUND = `${NOW}
DECLARE @oldest datetimeoffset(7) = DATEADD(day, -(@bound / 86400000), DATEADD(millisecond, -(@bound % 86400000), @now));`;

function newestTooOld(state: string, walk: Walk): string {
  return newest(state, walk, ` AND r.${walk.time} < @oldest`, "0");
}

function newestPastKept(state: string, walk: Walk): string {
  return newest(state, walk, "", "@bound");
}

/** The position of the newest row that a condition leaves, after so many. */
function newest(state: string, walk: Walk, condition: string, offset: string): string {
  return `SELECT newest.state, newest.time, newest.tie FROM (
  SELECT ${state} AS state, ${timeText(`r.${walk.time}`)} AS time, CONVERT(nvarchar(36), r.${walk.tie}) AS tie
  FROM ${walk.table} r
  WHERE r.${walk.state} IN ${walk.states}${condition}
  ORDER BY r.${walk.time} DESC, r.${walk.tie} DESC
  OFFSET ${offset} ROWS FETCH NEXT 1 ROWS ONLY
) newest`;
}

function declareRange({ tieType }: Walk): string {
  return `DECLARE @after datetimeoffset(7) = ${timeOf("@fromTime")}, @after_tie ${tieType} = CONVERT(${tieType}, @fromTie);
DECLARE @last datetimeoffset(7) = ${timeOf("@untilTime")}, @last_tie ${tieType} = CONVERT(${tieType}, @untilTie);`;
}

function inRange(walk: Walk): string {
  return `r.${walk.state} IN ${walk.states}
  AND r.${walk.time} >= @after AND (r.${walk.time} > @after OR r.${walk.tie} > @after_tie)
  AND r.${walk.time} <= @last AND (r.${walk.time} < @last OR r.${walk.tie} <= @last_tie)`;
}

/** The position of the first row after `@fromTime`, `@fromTie` and up to `@untilTime`, `@untilTie`. */
function next(walk: Walk): string {
  return `${declareRange(walk)}
SELECT TOP (1) ${timeText(`r.${walk.time}`)} AS time, CONVERT(nvarchar(36), r.${walk.tie}) AS tie
FROM ${walk.table} r ${TO_LOOK}
WHERE ${inRange(walk)}
ORDER BY r.${walk.time}, r.${walk.tie};`;
}

/**
 * Deletes the oldest rows of a walk, after the position `@fromTime`, `@fromTie` and up to `@untilTime`, `@untilTie`. Answers with one row,
 * or with none when nothing was found.
 *
 * A row that a replay or another replica holds at this moment is left out, not waited for. The lock may lie on the index that was walked
 * and not on the row itself, so the row is tried for again, and its state and time are checked again, when it is deleted.
 */
function deleteBatch(walk: Walk): string {
  return `${BATCH}
${declareRange(walk)}
DECLARE @batch TABLE (id uniqueidentifier PRIMARY KEY, time datetimeoffset(7), tie ${walk.tieType});
BEGIN TRANSACTION;
INSERT INTO @batch (id, time, tie)
SELECT TOP (@limit) r.${walk.id}, r.${walk.time}, r.${walk.tie}
FROM ${walk.table} r ${TO_CHANGE}
WHERE ${inRange(walk)}
ORDER BY r.${walk.time}, r.${walk.tie};
DELETE r
FROM @batch b JOIN ${walk.table} r ${BY_ID.take} ON r.${walk.id} = b.id
WHERE r.${walk.state} IN ${walk.states} AND r.${walk.time} = b.time
${ONE_BY_ONE};
DECLARE @deleted int = @@ROWCOUNT;
COMMIT TRANSACTION;
SELECT TOP (1) (SELECT COUNT(*) FROM @batch) AS found, @deleted AS deleted, ${timeText("b.time")} AS time,
  CONVERT(nvarchar(36), b.tie) AS tie
FROM @batch b
ORDER BY b.time DESC, b.tie DESC;`;
}
