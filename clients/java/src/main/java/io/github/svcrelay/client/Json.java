package io.github.svcrelay.client;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.annotation.JsonDeserialize;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.deser.std.NullifyingDeserializer;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.util.regex.Pattern;

/** The JSON of the client. */
final class Json {
  /** The database limits a payload, not the client. */
  private static final StreamReadConstraints NO_LIMITS = StreamReadConstraints.builder().maxNestingDepth(Integer.MAX_VALUE)
      .maxNumberLength(Integer.MAX_VALUE).maxStringLength(Integer.MAX_VALUE).maxNameLength(Integer.MAX_VALUE).build();
  private static final JsonFactory FACTORY = JsonFactory.builder().streamReadConstraints(NO_LIMITS)
      .enable(StreamReadFeature.USE_FAST_BIG_NUMBER_PARSER).build();
  /** Numbers keep all their digits. */
  static final ObjectMapper MAPPER = JsonMapper.builder(FACTORY)
      .findAndAddModules()
      .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
      .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
      .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
      .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
      .disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS)
      .build();
  private static final Pattern HALF_PAIR = Pattern.compile("\\p{Cs}");

  private Json() {}

  /** The text of a value, not JSON if it holds a NaN; half of a surrogate pair is escaped, since no database stores it. */
  static String write(Object value) throws JsonProcessingException {
    return HALF_PAIR.matcher(MAPPER.writeValueAsString(value))
        .replaceAll(half -> String.format("\\\\u%04x", (int) half.group().charAt(0)));
  }

  /** A value that Jackson skips: no number is too large for it. */
  @JsonDeserialize(using = NullifyingDeserializer.class)
  private static final class Any {}

  /** @throws JsonProcessingException unless the text is exactly one value */
  static void check(String text) throws JsonProcessingException {
    MAPPER.readValue(text, Any.class);
  }

  /** @throws JsonProcessingException unless the text is exactly one value, whose exponents fit */
  static JsonNode parse(String text) throws JsonProcessingException {
    return MAPPER.readValue(text, JsonNode.class);
  }
}
