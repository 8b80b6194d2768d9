package svcclient

import (
	"context"
	"time"
)

// OnceTable creates the table of [Once] on PostgreSQL unless it exists. See [Forget] for its clean-up.
const OnceTable = `CREATE TABLE IF NOT EXISTS handled_messages (
  message_id text        NOT NULL PRIMARY KEY,
  handled_at timestamptz NOT NULL DEFAULT now()
)`

// OnceTableSQLServer creates the table of [Once] on SQL Server unless it exists.
const OnceTableSQLServer = `IF OBJECT_ID(N'handled_messages') IS NULL CREATE TABLE handled_messages (
  message_id nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
  handled_at datetimeoffset NOT NULL DEFAULT sysdatetimeoffset()
)`

// Once calls handle unless the message has been handled before, and reports whether it did. It notes the message in the
// caller's transaction: commit if there is no error, also if handle was not called; else roll back. A second receiver of
// the message waits for the end of the first one's transaction.
//
// messageID is the header webhook-id of a delivery with a signature, else x-message-id, or the id of a pulled message.
func Once(ctx context.Context, tx Transaction, messageID string, handle func() error) (bool, error) {
	result, err := tx.ExecContext(ctx, either(tx, notePostgres, noteSQLServer), messageID)
	if err != nil {
		return false, err
	}
	noted, err := result.RowsAffected()
	if err != nil || noted == 0 {
		return false, err
	}
	return true, handle()
}

const notePostgres = "INSERT INTO handled_messages (message_id) VALUES ($1) ON CONFLICT (message_id) DO NOTHING"

// With NOCOUNT there would be no number of rows.
const noteSQLServer = "SET NOCOUNT OFF; INSERT INTO handled_messages (message_id) " +
	"SELECT m.id FROM (SELECT @p1 AS id) m WHERE NOT EXISTS (" +
	"SELECT 1 FROM handled_messages WITH (UPDLOCK, HOLDLOCK) WHERE message_id = m.id)"

// Forget deletes notes of messages that were handled longer ago. Choose a time longer than any message is repeated,
// such as the retention of the outbox.
func Forget(ctx context.Context, tx Transaction, olderThan time.Duration) error {
	_, err := tx.ExecContext(ctx, either(tx, forgetPostgres, forgetSQLServer), olderThan.Milliseconds())
	return err
}

const forgetPostgres = "DELETE FROM handled_messages WHERE handled_at <= now() - $1::bigint * interval '1 millisecond'"
const forgetSQLServer = "DELETE FROM handled_messages " +
	"WHERE handled_at <= dateadd(second, -CAST(@p1 AS bigint) / 1000, sysdatetimeoffset())"
