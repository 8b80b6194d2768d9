package io.github.svcrelay.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.zaxxer.hikari.HikariDataSource;
import io.github.svcrelay.client.testing.SvcDev;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Scope;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Function;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;

/** Runs the cases of clients/contract/cases.json, with the variables of clients/contract/README.md. */
public final class Contract {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Duration LIMIT = Duration.ofSeconds(20);

  private final HikariDataSource connections = new HikariDataSource();
  private boolean isOk = true;

  private Contract() {
    connections.setJdbcUrl(SvcDev.jdbcUrl(variable("DATABASE_URL")));
    connections.setMaximumPoolSize(12);
    connections.setMinimumIdle(1);
  }

  public static void main(String[] args) throws Exception {
    Contract contract = new Contract();
    JsonNode cases = JSON.readTree(Path.of(variable("CONTRACT_CASES")).toFile()).get("cases");
    for (String kind : List.of("enqueue", "enqueue-spring", "worker-sql", "worker-http", "once"))
      for (JsonNode each : cases) contract.run(kind, each);
    contract.connections.close();
    System.exit(contract.isOk ? 0 : 1);
  }

  private static String variable(String name) {
    String value = System.getenv(name);
    if (value == null) throw new IllegalStateException(name + " is not set: see clients/contract/README.md");
    return value;
  }

  private interface Case {
    void run(JsonNode each) throws Exception;
  }

  private void run(String kind, JsonNode each) {
    String[] parts = kind.split("-");
    if (!each.get("kind").asText().equals(parts[0])) return;
    if (each.has("transports") && !texts(each.get("transports")).contains(parts[1])) return;
    Case work = switch (kind) {
      case "enqueue" -> (it) -> enqueue(it, Jdbc::of);
      case "enqueue-spring" -> (it) -> enqueue(it, Contract::spring);
      case "worker-sql" -> (it) -> new WorkerCase<Connection>(it, "sql").run(sqlSource(it));
      case "worker-http" -> (it) -> new WorkerCase<Void>(it, "http").run(httpSource());
      default -> this::once;
    };
    String name = kind + " " + each.get("id").asText();
    try {
      work.run(each);
      System.out.println("ok " + name);
    } catch (Throwable error) {
      isOk = false;
      System.out.println("not ok " + name + ": " + error);
      if (System.getenv("CONTRACT_STACKS") != null) error.printStackTrace(System.out);
    }
  }

  // enqueue

  private interface Adapter {
    Transaction<? extends Exception> of(Connection connection) throws SQLException;
  }

  private static Transaction<? extends Exception> spring(Connection connection) {
    return SpringJdbc.of(new JdbcTemplate(new SingleConnectionDataSource(connection, true)));
  }

  private void enqueue(JsonNode each, Adapter adapter) throws Exception {
    dropSchemas(each);
    execute("TRUNCATE outbox");
    for (String statement : texts(each.path("setup"))) execute(statement);
    Outbox outbox = outboxOf(each.path("options"));
    try (Connection connection = connections.getConnection()) {
      Transaction<? extends Exception> tx = adapter.of(connection);
      for (JsonNode step : each.get("steps")) take(step, connection, outbox, tx);
    }
    checkRows(each);
    for (Map.Entry<String, JsonNode> cell : members(each.path("rowsByCell")).entrySet()) {
      List<JsonNode> rows = rows("SELECT key FROM " + cell.getKey() + ".outbox ORDER BY sequence");
      expect(cell.getKey(), elements(cell.getValue()), rows.stream().map(row -> row.get("key")).toList());
    }
    dropSchemas(each);
  }

  private void dropSchemas(JsonNode each) throws SQLException {
    for (String statement : texts(each.path("setup")))
      if (statement.startsWith("CREATE SCHEMA "))
        execute(statement.replace("CREATE SCHEMA ", "DROP SCHEMA IF EXISTS ") + " CASCADE");
  }

  private static Outbox outboxOf(JsonNode given) {
    Map<Outbox.Column, String> columns = new EnumMap<>(Outbox.Column.class);
    members(given.path("columns")).forEach((field, name) -> columns.put(columnOf(field), name.asText()));
    Outbox outbox = new Outbox().columns(columns).cells(texts(given.path("cells")));
    if (given.has("table")) outbox = outbox.table(given.get("table").asText());
    if (given.has("schema")) outbox = outbox.schema(given.get("schema").asText());
    return outbox;
  }

  private static Outbox.Column columnOf(String field) {
    return switch (field) {
      case "deliverAt" -> Outbox.Column.SCHEDULED_AT;
      case "expiresAt" -> Outbox.Column.EXPIRES_AT;
      default -> Outbox.Column.valueOf(field.toUpperCase(Locale.ROOT));
    };
  }

