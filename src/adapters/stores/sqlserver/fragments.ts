import { PARKED_UNTIL } from "../../../model/rows.ts";

/** Pieces of T-SQL that several statements of this store share. */

/**
 * Opens a batch of several statements: no row counts between the results, and an error or a cancelled run ends the batch and rolls its
 * transaction back.
 */
export const BATCH = `SET NOCOUNT ON;
SET XACT_ABORT ON;`;

/** One moment for the whole batch, in UTC. */
export const NOW = "DECLARE @now datetimeoffset(7) = SYSUTCDATETIME();";

/**
 * Whether a time has come; an owner's table may let NULL in, which counts as due.
 *
 * @param time a column
 * @param clock the variable that holds the time of the look
 */
export const hasCome = (time: string, clock = "@now"): string => `(${time} IS NULL OR ${time} <= ${clock})`;

/** The ids of the parameter `@ids`, a JSON array. In a table with a key they are looked up, and locked, in one order by everybody. */
export const NAMED_IDS = `DECLARE @named TABLE (id uniqueidentifier NOT NULL PRIMARY KEY);
INSERT INTO @named (id) SELECT DISTINCT n.id FROM OPENJSON(@ids) WITH (id uniqueidentifier '$') n;`;

/**
 * Hints for a table whose rows are found by their ids (Microsoft Learn, "Table hints"). A small table, or one that was small when the plan
 * was made, would be scanned without `FORCESEEK`, and a scan that locks waits for everybody's rows instead of its own. The id must
 * have an index of its own.
 *
 * - take: locks the rows until the end of the transaction; those that another one has locked are passed over.
 * - hold: the same, but waits for them.
 * - change: for the target of an update whose rows are locked already, or may be waited for.
 * - read: locks nothing.
 */
export const BY_ID = {
  take: "WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)",
  hold: "WITH (UPDLOCK, ROWLOCK, FORCESEEK)",
  change: "WITH (ROWLOCK, FORCESEEK)",
  read: "WITH (FORCESEEK)",
} as const;

/**
 * How statements read rows that others may be changing at the same moment (Microsoft Learn, "Table hints"). Neither way waits for anybody:
 * a row whose lock another transaction holds is passed over, so that an application's open transaction holds up no loop.
 */

/** Chooses rows to change: they are locked until the end of the transaction. */
export const TO_CHANGE = "WITH (UPDLOCK, READPAST, ROWLOCK)";

/**
 * Looks only. Where READ_COMMITTED_SNAPSHOT is on, passing over locked rows asks for a read that locks; such a read may not name a
 * granularity as well.
 */
export const TO_LOOK = "WITH (READPAST, READCOMMITTEDLOCK)";

/** The few ids of a table variable, which stands first, are looked up one after another, whatever the statistics say of the table. */
export const ONE_BY_ONE = "OPTION (FORCE ORDER, LOOP JOIN)";

/** A time as text and back, with its seven digits, which a JavaScript `Date` would lose. */
export const timeText = (time: string): string => `CONVERT(nvarchar(40), ${time}, 127)`;
export const timeOf = (text: string): string => `CONVERT(datetimeoffset(7), ${text}, 127)`;

/** `scheduled_at` of a parked row: also `datetime`, of the narrowest range, holds it. */
export const PARKED_AT = timeOf(`N'${PARKED_UNTIL}'`);
