package io.github.svcrelay.client;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A received message.
 *
 * @param aggregateId null: the message has no order
 * @param idempotencyKey unique in its source
 * @param attempt claims so far, this one included
 * @param json the received text; over HTTP, what is no JSON comes as a JSON string
 */
public record PulledMessage(
    String id,
    String aggregateId,
    String eventType,
    String idempotencyKey,
    String correlationId,
    int attempt,
    Map<String, String> headers,
    String json) {

  /** A member that is not a text stays JSON. */
  static Map<String, String> headersOf(Object members) {
    Map<String, String> headers = new LinkedHashMap<>();
    if (members instanceof Map<?, ?> map)
      map.forEach((name, value) -> headers.put((String) name, value instanceof String text ? text : Json.write(value)));
    return headers;
  }
}