  private static void take(JsonNode step, Connection connection, Outbox outbox, Transaction<? extends Exception> tx)
      throws Exception {
    if (step.has("begin")) {
      connection.setAutoCommit(false);
    } else if (step.has("commit")) {
      connection.commit();
      connection.setAutoCommit(true);
    } else if (step.has("rollback")) {
      connection.rollback();
      connection.setAutoCommit(true);
    } else if (step.has("savepoint")) {
      execute(connection, "SAVEPOINT " + step.get("savepoint").asText());
    } else if (step.has("rollbackTo")) {
      execute(connection, "ROLLBACK TO " + step.get("rollbackTo").asText());
    } else {
      String error = null;
      List<String> ids = List.of();
      try (Scope span = withSpan(step.path("span").asText(null))) {
        ids = step.has("enqueue")
            ? List.of(outbox.enqueue(tx, message(step.get("enqueue"))))
            : outbox.enqueueMany(tx, elements(step.get("enqueueMany")).stream().map(Contract::message).toList());
      } catch (EnqueueException refused) {
        error = refused.code().name().toLowerCase(Locale.ROOT);
      }
      expect("the code of the error", step.path("error").asText(null), error);
      if (error == null) checkIds(ids, step.path("returns").asText(null));
    }
  }

  private static void checkIds(List<String> ids, String returns) {
    String uuid = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
    for (String id : ids) expect("an id that is a UUID: " + id, true, id.matches(uuid));
    if ("increasing-v7".equals(returns)) {
      expect("increasing ids", List.copyOf(new TreeSet<>(ids)), ids);
      for (String id : ids) expect("version 7 of " + id, true, id.matches(".{14}7.{4}[89ab].*"));
    } else if (returns != null) {
      expect("the ids", List.of(returns), ids);
    }
  }

  private static Scope withSpan(String traceparent) {
    if (traceparent == null) return Scope.noop();
    String[] parts = traceparent.split("-");
    TraceFlags flags = TraceFlags.fromHex(parts[3], 0);
    return Span.wrap(SpanContext.create(parts[1], parts[2], flags, TraceState.getDefault())).makeCurrent();
  }

  private static Message message(JsonNode given) {
    Message message = new Message(text(given.path("topic")));
    if (given.has("payload")) message.payload(given.get("payload"));
    members(given).forEach((name, value) -> {
      switch (name) {
        case "json" -> message.json(text(value));
        case "key" -> message.key(text(value));
        case "destination" -> message.destination(text(value));
        case "id" -> message.id(text(value));
        case "deliverAt" -> message.deliverAt(value.isNull() ? null : Instant.parse(value.asText()));
        case "expiresAt" -> message.expiresAt(value.isNull() ? null : Instant.parse(value.asText()));
        case "headers" -> message.headers(value.isNull() ? null : textsByName(value));
        default -> expect("a field of a message", true, Set.of("topic", "payload").contains(name));
      }
    });
    return message;
  }

  private static Map<String, String> textsByName(JsonNode value) {
    Map<String, String> texts = new LinkedHashMap<>();
    members(value).forEach((name, each) -> texts.put(name, text(each)));
    return texts;
  }

  private static String text(JsonNode value) {
    if (value.isNull() || value.isMissingNode()) return null;
    if (value.has("$surrogate")) return "a\ud83d";
    if (!value.has("$repeat")) return value.asText();
    String repeated = value.get("$repeat").get(0).asText().repeat(value.get("$repeat").get(1).asInt());
    return value.has("quoted") ? '"' + repeated + '"' : repeated;
  }

  private void checkRows(JsonNode each) throws Exception {
    if (!each.has("rows")) return;
    JsonNode options = each.path("options");
    JsonNode columns = options.path("columns");
    String payload = quoted(columns.path("payload").asText("payload"));
    String iso = "to_char(%s AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";
    List<JsonNode> rows = rows("SELECT id, topic, length(topic) AS \"topicLength\", "
        + quoted(columns.path("key").asText("key")) + " AS key, " + payload + " AS payload, length(" + payload
        + ") AS \"payloadLength\", headers, destination, state, " + String.format(iso, "scheduled_at")
        + " AS \"scheduledAt\", " + String.format(iso, "expires_at") + " AS \"expiresAt\" FROM "
        + quoted(options.path("schema").asText("public")) + "." + quoted(options.path("table").asText("outbox"))
        + " ORDER BY sequence");
    expect("rows", each.get("rows").size(), rows.size());
    for (int n = 0; n < rows.size(); n++)
      for (Map.Entry<String, JsonNode> column : members(each.get("rows").get(n)).entrySet())
        expect(column.getKey() + " of row " + n, column.getValue(), rows.get(n).get(column.getKey()));
  }

