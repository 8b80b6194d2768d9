package io.github.svcrelay.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import io.github.svcrelay.client.Transaction.Dialect;
import io.github.svcrelay.client.Worker.Result;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.sql.DataSource;

/**
 * Messages of the inbox of PostgreSQL. The handler's transaction is at the isolation level of the database.
 *
 * @param connections one for each message at a time, and one to spare for renewals
 * @param source a source with {@code consumption: pull}
 * @param maxAttempts claims after which a message is dead
 */
public record SqlSource(DataSource connections, String source, int maxAttempts) implements PullSource<Connection> {
  /** With five claims after which a message is dead. */
  public SqlSource(DataSource connections, String source) {
    this(connections, source, 5);
  }

  @Override
  public Claim claim(int max, Duration lease) throws SQLException, JsonProcessingException {
    String token = UUID.randomUUID().toString();
    List<PulledMessage> messages = new ArrayList<>();
    for (Map<String, String> row : run(Statement.CLAIM, source, max, token, lease.toMillis(), maxAttempts))
      messages.add(messageOf(row));
    return new Claim(token, messages);
  }

  @Override
  public Set<String> renew(Claim claim, Collection<String> ids, Duration lease) throws SQLException {
    return run(Statement.RENEW, source, claim.token(), lease.toMillis()).stream()
        .map(row -> row.get("id")).collect(Collectors.toSet());
  }

  @Override
  public boolean handled(Claim claim, String id, Work<Connection> work) throws Exception {
    try (Connection connection = connections.getConnection()) {
      connection.setAutoCommit(false);
      try {
        work.run(connection);
        boolean isHeld = Statement.COMPLETE.run(connection, source, claim.token(), "{" + id + "}").size() == 1;
        if (isHeld) connection.commit();
        return isHeld;
      } finally {
        end(connection);
      }
    }
  }

  /** Rolls back what is not committed; the end of a connection that is broken ends its transaction. */
  private static void end(Connection connection) throws SQLException {
    try {
      connection.rollback();
      connection.setAutoCommit(true);
    } catch (SQLException error) {
      connection.abort(Runnable::run);
    }
  }

  @Override
  public Result retry(Claim claim, String id, Duration delay, String reason) throws SQLException {
    return run(Statement.RETRY, source, claim.token(), id, delay.toMillis(), reason, maxAttempts).stream()
        .filter(row -> row.get("id").equals(id))
        .map(row -> row.get("state").equals("dead") ? Result.DEAD : Result.RETRY)
        .findFirst().orElse(Result.LOST);
  }

  @Override
  public boolean dead(Claim claim, String id, String reason) throws SQLException {
    return !run(Statement.DEAD, source, claim.token(), id, reason).isEmpty();
  }

  @Override
  public void release(Claim claim, Collection<String> ids) throws SQLException {
    run(Statement.RELEASE, source, claim.token());
  }

  private List<Map<String, String>> run(Statement statement, Object... values) throws SQLException {
    try (Connection connection = connections.getConnection()) {
      connection.setAutoCommit(true);
      return statement.run(connection, values);
    }
  }

  private static PulledMessage messageOf(Map<String, String> row) throws JsonProcessingException {
    return new PulledMessage(row.get("id"), row.get("aggregate_id"), row.get("event_type"), row.get("idempotency_key"),
        row.get("correlation_id"), Integer.parseInt(row.get("attempt")),
        PulledMessage.headersOf(Json.parse(row.get("headers"))), row.get("payload"));
  }

  /**
   * The statements of docs/examples/pull, byte for byte, which become statements of JDBC here: a {@code ?} for each
   * {@code $n} outside of comments.
   */
  private enum Statement {
    CLAIM, RENEW, COMPLETE, RETRY, DEAD, RELEASE;

    private final List<Integer> numbers = new ArrayList<>();
    private final String sql;

    Statement() {
      try (InputStream file = SqlSource.class.getResourceAsStream("sql/" + name().toLowerCase(Locale.ROOT) + ".sql")) {
        String text = new String(file.readAllBytes(), StandardCharsets.UTF_8);
        sql = Pattern.compile("--[^\n]*|\\$(\\d+)").matcher(text).replaceAll(found -> {
          if (found.group(1) == null) return Matcher.quoteReplacement(found.group());
          numbers.add(Integer.valueOf(found.group(1)));
          return "?";
        });
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    List<Map<String, String>> run(Connection connection, Object... values) throws SQLException {
      List<String> bound = numbers.stream().map(number -> String.valueOf(values[number - 1])).toList();
      return new Jdbc(connection, Dialect.POSTGRESQL).query(sql, bound);
    }
  }
}
