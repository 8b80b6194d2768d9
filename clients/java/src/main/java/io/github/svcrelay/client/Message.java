package io.github.svcrelay.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import io.github.svcrelay.client.EnqueueException.Code;
import io.github.svcrelay.client.Outbox.Column;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import java.security.SecureRandom;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;

/**
 * A message for the outbox: {@code new Message("orders.paid").key("o-1").payload(order)}. It has exactly one of
 * {@code payload} and {@code json}; other fields may be null: absent. Each method changes and returns the message, which is
 * for one thread at a time, and throws {@link EnqueueException} for what the database would refuse.
 */
public final class Message {
  private static final Pattern UUID_TEXT = Pattern.compile("(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
  /** SQL Server has times of these years only. */
  private static final Instant EARLIEST = Instant.parse("0001-01-01T00:00:00Z");
  private static final Instant LATEST = Instant.parse("+10000-01-01T00:00:00Z");
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final AtomicLong LAST_TICK = new AtomicLong();

  private final Map<Column, String> row = new EnumMap<>(Column.class);
  private Map<String, String> headers = Map.of();

  /** @param topic selects the route, such as {@code orders.paid}; not blank, at most 1000 characters */
  public Message(String topic) {
    if (topic == null || topic.isBlank())
      throw new EnqueueException(Code.TOPIC, "the topic is missing or blank, expected one such as orders.paid");
    text(Column.TOPIC, Code.TOPIC, topic, 1000);
  }

  /** Any value that an {@code ObjectMapper} of Jackson writes, with the modules of the class path; null is the JSON null. */
  public Message payload(Object value) {
    try {
      return json(Json.write(value));
    } catch (JsonProcessingException error) {
      throw notJson(error);
    }
  }

  /** JSON text, which is sent byte for byte. */
  public Message json(String text) {
    try {
      Json.check(checked(Code.PAYLOAD, text, Integer.MAX_VALUE));
    } catch (JsonProcessingException error) {
      throw notJson(error);
    }
    if (row.put(Column.PAYLOAD, text) == null) return this;
    throw new EnqueueException(Code.PAYLOAD, "found two payloads, expected exactly one of payload and json");
  }

  private static RuntimeException notJson(JsonProcessingException error) {
    String reason = "the payload is not JSON: " + error.getOriginalMessage();
    return (RuntimeException) new EnqueueException(Code.PAYLOAD, reason).initCause(error);
  }

  /** Messages of one key are delivered in order; at most 800 characters. Without one a message has no order. */
  public Message key(String text) {
    return text(Column.KEY, Code.KEY, text, 800);
  }

  /** Names and texts; without a {@code traceparent}, the active span of OpenTelemetry gives it. */
  public Message headers(Map<String, String> all) {
    headers = all == null ? Map.of() : new LinkedHashMap<>(all);
    headers.forEach((name, value) -> {
      checked(Code.HEADERS, name, Integer.MAX_VALUE);
      checked(Code.HEADERS, value, Integer.MAX_VALUE);
    });
    return this;
  }

  /** The name of a destination, whatever the routes say; at most 200 characters. */
  public Message destination(String name) {
    return text(Column.DESTINATION, Code.DESTINATION, name, 200);
  }

  /** Not before this instant, of the years 1 to 9999, in microseconds. */
  public Message deliverAt(Instant instant) {
    return time(Column.SCHEDULED_AT, instant);
  }

  /** Not after this instant, of the years 1 to 9999, in microseconds. */
  public Message expiresAt(Instant instant) {
    return time(Column.EXPIRES_AT, instant);
  }

  /** A UUID, by default a new one of version 7 each time the message is enqueued. Receivers de-duplicate by it. */
  public Message id(String uuid) {
    if (uuid != null && !UUID_TEXT.matcher(uuid).matches())
      throw new EnqueueException(Code.ID, "the id is \"" + uuid + "\", expected a UUID");
    return text(Column.ID, Code.ID, uuid, 36);
  }

  private Message text(Column column, Code code, String text, int most) {
    row.put(column, text == null ? null : checked(code, text, most));
    return this;
  }

  private Message time(Column column, Instant instant) {
    if (instant != null && (instant.isBefore(EARLIEST) || !instant.isBefore(LATEST)))
      throw new EnqueueException(Code.TIME, "found " + instant + ", expected an instant of the years 1 to 9999");
    row.put(column, instant == null ? null : instant.truncatedTo(ChronoUnit.MICROS).toString());
    return this;
  }

  private static String checked(Code code, String text, int most) {
    String name = "the " + code.name().toLowerCase(Locale.ROOT);
    if (text == null) throw new EnqueueException(code, name + " is or holds null, expected a text");
    if (text.length() > most)
      throw new EnqueueException(code, name + " has " + text.length() + " characters, at most " + most + " fit");
    if (text.indexOf(0) >= 0) throw new EnqueueException(code, name + " holds a NUL, which no database stores");
    if (text.codePoints().anyMatch(c -> Character.getType(c) == Character.SURROGATE))
      throw new EnqueueException(code, name + " holds half of a surrogate pair, expected whole characters");
    return text;
  }

  /** The columns that the message fills. */
  Map<Column, String> row() {
    if (!row.containsKey(Column.PAYLOAD))
      throw new EnqueueException(Code.PAYLOAD, "the payload is missing, expected payload or json");
    Map<Column, String> all = new EnumMap<>(row);
    all.putIfAbsent(Column.ID, newId());
    Map<String, String> named = new LinkedHashMap<>(headers);
    String traceparent = activeTraceparent();
    if (traceparent != null && named.keySet().stream().noneMatch("traceparent"::equalsIgnoreCase))
      named.put("traceparent", traceparent);
    if (!named.isEmpty()) all.put(Column.HEADERS, Json.MAPPER.valueToTree(named).toString());
    return all;
  }

  /** The active span of OpenTelemetry; null without one, or without its API on the class path. */
  private static String activeTraceparent() {
    try {
      SpanContext span = Span.current().getSpanContext();
      if (!span.isValid()) return null;
      return "00-" + span.getTraceId() + "-" + span.getSpanId() + "-" + span.getTraceFlags().asHex();
    } catch (LinkageError error) {
      return null;
    }
  }

  /** A UUID of version 7 (RFC 9562), larger than the earlier ones of this process. */
  static String newId() {
    // 48 bits of the time in ms and 12 that count; 62 at random.
    long tick = LAST_TICK.updateAndGet(last -> Math.max(last + 1, System.currentTimeMillis() << 12));
    long high = tick >>> 12 << 16 | 0x7000 | tick & 0xfff;
    return new UUID(high, Long.MIN_VALUE | RANDOM.nextLong() >>> 2).toString();
  }
}