  // worker

  private SqlSource sqlSource(JsonNode each) {
    return new SqlSource(connections, "pulled", each.path("worker").path("maxAttempts").asInt(5));
  }

  private HttpSource httpSource() {
    return new HttpSource(variable("PULL_URL"), "pulled").header("authorization", "Bearer " + variable("PULL_TOKEN"))
        .waitFor(Duration.ofMillis(100));
  }

  /** The worker reads no clock but a monotonic one: a case with {@code clockOffsetMs} needs nothing more. */
  private final class WorkerCase<T> {
    private final JsonNode each;
    private final String transport;
    private final List<PulledMessage> calls = new CopyOnWriteArrayList<>();
    private final List<String> cancelled = new CopyOnWriteArrayList<>();
    private final List<String> violations = new CopyOnWriteArrayList<>();
    private final List<Thread> stops = new CopyOnWriteArrayList<>();
    private final Set<String> running = ConcurrentHashMap.newKeySet();
    private final List<Worker<T>> workers = new CopyOnWriteArrayList<>();

    WorkerCase(JsonNode each, String transport) {
      this.each = each;
      this.transport = transport;
    }

    void run(PullSource<T> source) throws Exception {
      execute("TRUNCATE inbox, written");
      for (JsonNode message : each.get("messages"))
        insert(message.get("id").asText(), message.get("aggregate").asText(null));
      JsonNode settings = each.path("worker");
      Duration retryDelay = Duration.ofMillis(settings.path("retryDelayMs").asInt(50));
      Worker.Options options = new Worker.Options().retryDelay(attempt -> retryDelay)
          .poll(Duration.ofMillis(20)).concurrency(settings.path("concurrency").asInt(1))
          .lease(Duration.ofMillis(settings.path("leaseMs").asInt(30_000)))
          .stopTimeout(Duration.ofMillis(settings.path("stopTimeoutMs").asInt(30_000)));
      try {
        for (int n = 0; n < each.path("workers").asInt(1); n++) workers.add(new Worker<>(source, this::handle, options));
        eventually(this::checkStates);
        for (Thread stop : stops) stop.join();
      } finally {
        for (Worker<T> worker : workers) worker.close();
      }
      expect("violations", List.of(), violations);
      members(each.path("order")).forEach((aggregate, ids) -> expect("calls of " + aggregate, texts(ids), calls.stream()
          .filter(call -> aggregate.equals(call.aggregateId())).map(PulledMessage::idempotencyKey).toList()));
      expect("cancelled", texts(each.path("cancelled")), cancelled);
      if (each.has("written")) {
        List<JsonNode> written = rows("SELECT id FROM written");
        expect("written", texts(each.get("written")), written.stream().map(row -> row.get("id").asText()).toList());
      }
    }

    private void insert(String id, String aggregate) throws SQLException {
      String sql = "INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, consumption)"
          + " VALUES ('pulled', ?, ?, ?, 'pull')";
      try (Connection connection = connections.getConnection()) {
        Jdbc.of(connection).query(sql, Arrays.asList(id, aggregate, "{\"id\":\"" + id + "\"}"));
      }
    }

    private void checkStates() throws Exception {
      Map<String, JsonNode> found = new HashMap<>();
      for (JsonNode row : rows("SELECT idempotency_key AS id, state, attempt, last_error AS \"lastError\", "
          + "claim_token IS NOT NULL AS \"isClaimed\" FROM inbox")) found.put(row.get("id").asText(), row);
      for (Map.Entry<String, JsonNode> state : members(each.get("states")).entrySet()) {
        JsonNode row = found.get(state.getKey());
        JsonNode wanted = state.getValue();
        if (transport.equals("http") && wanted.has("http")) wanted = wanted.get("http");
        for (Map.Entry<String, JsonNode> column : members(wanted).entrySet())
          if (!column.getKey().equals("http"))
            expect(column.getKey() + " of " + state.getKey(), column.getValue(), row.get(column.getKey()));
        expect("a claim of " + state.getKey(), false, row.get("isClaimed").asBoolean());
      }
      if (each.has("stopWhenStarted")) expect("stops", 1, stops.size());
    }

