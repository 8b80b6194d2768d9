package io.github.svcrelay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.sun.net.httpserver.HttpServer;
import io.github.svcrelay.client.Worker.Result;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(20)
class HttpSourceTest {
  private final BlockingQueue<String> requests = new LinkedBlockingQueue<>();
  private HttpServer server;
  private HttpSource source;
  private volatile int status = 200;
  private volatile String answer = "";

  @BeforeEach
  void start() throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/", exchange -> {
      try (exchange) {
        String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        requests.add(exchange.getRequestURI() + " " + exchange.getRequestHeaders().getFirst("authorization") + " " + body);
        byte[] text = answer.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, text.length);
        exchange.getResponseBody().write(text);
      }
    });
    server.start();
    source = new HttpSource("http://127.0.0.1:" + server.getAddress().getPort() + "/pull/", "a b/c")
        .header("authorization", "Bearer t");
  }

  @AfterEach
  void stop() {
    server.stop(0);
  }

  @Test
  void keepsTheTextOfPayloads() throws Exception {
    List<String> payloads = List.of("{\"n\": 12345678901234567890, \"a\":1.0,\n\"b\":[\"\\u00e9é😀\"] }", "\"a\\\"}\"",
        " 1.10e5 ".strip(), "null", "[]", "true", "\"\"", "[".repeat(5000) + "]".repeat(5000));
    StringBuilder messages = new StringBuilder();
    for (String payload : payloads)
      messages.append(messages.isEmpty() ? "" : ",").append("{\"id\":\"i\",\"new\":{},\"attempt\":2, \"payload\" : ")
          .append(payload).append(" ,\"headers\":{\"payload\":\"text\",\"n\":1.10,\"o\":{\"a\":[1]}}}");
    answer = "{\"claimToken\":\"token\",\"leaseMs\":1,\"messages\":[" + messages + "]}";
    PullSource.Claim claim = source.claim(10, Duration.ofSeconds(1));
    assertEquals("token", claim.token());
    assertEquals(payloads, claim.messages().stream().map(PulledMessage::json).toList());
    for (PulledMessage message : claim.messages())
      assertEquals(Map.of("payload", "text", "n", "1.10", "o", "{\"a\":[1]}"), message.headers());
    assertEquals(2, claim.messages().get(0).attempt());
    String request = requests.remove();
    String start = "/pull/a%20b%2Fc/claim Bearer t {";
    assertEquals(start, request.substring(0, start.length()));
  }

  @Test
  void saysWhatTheServiceAnswered() {
    status = 503;
    answer = "busy";
    var error = assertThrows(IOException.class, () -> source.claim(1, Duration.ofSeconds(1)));
    assertEquals("found 503 busy, expected 200", error.getMessage().replaceFirst("^\\S+ ", ""));
  }

  @Test
  void takesALossFromTheAnswer() throws Exception {
    status = 409;
    answer = "{\"acknowledged\":[],\"extended\":[]}";
    PullSource.Claim claim = new PullSource.Claim("token", List.of());
    assertEquals(false, source.handled(claim, "i", transaction -> {}));
    assertEquals(0, source.renew(claim, List.of("i"), Duration.ofSeconds(1)).size());
  }

  @Test
  void takesTheEndOfAnAttemptFromTheAnswer() throws Exception {
    PullSource.Claim claim = new PullSource.Claim("token", List.of());
    assertEquals(false, source.dead(claim, "i", "never"));
    assertEquals(0, requests.size());
    answer = "{\"retried\":[\"i\"],\"dead\":[\"j\"],\"released\":[],\"lost\":[\"k\"]}";
    assertEquals(Result.RETRY, source.retry(claim, "i", Duration.ofSeconds(2), "why"));
    assertEquals("2000", requests.remove().replaceFirst(".*\"delayMs\":(\\d+).*", "$1"));
    assertEquals(Result.DEAD, source.retry(claim, "j", Duration.ZERO, "why"));
    assertEquals(Result.LOST, source.retry(claim, "k", Duration.ZERO, "why"));
    requests.clear();
    source.retry(claim, "i", Duration.ofDays(2), "why");
    source.retry(claim, "i", Duration.ofSeconds(-1), "why");
    for (String expected : List.of("86400000", "0"))
      assertEquals(expected, requests.remove().replaceFirst(".*\"delayMs\":(-?\\d+).*", "$1"));
  }
}
