package io.github.svcrelay.client;

import io.github.svcrelay.client.EnqueueException.Code;
import io.github.svcrelay.client.Outbox.Field;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.function.Supplier;
import java.util.regex.Pattern;

/** A message for the outbox: {@code Message.builder("orders.paid").key("o-1").json(text).build()}. */
public final class Message {
  private static final Pattern UUID = Pattern.compile("(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
  /** SQL Server has times of these years only. */
  private static final Instant EARLIEST = Instant.parse("0001-01-01T00:00:00Z");
  private static final Instant LATEST = Instant.parse("+10000-01-01T00:00:00Z");

  private final Map<Field, String> row;
  private final Map<String, String> headers;

  private Message(Map<Field, String> row, Map<String, String> headers) {
    this.row = new EnumMap<>(row);
    this.headers = headers;
  }

  /**
   * @param topic selects the route, such as {@code orders.paid}; at most 1000 characters
   * @throws EnqueueException for what the database would refuse, as each method of the builder
   */
  public static Builder builder(String topic) {
    return new Builder(topic);
  }

  /** The fields of a message: exactly one of {@code payload} and {@code json} is required. Others may be null: absent. */
  public static final class Builder {
    private final Map<Field, String> row = new EnumMap<>(Field.class);
    private Map<String, String> headers = Map.of();

    private Builder(String topic) {
      if (topic == null || topic.isBlank())
        throw new EnqueueException(Code.TOPIC, "the topic is missing or blank, expected one such as orders.paid");
      text(Field.TOPIC, Code.TOPIC, topic, 1000);
    }

    /** A Map, List, String, Number, Boolean or null, which is written as JSON. */
    public Builder payload(Object value) {
      return payloadOf(() -> Json.write(value));
    }

    /** JSON text, such as that of your JSON library, which is sent byte for byte. */
    public Builder json(String text) {
      return payloadOf(() -> {
        Json.parse(checked(Code.PAYLOAD, text, Integer.MAX_VALUE), 0);
        return text;
      });
    }

    /** Messages of one key are delivered in order; at most 800 characters. Without one a message has no order. */
    public Builder key(String text) {
      return text(Field.KEY, Code.KEY, text, 800);
    }

    public Builder headers(Map<String, String> all) {
      headers = all == null ? Map.of() : new LinkedHashMap<>(all);
      headers.forEach((name, value) -> {
        checked(Code.HEADERS, name, Integer.MAX_VALUE);
        checked(Code.HEADERS, value, Integer.MAX_VALUE);
      });
      return this;
    }

    /** The name of a destination, whatever the routes say; at most 200 characters. */
    public Builder destination(String name) {
      return text(Field.DESTINATION, Code.DESTINATION, name, 200);
    }

    /** Not before this instant. */
    public Builder deliverAt(Instant instant) {
      return time(Field.DELIVER_AT, instant);
    }

    /** Not after this instant. */
    public Builder expiresAt(Instant instant) {
      return time(Field.EXPIRES_AT, instant);
    }

    /** A UUID, by default a new one of version 7 each time the message is enqueued. Receivers de-duplicate by it. */
    public Builder id(String uuid) {
      if (uuid != null && !UUID.matcher(uuid).matches())
        throw new EnqueueException(Code.ID, "the id is \"" + uuid + "\", expected a UUID");
      return text(Field.ID, Code.ID, uuid, 36);
    }

    public Message build() {
      if (!row.containsKey(Field.PAYLOAD))
        throw new EnqueueException(Code.PAYLOAD, "the payload is missing, expected payload or json");
      return new Message(row, headers);
    }

    private Builder payloadOf(Supplier<String> text) {
      try {
        if (row.put(Field.PAYLOAD, text.get()) == null) return this;
      } catch (IllegalArgumentException error) {
        throw new EnqueueException(Code.PAYLOAD, error.getMessage());
      } catch (StackOverflowError error) {
        throw new EnqueueException(Code.PAYLOAD, "the payload is nested too deep, or holds itself");
      }
      throw new EnqueueException(Code.PAYLOAD, "found two payloads, expected exactly one of payload and json");
    }

    private Builder text(Field field, Code code, String text, int most) {
      row.put(field, text == null ? null : checked(code, text, most));
      return this;
    }

    private Builder time(Field field, Instant instant) {
      if (instant != null && (instant.isBefore(EARLIEST) || !instant.isBefore(LATEST)))
        throw new EnqueueException(Code.TIME, "found " + instant + ", expected an instant of the years 1 to 9999");
      row.put(field, instant == null ? null : instant.truncatedTo(ChronoUnit.MICROS).toString());
      return this;
    }
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

  /** The message as its row has it. */
  Map<Field, String> row(Supplier<String> traceparent) {
    Map<Field, String> all = new EnumMap<>(row);
    if (all.get(Field.ID) == null) all.put(Field.ID, Ids.next());
    Map<String, String> named = new LinkedHashMap<>(headers);
    String active = named.keySet().stream().anyMatch("traceparent"::equalsIgnoreCase) ? null : traceparent.get();
    if (active != null) named.put("traceparent", active);
    if (!named.isEmpty()) all.put(Field.HEADERS, Json.write(named));
    return all;
  }
}
