package io.github.svcrelay.client;

import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/** Writes messages in the caller's transaction, with which they commit or roll back. */
public final class Outbox {
  /** SQL Server takes 2100 parameters in a statement, and a thousand rows. */
  private static final int MOST_ROWS = 250;
  private static final Outbox STANDARD = of(new Options());

  private final Options options;

  private Outbox(Options options) {
    this.options = options;
  }

  /** The table {@code outbox} that the connection finds. */
  public static Outbox standard() {
    return STANDARD;
  }

  /** An outbox with names of the application's own. */
  public static Outbox of(Options options) {
    return new Outbox(options);
  }

  /**
   * Writes a message.
   *
   * @return its id
   * @throws E if the statement fails
   */
  public <E extends Exception> String enqueue(Transaction<E> tx, Message message) throws E {
    return enqueueMany(tx, List.of(message)).get(0);
  }

  /**
   * Writes several messages in one statement (with cells: one for each), in this order.
   *
   * @return their ids
   * @throws E if a statement fails
   */
  public <E extends Exception> List<String> enqueueMany(Transaction<E> tx, List<Message> messages) throws E {
    List<Map<Field, String>> rows = messages.stream().map(message -> message.row(options.traceparent)).toList();
    Map<String, List<Map<Field, String>>> byTable = rows.stream().collect(Collectors.groupingBy(
        row -> table(tx.dialect(), row.get(Field.KEY)), LinkedHashMap::new, Collectors.toList()));
    for (Map.Entry<String, List<Map<Field, String>>> part : byTable.entrySet()) {
      List<Map<Field, String>> all = part.getValue();
      for (int from = 0; from < all.size(); from += MOST_ROWS)
        insert(tx, part.getKey(), all.subList(from, Math.min(from + MOST_ROWS, all.size())));
    }
    return rows.stream().map(row -> row.get(Field.ID)).toList();
  }

  private String table(Dialect dialect, String key) {
    List<String> cells = options.cells;
    String schema = cells.isEmpty() ? options.schema : cells.get(Cells.cellOf(key, cells.size()));
    return (schema == null ? "" : quoted(dialect, schema) + ".") + quoted(dialect, options.table);
  }

  /** Only with the columns that a row needs: an application may have no right to the others. */
  private <E extends Exception> void insert(Transaction<E> tx, String table, List<Map<Field, String>> rows) throws E {
    List<Field> fields = new ArrayList<>(List.of(Field.values()));
    fields.removeIf(field -> rows.stream().allMatch(row -> row.get(field) == null));
    List<String> values = new ArrayList<>();
    List<String> tuples = new ArrayList<>();
    for (Map<Field, String> row : rows) {
      List<String> tuple = new ArrayList<>();
      for (Field field : fields) {
        boolean isDefault = row.get(field) == null && field.isDefaulted;
        tuple.add(isDefault ? "DEFAULT" : tx.dialect() == Dialect.POSTGRESQL ? "?" + field.cast : "?");
        if (!isDefault) values.add(row.get(field));
      }
      tuples.add("(" + String.join(", ", tuple) + ")");
    }
    String columns = fields.stream()
        .map(field -> quoted(tx.dialect(), options.columns.getOrDefault(field, field.column)))
        .collect(Collectors.joining(", "));
    tx.query("INSERT INTO " + table + " (" + columns + ") VALUES " + String.join(", ", tuples), values);
  }

  private static String quoted(Dialect dialect, String name) {
    return dialect == Dialect.POSTGRESQL ? '"' + name.replace("\"", "\"\"") + '"' : '[' + name.replace("]", "]]") + ']';
  }

  /** What a message writes, and the columns of the service's own table. */
  public enum Field {
    // Each cast is to what an owner's column may be.
    ID("id", "::uuid", false),
    TOPIC("topic", "", false),
    PAYLOAD("payload", "", false),
    KEY("key", "", false),
    HEADERS("headers", "::jsonb", true),
    DESTINATION("destination", "", false),
    DELIVER_AT("scheduled_at", "::timestamptz", true),
    EXPIRES_AT("expires_at", "::timestamptz", false);

    private final String column;
    private final String cast;
    /** Its column is not null. */
    private final boolean isDefaulted;

    Field(String column, String cast, boolean isDefaulted) {
      this.column = column;
      this.cast = cast;
      this.isDefaulted = isDefaulted;
    }
  }

  /**
   * What has other names than in the service's own tables.
   *
   * @param table default {@code outbox}
   * @param schema null: the one in which the connection finds the table
   * @param columns the other names, by field
   * @param cells the schemas of the cells, in their order: each message goes to that of its key; default: no cells
   * @param traceparent gives that of a message, or null; default: that of the active span of OpenTelemetry
   */
  public record Options(
      String table, String schema, Map<Field, String> columns, List<String> cells, Supplier<String> traceparent) {
    /** @throws EnqueueException for a bad name */
    public Options {
      columns = Map.copyOf(columns);
      cells = List.copyOf(cells);
      List<String> names = new ArrayList<>(cells);
      names.addAll(columns.values());
      names.add(table);
      if (schema != null) names.add(schema);
      if (names.stream().anyMatch(name -> name.isEmpty() || name.indexOf(0) >= 0))
        throw new EnqueueException(
            EnqueueException.Code.OPTIONS, "a name of a table, schema or column is empty, or holds a NUL");
    }

    public Options() {
      this("outbox", null, Map.of(), List.of(), ActiveSpan::traceparent);
    }

    public Options table(String name) {
      return new Options(name, schema, columns, cells, traceparent);
    }

    public Options schema(String name) {
      return new Options(table, name, columns, cells, traceparent);
    }

    public Options column(Field field, String name) {
      Map<Field, String> all = new EnumMap<>(Field.class);
      all.putAll(columns);
      all.put(field, name);
      return new Options(table, schema, all, cells, traceparent);
    }

    public Options cells(List<String> schemas) {
      return new Options(table, schema, columns, schemas, traceparent);
    }

    public Options traceparent(Supplier<String> active) {
      return new Options(table, schema, columns, cells, active);
    }
  }
}
