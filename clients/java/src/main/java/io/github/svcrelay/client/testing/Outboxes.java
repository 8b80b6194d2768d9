package io.github.svcrelay.client.testing;

import io.github.svcrelay.client.Transaction.Dialect;
import io.github.svcrelay.client.Transaction;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** The messages that a transaction sees in the table {@code outbox}, those of others included. */
public final class Outboxes {
  private Outboxes() {}

  /**
   * Finds a message among those that the transaction sees. Match a key of this test:
   * {@code assertEnqueued(tx, message -> "o-1".equals(message.key()))}.
   *
   * @return the first that matches
   * @throws AssertionError with all messages if none matches
   */
  public static <E extends Exception> EnqueuedMessage assertEnqueued(
      Transaction<E> tx, Predicate<EnqueuedMessage> match) throws E {
    List<EnqueuedMessage> all = enqueued(tx);
    String list = all.stream().map(each -> "\n- " + each).collect(Collectors.joining());
    return all.stream().filter(match).findFirst().orElseThrow(() ->
        new AssertionError("none of " + all.size() + " messages in the outbox matches, expected at least one:" + list));
  }

  /** All messages that the transaction sees, in order. */
  public static <E extends Exception> List<EnqueuedMessage> enqueued(Transaction<E> tx) throws E {
    String key = tx.dialect() == Dialect.POSTGRESQL ? "key" : "[key]";
    String sql = "SELECT id, topic, " + key + ", payload, headers, destination FROM outbox ORDER BY sequence";
    return tx.query(sql, List.of()).stream()
        .map(row -> new EnqueuedMessage(row.get("id"), row.get("topic"), row.get("key"), row.get("payload"),
            row.get("headers"), row.get("destination")))
        .toList();
  }
}
