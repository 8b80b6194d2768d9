package io.github.svcrelay.client;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;

import io.github.svcrelay.client.EnqueueException.Code;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
  private static Message json(String text) {
    return new Message("t").json(text);
  }

  private static String payload(Object value) {
    return new Message("t").payload(value).row().get(Outbox.Column.PAYLOAD);
  }

  @ParameterizedTest
  @ValueSource(strings = {
    "null", "true", " false\n", "0", "-0", "-1.5e+10", "1E400", "1e99999999999", "12345678901234567890", "\"\"",
    "\"é😀\\u00e9\\n\\/\"", "[]", "{}",
    "[ ]", "{ }", "[1,[2],{}]", "{\"a\":{\"b\":[true,null]},\"a\":1}", "\t[\r\n1 , 2 ] "
  })
  void sendsJsonByteForByte(String text) {
    assertEquals(text, json(text).row().get(Outbox.Column.PAYLOAD));
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
    assertEquals(Code.PAYLOAD, assertThrows(EnqueueException.class, () -> json(text)).code());
  }

  @Test
  void checksAnyLength() {
    assertDoesNotThrow(() -> json("[".repeat(100_000) + "]".repeat(100_000)));
    assertDoesNotThrow(() -> json("{\"a\":".repeat(100_000) + "1" + "}".repeat(100_000)));
    assertDoesNotThrow(() -> json("1".repeat(1_000_000)));
    assertThrows(EnqueueException.class, () -> json("[".repeat(100_000)));
    // With the quadratic parser of the JDK this takes 15 s.
    assertTimeout(Duration.ofSeconds(5), () -> received("1".repeat(1_000_000)).payload().isBigInteger());
  }

  @Test
  void writesValues() {
    Map<String, Object> map = new LinkedHashMap<>();
    map.put("text", "\"\\/é😀\n\u0000\ud83d$");
    map.put("numbers", List.of(1, 2L, 0.5, new BigDecimal("1.10"), new BigInteger("12345678901234567890"), 1e300));
    map.put("others", Arrays.asList(null, true, Map.of(), List.of(), new Point(1, 2)));
    assertEquals("{\"text\":\"\\\"\\\\/é😀\\n\\u0000\\ud83d$\",\"numbers\":[1,2,0.5,1.10,12345678901234567890,1.0E300],"
        + "\"others\":[null,true,{},[],{\"x\":1,\"y\":2}]}", payload(map));
    assertEquals("null", payload(null));
  }

  private record Point(int x, int y) {}

  @Test
  void refusesValuesWithoutJson() {
    List<Object> itself = new ArrayList<>();
    itself.add(itself);
    for (Object value : List.of(new Object(), itself, Double.NaN, List.of(Float.NEGATIVE_INFINITY)))
      assertEquals(Code.PAYLOAD, assertThrows(EnqueueException.class, () -> payload(value)).code());
  }

  @Test
  void saysWhatIsWrong() {
    var error = assertThrows(EnqueueException.class, () -> json("{\"a\":1,}"));
    assertEquals("the payload is not JSON: Unexpected character ('}' (code 125)): was expecting double-quote to start"
        + " field name", error.getMessage());
  }

  @Test
  void parsesWithAllDigits() {
    String numbers = "[12345678901234567890,1.10,0.12345678901234567890]";
    assertEquals(numbers, received(numbers).payload().toString());
    assertEquals("no json", received("no json").payload().textValue());
    assertEquals("1 2", received("1 2").payload().textValue());
    assertEquals("", received("").payload().textValue());
    assertEquals("1e99999999999", received("1e99999999999").payload().textValue());
  }

  private static PulledMessage received(String json) {
    return new PulledMessage("id", null, null, "id", null, 1, Map.of(), json);
  }
}