    private void handle(PulledMessage message, T transaction) throws Exception {
      String id = message.idempotencyKey();
      if (!message.json().equals("{\"id\":\"" + id + "\"}"))
        violations.add("the json of " + id + " is " + message.json());
      expect("the payload of " + id, id, message.payload().path("id").textValue());
      JsonNode scripts = each.get("handler");
      List<String> script = texts(scripts.has(id) ? scripts.get(id) : scripts.path("*"));
      int call = (int) calls.stream().filter(other -> other.idempotencyKey().equals(id)).count();
      calls.add(message);
      // Never two of an aggregate at a time, in any worker.
      String chain = message.aggregateId() == null ? id : message.aggregateId();
      if (!running.add(chain)) violations.add("two messages of " + chain + " at a time");
      try {
        for (JsonNode event : each.path("events"))
          if (call == 0 && event.get("whenStarted").asText().equals(id)) execute(event.get("sql").asText());
        if (each.path("stopWhenStarted").asText("").equals(id)) {
          Thread stop = new Thread(workers.get(0)::close);
          stop.start();
          stops.add(stop);
        }
        act(script.isEmpty() ? "ok" : script.get(Math.min(call, script.size() - 1)), id, transaction);
      } finally {
        running.remove(chain);
      }
    }

    private void act(String what, String id, T transaction) throws Exception {
      if (what.startsWith("wait:")) Thread.sleep(Long.parseLong(what.substring(5)));
      if (what.equals("until-cancelled")) {
        try {
          Thread.sleep(LIMIT.toMillis());
        } catch (InterruptedException error) {
          cancelled.add(id);
          throw error;
        }
      }
      if (what.startsWith("write") && transaction instanceof Connection connection)
        Jdbc.of(connection).query("INSERT INTO written VALUES (?)", List.of(id));
      if (what.equals("fail") || what.equals("write-then-fail")) throw new IllegalStateException("handler said no");
      if (what.equals("dead")) throw new DeadMessageException("never again");
    }
  }

  private static void eventually(Check check) throws Exception {
    for (long startedAt = System.nanoTime(); ; Thread.sleep(20)) {
      try {
        check.run();
        return;
      } catch (AssertionError error) {
        if (System.nanoTime() - startedAt > LIMIT.toNanos()) throw error;
      }
    }
  }

  private interface Check {
    void run() throws Exception;
  }

  // once

  private void once(JsonNode each) throws Exception {
    execute("TRUNCATE handled_messages");
    try (Connection connection = connections.getConnection()) {
      Jdbc tx = Jdbc.of(connection);
      for (JsonNode call : each.get("calls")) {
        if (call.has("forgetOlderThanMs")) {
          Once.forget(tx, Duration.ofMillis(call.get("forgetOlderThanMs").asLong()));
          continue;
        }
        List<String> runs = new ArrayList<>();
        String message = call.get("message").asText();
        connection.setAutoCommit(false);
        boolean isFirst = Once.run(tx, message, () -> runs.add(message));
        if (call.get("end").asText().equals("commit")) connection.commit();
        else connection.rollback();
        connection.setAutoCommit(true);
        expect("what once says of " + message, call.get("runs").asBoolean(), isFirst);
        expect("runs of " + message, call.get("runs").asBoolean() ? 1 : 0, runs.size());
      }
    }
  }

  // the database

  private void execute(String sql) throws SQLException {
    try (Connection connection = connections.getConnection()) {
      execute(connection, sql);
    }
  }

  private static void execute(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  private List<JsonNode> rows(String sql) throws Exception {
    List<JsonNode> rows = new ArrayList<>();
    try (Connection connection = connections.getConnection()) {
      String asJson = "SELECT row_to_json(r) AS row FROM (" + sql + ") r";
      for (Map<String, String> row : Jdbc.of(connection).query(asJson, List.of()))
        rows.add(JSON.readTree(row.get("row")));
    }
    return rows;
  }

  private static String quoted(String name) {
    return '"' + name.replace("\"", "\"\"") + '"';
  }

  // JSON

  private static void expect(String what, Object expected, Object found) {
    if (!Objects.equals(expected, found))
      throw new AssertionError(what + ": found " + found + ", expected " + expected);
  }

  private static List<JsonNode> elements(JsonNode list) {
    return listed(list.elements(), Function.identity());
  }

  private static List<String> texts(JsonNode list) {
    return listed(list.elements(), JsonNode::asText);
  }

  private static <T> List<T> listed(Iterator<JsonNode> nodes, Function<JsonNode, T> to) {
    List<T> all = new ArrayList<>();
    nodes.forEachRemaining(node -> all.add(to.apply(node)));
    return all;
  }

  private static Map<String, JsonNode> members(JsonNode object) {
    Map<String, JsonNode> all = new LinkedHashMap<>();
    object.properties().forEach(member -> all.put(member.getKey(), member.getValue()));
    return all;
  }
}
