package io.github.svcrelay.client;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
  @ParameterizedTest
  @ValueSource(strings = {
    "null", "true", " false\n", "0", "-0", "-1.5e+10", "1E400", "12345678901234567890", "\"\"",
    "\"é😀\\u00e9\\n\\/\"", "[]", "{}",
    "[ ]", "{ }", "[1,[2],{}]", "{\"a\":{\"b\":[true,null]},\"a\":1}", "\t[\r\n1 , 2 ] "
  })
  void acceptsJson(String text) {
    assertDoesNotThrow(() -> Json.parse(text, 0));
  }

  @ParameterizedTest
  @ValueSource(strings = {
    "", " ", "nul", "nulll", "True", "01", "1.", ".5", "+1", "1e", "--1", "NaN", "Infinity", "\"", "\"a",
    "\"\n\"", "\"\\x\"", "\"\\u12g4\"", "\"\\u123\"", "\"\\u\uff11\uff12\uff13\uff14\"",
    "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "]", "{", "{a:1}",
     "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":1 \"b\":2}",
    "{1:2}", "[1}", "{\"a\":1]", "1 2", "{} {}", "'a'", "\u00a01", "\ufeff1", "\"\\"
  })
  void refusesOthers(String text) {
    assertThrows(IllegalArgumentException.class, () -> Json.parse(text, 0));
  }

  @Test
  void saysWhatWasFoundAndExpected() {
    var error = assertThrows(IllegalArgumentException.class, () -> Json.parse("{\"a\": x}", 0));
    assertEquals("found U+0078 at character 6, expected a value", error.getMessage());
  }

  @Test
  void checksAnyDepth() {
    assertDoesNotThrow(() -> Json.parse("[".repeat(1_000_000) + "]".repeat(1_000_000), 0));
    assertDoesNotThrow(() -> Json.parse("{\"a\":".repeat(1_000_000) + "1" + "}".repeat(1_000_000), 0));
    assertThrows(IllegalArgumentException.class, () -> Json.parse("[".repeat(1_000_000), 0));
  }

  @Test
  void parsesWithRawMembers() {
    assertEquals(
        Map.of("messages",
            List.of(Map.of("payload", "{\"n\": 1.0}", "headers", Map.of("payload", "text"), "attempt", 2.0))),
        Json.parse("{\"messages\":[{\"payload\": {\"n\": 1.0} ,\"headers\":{\"payload\":\"text\"},\"attempt\":2}]}", 3));
    assertEquals(Arrays.asList(null, true, "a\n\u00e9\ud83d\ude00"), Json.parse("[null,true,\"a\\n\\u00e9\\ud83d\\ude00\"]", 0));
  }

  @Test
  void writesValues() {
    Map<String, Object> map = new LinkedHashMap<>();
    map.put("text", "\"\\/é😀\n\u0000\ud83d");
    map.put("numbers", List.of(1, 2L, 0.5, new BigDecimal("1.10"), new BigInteger("12345678901234567890"), 1e300));
    map.put("others", Arrays.asList(null, true, Map.of(), List.of()));
    assertEquals("{\"text\":\"\\\"\\\\/é😀\\u000a\\u0000\\ud83d\",\"numbers\":[1,2,0.5,1.10,12345678901234567890,1.0E300],"
        + "\"others\":[null,true,{},[]]}", Json.write(map));
  }

  @Test
  void refusesValuesWithoutJson() {
    for (Object value : List.of(Double.NaN, Float.POSITIVE_INFINITY, new Date(), 'c', List.of(new Object())))
      assertThrows(IllegalArgumentException.class, () -> Json.write(value));
    List<Object> itself = new ArrayList<>();
    itself.add(itself);
    assertThrows(StackOverflowError.class, () -> Json.write(itself));
  }
}
