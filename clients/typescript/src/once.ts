import type { Transaction } from "./enqueue.ts";

/** The table of `once`, for PostgreSQL: run it in a migration, as often as you like. See {@link forget} for its clean-up. */
export const onceTable = `CREATE TABLE IF NOT EXISTS handled_messages (
  message_id text        NOT NULL PRIMARY KEY,
  handled_at timestamptz NOT NULL DEFAULT now()
)`;
/** The same for SQL Server. */
export const onceTableSqlServer = `IF OBJECT_ID(N'handled_messages') IS NULL CREATE TABLE handled_messages (
  message_id nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
  handled_at datetimeoffset NOT NULL DEFAULT sysdatetimeoffset()
)`;

/**
 * Runs `handle` unless the message has been handled before. It notes the message in the caller's transaction: commit both, or
 * roll both back. A second receiver of the message waits for the end of the first one's transaction.
 *
 * @param messageId `webhook-id` of a delivery if you check its signature, else `x-message-id`; or the id of a pulled message
 * @returns whether it ran
 */
export async function once(tx: Transaction, messageId: string, handle: () => Promise<unknown>): Promise<boolean> {
  const noted = await tx.query(NOTE[tx.dialect], [messageId]);
  if (noted.length === 0) return false;
  await handle();
  return true;
}

const NOTE = {
  postgresql: [
    "INSERT INTO handled_messages (message_id) VALUES (",
    ") ON CONFLICT (message_id) DO NOTHING RETURNING message_id",
  ],
  sqlserver: [
    "INSERT INTO handled_messages (message_id) OUTPUT inserted.message_id SELECT m.id FROM (SELECT ",
    " AS id) m WHERE NOT EXISTS (SELECT 1 FROM handled_messages WITH (UPDLOCK, HOLDLOCK) WHERE message_id = m.id)",
  ],
} as const;

/**
 * Forgets messages that were handled longer ago; call it daily. Choose a time longer than any message is repeated, such as the retention of the
 * outbox.
 */
export async function forget(tx: Transaction, olderThanMs: number): Promise<void> {
  await tx.query(FORGET[tx.dialect], [String(Math.round(olderThanMs))]);
}

const FORGET = {
  postgresql: ["DELETE FROM handled_messages WHERE handled_at <= now() - ", "::bigint * interval '1 millisecond'"],
  sqlserver: [
    "DELETE FROM handled_messages WHERE handled_at <= dateadd(second, -CAST(",
    " AS bigint) / 1000, sysdatetimeoffset())",
  ],
} as const;
