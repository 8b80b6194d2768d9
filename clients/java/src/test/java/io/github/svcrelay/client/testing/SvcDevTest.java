package io.github.svcrelay.client.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.standardwebhooks.Webhook;
import com.standardwebhooks.exceptions.WebhookVerificationException;
import io.github.svcrelay.client.Jdbc;
import io.github.svcrelay.client.Message;
import io.github.svcrelay.client.Outbox;
import java.net.http.HttpHeaders;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** One message, from a transaction through a real service to a receiver that verifies its signature. */
class SvcDevTest {
  private static final String SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

  @Test
  @EnabledIfEnvironmentVariable(named = "SVC_BIN", matches = ".+")
  void deliversWithASignature() throws Exception {
    try (Receiver receiver = Receiver.start()) {
      String config = """
          sources: {}
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
      }
    }
  }
}
