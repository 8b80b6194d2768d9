package io.github.svcrelay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.svcrelay.client.EnqueueException.Code;
import io.github.svcrelay.client.Outbox.Column;
import io.github.svcrelay.client.Transaction.Dialect;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Scope;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class OutboxTest {
  private static final String ID = "5f0c1c52-6d0e-5b38-9c1e-0a4b7d2f9e11";

  /** Remembers its statements. */
  private static final class Written implements Transaction<RuntimeException> {
    final List<String> statements = new ArrayList<>();
    final List<List<String>> values = new ArrayList<>();
    final Dialect dialect;

    Written(Dialect dialect) {
      this.dialect = dialect;
    }

    @Override
    public Dialect dialect() {
      return dialect;
    }

    @Override
    public boolean isAutoCommit() {
      return true;
    }

    @Override
    public List<Map<String, String>> query(String sql, List<String> given) {
      statements.add(sql);
      values.add(given);
      return List.of();
    }
  }

  @Test
  void writesOnlyTheColumnsOfTheMessage() {
    Written tx = new Written(Dialect.POSTGRESQL);
    assertEquals(ID, new Outbox().enqueue(tx, new Message("t").json("1").id(ID)));
    String insert = "INSERT INTO \"outbox\" (\"id\", \"topic\", \"payload\") VALUES (?::uuid, ?, ?)";
    assertEquals(List.of(insert), tx.statements);
    assertEquals(List.of(List.of(ID, "t", "1")), tx.values);
  }

  @Test
  void givesDefaultsToTheOthers() {
    Written tx = new Written(Dialect.POSTGRESQL);
    new Outbox().enqueueMany(tx, List.of(
        new Message("a").json("1").id(ID),
        new Message("b").json("2").id(ID).key("k").headers(Map.of("h", "v")).destination("d")
            .deliverAt(Instant.parse("2031-02-03T04:05:06.123456789Z")).expiresAt(Instant.EPOCH)));
    assertEquals(List.of("INSERT INTO \"outbox\" (\"id\", \"topic\", \"payload\", \"key\", \"headers\", "
        + "\"destination\", \"scheduled_at\", \"expires_at\") VALUES (?::uuid, ?, ?, ?, DEFAULT, ?, DEFAULT, ?::timestamptz), "
        + "(?::uuid, ?, ?, ?, ?::jsonb, ?, ?::timestamptz, ?::timestamptz)"), tx.statements);
    assertEquals(List.of(Arrays.asList(ID, "a", "1", null, null, null, ID, "b", "2", "k", "{\"h\":\"v\"}", "d",
        "2031-02-03T04:05:06.123456Z", "1970-01-01T00:00:00Z")), tx.values);
  }

  @Test
  void writesForSqlServer() {
    Written tx = new Written(Dialect.SQLSERVER);
    Outbox outbox = new Outbox().schema("a]b").table("Out").columns(Map.of(Column.PAYLOAD, "the body"));
    outbox.enqueue(tx, new Message("t").payload(Map.of()).key("k").id(ID));
    String insert = "INSERT INTO [a]]b].[Out] ([id], [topic], [the body], [key]) VALUES (?, ?, ?, ?)";
    assertEquals(List.of(insert), tx.statements);
  }

  @Test
  void splitsLongLists() {
    Written tx = new Written(Dialect.SQLSERVER);
    Message message = new Message("t").payload(null);
    List<String> ids = new Outbox().enqueueMany(tx, Collections.nCopies(600, message));
    assertEquals(List.of(250, 250, 100), tx.values.stream().map(values -> values.size() / 3).toList());
    assertEquals(600, ids.stream().distinct().count());
    assertEquals(ids, ids.stream().sorted().toList());
  }

  @Test
  void countsIdsUp() {
    List<String> ids = IntStream.range(0, 100_000).mapToObj(n -> Message.newId()).toList();
    assertEquals(ids, ids.stream().distinct().sorted().toList());
    assertTrue(ids.get(0).matches("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  }

  @Test
  void takesTheTraceparentOfTheActiveSpan() {
    Written tx = new Written(Dialect.POSTGRESQL);
    SpanContext span = SpanContext.create(
        "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", TraceFlags.getSampled(), TraceState.getDefault());
    try (Scope active = Span.wrap(span).makeCurrent()) {
      new Outbox().enqueue(tx, new Message("t").json("1").id(ID));
      new Outbox().enqueue(tx, new Message("t").json("1").id(ID).headers(Map.of("TraceParent", "own")));
    }
    String traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assertEquals("{\"traceparent\":\"" + traceparent + "\"}", tx.values.get(0).get(3));
    assertEquals("{\"TraceParent\":\"own\"}", tx.values.get(1).get(3));
  }

  @ParameterizedTest
  @EnumSource(Dialect.class)
  void refusesBeforeAnyStatement(Dialect dialect) {
    Written tx = new Written(dialect);
    List<Object> itself = new ArrayList<>();
    itself.add(itself);
    assertEquals(Code.PAYLOAD, refused(tx, () -> new Message("t").payload(itself)));
    assertEquals(Code.PAYLOAD, refused(tx, () -> new Message("t").json(null)));
    assertEquals(Code.TOPIC, refused(tx, () -> new Message(null).json("1")));
    assertEquals(Code.PAYLOAD, refused(tx, () -> new Message("t")));
    assertEquals(Code.PAYLOAD, refused(tx, () -> new Message("t").payload(new Object())));
    assertEquals(Code.PAYLOAD, refused(tx, () -> new Message("t").json("\"\ud83d\"")));
    assertEquals(Code.KEY, refused(tx, () -> new Message("t").json("1").key("\ude00")));
    Map<String, String> nothing = Collections.singletonMap("a", null);
    assertEquals(Code.HEADERS, refused(tx, () -> new Message("t").json("1").headers(nothing)));
    assertEquals(Code.TIME, refused(tx, () -> new Message("t").json("1").deliverAt(Instant.MAX)));
    assertEquals(Code.TIME, refused(tx, () -> new Message("t").json("1").expiresAt(Instant.MIN)));
    assertEquals(Code.ID, refused(tx, () -> new Message("t").json("1").id("")));
    assertTrue(tx.statements.isEmpty());
  }

  private static Code refused(Written tx, Supplier<Message> message) {
    var error = assertThrows(EnqueueException.class, () -> new Outbox().enqueue(tx, message.get()));
    assertFalse(error.getMessage().isBlank());
    return error.code();
  }

  @ParameterizedTest
  @EnumSource(Dialect.class)
  void onceNeedsATransaction(Dialect dialect) {
    Written tx = new Written(dialect);
    assertThrows(IllegalStateException.class, () -> Once.run(tx, "m1", () -> {}));
    assertTrue(tx.statements.isEmpty());
  }

  @Test
  void refusesBadNames() {
    for (String name : List.of("", "a\0b")) {
      Outbox outbox = new Outbox();
      assertEquals(Code.OPTIONS, assertThrows(EnqueueException.class, () -> outbox.table(name)).code());
      assertThrows(EnqueueException.class, () -> outbox.schema(name));
      assertThrows(EnqueueException.class, () -> outbox.columns(Map.of(Column.KEY, name)));
      assertThrows(EnqueueException.class, () -> outbox.cells(List.of("cell_0", name)));
    }
  }
}
