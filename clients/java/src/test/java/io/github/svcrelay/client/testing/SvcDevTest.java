package io.github.svcrelay.client.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.standardwebhooks.Webhook;
import com.standardwebhooks.exceptions.WebhookVerificationException;
import com.zaxxer.hikari.HikariDataSource;
import io.github.svcrelay.client.Handler;
import io.github.svcrelay.client.Jdbc;
import io.github.svcrelay.client.Message;
import io.github.svcrelay.client.Once;
import io.github.svcrelay.client.Outbox;
import io.github.svcrelay.client.PulledMessage;
import io.github.svcrelay.client.SqlSource;
import io.github.svcrelay.client.Worker;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Messages through a real service: to a receiver that verifies the signature, and to a worker. */
class SvcDevTest {
  private static final String SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

  @Test
  @EnabledIfEnvironmentVariable(named = "SVC_BIN", matches = ".+")
  void deliversWithASignature() throws Exception {
    try (Receiver receiver = Receiver.start()) {
      String config = """
          server: { httpPort: 1 }
          database: { url: "jdbc:postgresql://127.0.0.1:1/none" }
          sources:
            orders: { path: /orders, consumption: pull, idempotencyKeyPath: $.id }
          destinations:
            receiver:
              baseUrl: %s
              path: /hook
              signing: { scheme: standard-webhooks, secrets: [%s] }
          routes:
            - { topicPattern: "**", destination: receiver }
          """.formatted(receiver.url(), SECRET);
      try (SvcDev svc = SvcDev.start(config, Duration.ofMinutes(2));
          Connection connection = DriverManager.getConnection(svc.jdbcUrl())) {
        connection.setAutoCommit(false);
        Jdbc tx = Jdbc.of(connection);
        Message message = new Message("orders.paid").key("o-1").payload(Map.of("id", "o-1"));
        String id = new Outbox().enqueue(tx, message);
        assertEquals("{\"id\":\"o-1\"}", Outboxes.assertEnqueued(tx, each -> each.id().equals(id)).payload());
        assertThrows(AssertionError.class, () -> Outboxes.assertEnqueued(tx, each -> each.topic().equals("none")));
        connection.commit();

        Receiver.Delivery delivery = receiver.await(1, Duration.ofSeconds(20)).get(0);
        assertEquals(id, delivery.messageId());
        Map<String, List<String>> headers = delivery.headers().entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, header -> List.of(header.getValue())));
        Webhook webhook = new Webhook(SECRET);
        webhook.verify(delivery.body(), HttpHeaders.of(headers, (name, value) -> true));
        assertThrows(WebhookVerificationException.class,
            () -> webhook.verify(delivery.body() + " ", HttpHeaders.of(headers, (name, value) -> true)));
        handlesOnce(connection, tx, delivery.headers().get("webhook-id"));
        endsWithTheLastAttempt(svc);
      }
    }
  }

  private static void handlesOnce(Connection connection, Jdbc tx, String id) throws Exception {
    for (int n = 0; n < 2; n++) tx.query(Once.TABLE, List.of());
    assertTrue(Once.run(tx, id, () -> {}));
    connection.commit();
    assertFalse(Once.run(tx, id, () -> {}));
    connection.setAutoCommit(true);
    assertThrows(IllegalStateException.class, () -> Once.run(tx, "other", () -> {}));
  }

  private static void endsWithTheLastAttempt(SvcDev svc) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create(svc.url() + "/inbox/orders"))
        .POST(BodyPublishers.ofString("{\"id\":\"o-1\"}")).build();
    assertEquals(2, HttpClient.newHttpClient().send(request, BodyHandlers.discarding()).statusCode() / 100);
    CompletableFuture<Worker.Result> ended = new CompletableFuture<>();
    Worker.Hooks hooks = new Worker.Hooks() {
      @Override
      public void ended(PulledMessage message, Worker.Result result, Duration duration) {
        ended.complete(result);
      }
    };
    try (HikariDataSource connections = new HikariDataSource()) {
      connections.setJdbcUrl(svc.jdbcUrl());
      connections.setMaximumPoolSize(2);
      Handler<Connection> handler = (message, connection) -> {
        throw new IllegalStateException("no");
      };
      try (var worker = new Worker<>(new SqlSource(connections, "orders", 1), handler, new Worker.Options().hooks(hooks))) {
        assertEquals(Worker.Result.DEAD, ended.get(20, TimeUnit.SECONDS));
      }
    }
  }
}
