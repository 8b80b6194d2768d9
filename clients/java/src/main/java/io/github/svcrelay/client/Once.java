package io.github.svcrelay.client;

import io.github.svcrelay.client.Transaction.Dialect;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** Does the work of a message once, which the table {@code handled_messages} remembers. */
public final class Once {
  /** The table, for a migration of PostgreSQL, which may run again; see {@link #forget} for its clean-up. */
  public static final String TABLE = """
      CREATE TABLE IF NOT EXISTS handled_messages (
        message_id text        NOT NULL PRIMARY KEY,
        handled_at timestamptz NOT NULL DEFAULT now()
      )""";
  /** The same for SQL Server. */
  public static final String TABLE_SQLSERVER = """
      IF OBJECT_ID(N'handled_messages') IS NULL CREATE TABLE handled_messages (
        message_id nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        handled_at datetimeoffset NOT NULL DEFAULT sysdatetimeoffset()
      )""";

  private static final String NOTE =
      "INSERT INTO handled_messages (message_id) VALUES (?) ON CONFLICT (message_id) DO NOTHING RETURNING message_id";
  private static final String NOTE_SQLSERVER = "INSERT INTO handled_messages (message_id) OUTPUT inserted.message_id"
      + " SELECT m.id FROM (SELECT ? AS id) m"
      + " WHERE NOT EXISTS (SELECT 1 FROM handled_messages WITH (UPDLOCK, HOLDLOCK) WHERE message_id = m.id)";
  private static final String FORGET =
      "DELETE FROM handled_messages WHERE handled_at <= now() - ?::bigint * interval '1 millisecond'";
  private static final String FORGET_SQLSERVER = "DELETE FROM handled_messages"
      + " WHERE handled_at <= dateadd(second, -CAST(? AS bigint) / 1000, sysdatetimeoffset())";

  private Once() {}

  /** What is to be done once. */
  @FunctionalInterface
  public interface Work<X extends Exception> {
    void run() throws X;
  }

  /**
   * Runs {@code work} unless the message has been handled before. It notes the message in the caller's transaction: commit
   * both, or roll both back. A second receiver of the message waits for the end of the first one's transaction.
   *
   * @param messageId {@code webhook-id} of a delivery with a signature, else {@code x-message-id}; of a pulled message its id
   * @return whether it ran
   * @throws IllegalStateException in auto-commit, which would remember the message although its work failed
   */
  public static <E extends Exception, X extends Exception> boolean run(
      Transaction<E> tx, String messageId, Work<X> work) throws E, X {
    Objects.requireNonNull(messageId, "the id of the message is null, expected its webhook-id or x-message-id");
    if (tx.isAutoCommit())
      throw new IllegalStateException("the connection is in auto-commit, expected a transaction: call setAutoCommit(false)"
          + " and commit(), or use @Transactional");
    String note = tx.dialect() == Dialect.POSTGRESQL ? NOTE : NOTE_SQLSERVER;
    if (tx.query(note, List.of(messageId)).isEmpty()) return false;
    work.run();
    return true;
  }

  /**
   * Deletes the rows of messages that were handled longer ago: choose a time longer than any message is repeated, such as
   * the retention of the outbox. Call it daily.
   */
  public static <E extends Exception> void forget(Transaction<E> tx, Duration olderThan) throws E {
    String forget = tx.dialect() == Dialect.POSTGRESQL ? FORGET : FORGET_SQLSERVER;
    tx.query(forget, List.of(String.valueOf(olderThan.toMillis())));
  }
}
