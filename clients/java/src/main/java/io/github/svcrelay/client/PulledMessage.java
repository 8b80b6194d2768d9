package io.github.svcrelay.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A received message.
 *
 * @param aggregateId null: the message has no order
 * @param eventType null: none
 * @param idempotencyKey unique in its source
 * @param correlationId null: none
 * @param attempt claims so far, this one included
 * @param headers a header that is not a text stays JSON
 * @param json the received text; over HTTP, what is no JSON comes as a JSON string
 */
public record PulledMessage(String id, String aggregateId, String eventType, String idempotencyKey,
    String correlationId, int attempt, Map<String, String> headers, String json) {
  /**
   * {@code json}, parsed at each call, with all digits of its numbers; the text itself if it is no JSON, or an exponent is
   * beyond an int.
   */
  public JsonNode payload() {
    try {
      return Json.parse(json);
    } catch (JsonProcessingException | NumberFormatException error) {
      return TextNode.valueOf(json);
    }
  }

  static Map<String, String> headersOf(JsonNode members) {
    Map<String, String> headers = new LinkedHashMap<>();
    members.properties().forEach(member -> {
      JsonNode value = member.getValue();
      headers.put(member.getKey(), value.isTextual() ? value.textValue() : value.toString());
    });
    return headers;
  }
}
