package io.github.svcrelay.client;

import io.github.svcrelay.client.Transaction.Dialect;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** Does the work of a message once, which the table {@code handled_messages} remembers. */
public final class Once {
  /** The table, for PostgreSQL; see {@link #forget} for its clean-up. */
  public static final String TABLE = """
      CREATE TABLE handled_messages (
        message_id text        NOT NULL PRIMARY KEY,
        handled_at timestamptz NOT NULL DEFAULT now()
      )""";
  /** The same for SQL Server. */
  public static final String TABLE_SQLSERVER = """
      CREATE TABLE handled_messages (
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
   * @param messageId {@code x-message-id} of a delivery, {@code webhook-id}, or the id of a pulled message
   * @return whether it ran
   */
  public static <E extends Exception, X extends Exception> boolean run(
      Transaction<E> tx, String messageId, Work<X> work) throws E, X {
    Objects.requireNonNull(messageId, "the id of the message is null, expected its x-message-id");
    String note = tx.dialect() == Dialect.POSTGRESQL ? NOTE : NOTE_SQLSERVER;
    if (tx.query(note, List.of(messageId)).isEmpty()) return false;
    work.run();
    return true;
  }

  /**
   * Forgets messages that were handled longer ago: choose a time longer than any message is repeated, such as the retention
   * of the outbox.
   */
  public static <E extends Exception> void forget(Transaction<E> tx, Duration olderThan) throws E {
    String forget = tx.dialect() == Dialect.POSTGRESQL ? FORGET : FORGET_SQLSERVER;
    tx.query(forget, List.of(String.valueOf(olderThan.toMillis())));
  }
}
