package io.github.svcrelay.client;

import io.github.svcrelay.client.EnqueueException.Code;
import io.github.svcrelay.client.Transaction.Dialect;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Writes messages in the caller's transaction, with which they commit or roll back.
 *
 * @param table default {@code outbox}
 * @param schema null, the default: the schema in which the connection finds the table
 * @param columns names of your own, by the service's names
 * @param cells the schemas of the cells, in their order: each message goes to that of its key; default: no cells
 */
public record Outbox(String table, String schema, Map<Column, String> columns, List<String> cells) {
  /** The columns of the service's own table, with their names in lower case. */
  public enum Column { ID, TOPIC, PAYLOAD, KEY, HEADERS, DESTINATION, SCHEDULED_AT, EXPIRES_AT }

  /** To what an owner's column may be. */
  private static final Map<Column, String> CASTS = Map.of(Column.ID, "::uuid", Column.HEADERS, "::jsonb",
      Column.SCHEDULED_AT, "::timestamptz", Column.EXPIRES_AT, "::timestamptz");
  /** They are not null. */
  private static final List<Column> DEFAULTED = List.of(Column.HEADERS, Column.SCHEDULED_AT);
  /** SQL Server takes 2100 parameters in a statement, and a thousand rows. */
  private static final int MOST_ROWS = 250;

  /** @throws EnqueueException with {@code OPTIONS} for a name that is empty or holds a NUL */
  public Outbox {
    columns = Map.copyOf(columns);
    cells = List.copyOf(cells);
    Stream<String> others = Stream.concat(cells.stream(), columns.values().stream());
    Stream<String> names = Stream.concat(Stream.of(table, schema == null ? table : schema), others);
    if (names.anyMatch(name -> name.isEmpty() || name.indexOf(0) >= 0))
      throw new EnqueueException(Code.OPTIONS, "a name of a table, schema or column is empty, or holds a NUL");
  }

  /** The service's own table, in the schema in which the connection finds it. */
  public Outbox() {
    this("outbox", null, Map.of(), List.of());
  }

  /** The same with another table. */
  public Outbox table(String name) {
    return new Outbox(name, schema, columns, cells);
  }

  /** The same in a schema. */
  public Outbox schema(String name) {
    return new Outbox(table, name, columns, cells);
  }

  /** The same with columns of your own. */
  public Outbox columns(Map<Column, String> names) {
    return new Outbox(table, schema, names, cells);
  }

  /** The same in cells. */
  public Outbox cells(List<String> schemas) {
    return new Outbox(table, schema, columns, schemas);
  }

  /** The cell of a key among {@code cells}, from 0, as the service chooses it. Without a key: the first. */
  public static int cellOf(String key, int cells) {
    if (key == null) return 0;
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(key.getBytes(StandardCharsets.UTF_8));
      return Integer.remainderUnsigned(ByteBuffer.wrap(digest).getInt(), cells);
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException("this Java has no SHA-256, expected of every one", error);
    }
  }

  /**
   * Writes a message.
   *
   * @return its id
   * @throws EnqueueException for a message without a payload, before any statement
   * @throws E if the statement fails
   */
  public <E extends Exception> String enqueue(Transaction<E> tx, Message message) throws E {
    return enqueueMany(tx, List.of(message)).get(0);
  }

  /**
   * Writes several messages in one statement (with cells: one for each; of more than 250 messages: one for each 250), in
   * this order.
   *
   * @return their ids
   * @throws EnqueueException for a message without a payload, before any statement
   * @throws E if a statement fails
   */
  public <E extends Exception> List<String> enqueueMany(Transaction<E> tx, List<Message> messages) throws E {
    List<Map<Column, String>> rows = messages.stream().map(Message::row).toList();
    Map<String, List<Map<Column, String>>> byTable = rows.stream().collect(Collectors.groupingBy(
        row -> place(tx.dialect(), row.get(Column.KEY)), LinkedHashMap::new, Collectors.toList()));
    for (Map.Entry<String, List<Map<Column, String>>> part : byTable.entrySet()) {
      List<Map<Column, String>> all = part.getValue();
      for (int from = 0; from < all.size(); from += MOST_ROWS)
        insert(tx, part.getKey(), all.subList(from, Math.min(from + MOST_ROWS, all.size())));
    }
    return rows.stream().map(row -> row.get(Column.ID)).toList();
  }

  private String place(Dialect dialect, String key) {
    String found = cells.isEmpty() ? schema : cells.get(cellOf(key, cells.size()));
    return (found == null ? "" : quoted(dialect, found) + ".") + quoted(dialect, table);
  }

  /** Only with the columns that a row needs: an application may have no right to the others. */
  private <E extends Exception> void insert(Transaction<E> tx, String place, List<Map<Column, String>> rows) throws E {
    List<Column> filled = Stream.of(Column.values())
        .filter(column -> rows.stream().anyMatch(row -> row.get(column) != null)).toList();
    List<String> values = new ArrayList<>();
    List<String> tuples = new ArrayList<>();
    for (Map<Column, String> row : rows) {
      List<String> tuple = new ArrayList<>();
      for (Column column : filled) {
        boolean isDefault = row.get(column) == null && DEFAULTED.contains(column);
        String cast = tx.dialect() == Dialect.POSTGRESQL ? CASTS.getOrDefault(column, "") : "";
        tuple.add(isDefault ? "DEFAULT" : "?" + cast);
        if (!isDefault) values.add(row.get(column));
      }
      tuples.add("(" + String.join(", ", tuple) + ")");
    }
    String names = filled.stream()
        .map(column -> quoted(tx.dialect(), columns.getOrDefault(column, column.name().toLowerCase(Locale.ROOT))))
        .collect(Collectors.joining(", "));
    tx.query("INSERT INTO " + place + " (" + names + ") VALUES " + String.join(", ", tuples), values);
  }

  private static String quoted(Dialect dialect, String name) {
    return dialect == Dialect.POSTGRESQL ? '"' + name.replace("\"", "\"\"") + '"' : '[' + name.replace("]", "]]") + ']';
  }
}
