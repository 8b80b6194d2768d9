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
