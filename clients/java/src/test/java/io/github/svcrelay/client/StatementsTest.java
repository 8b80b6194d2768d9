package io.github.svcrelay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class StatementsTest {
  @ParameterizedTest
  @ValueSource(strings = {"claim", "renew", "complete", "retry", "dead", "release"})
  void areThoseOfTheDocumentation(String name) throws Exception {
    Path original = Path.of("../../docs/examples/pull", name + ".sql");
    Assumptions.assumeTrue(Files.exists(original), "the client stands alone, without docs/examples/pull");
    try (var copy = SqlSource.class.getResourceAsStream("sql/" + name + ".sql")) {
      assertEquals(Files.readString(original), new String(copy.readAllBytes(), StandardCharsets.UTF_8));
    }
  }
}
