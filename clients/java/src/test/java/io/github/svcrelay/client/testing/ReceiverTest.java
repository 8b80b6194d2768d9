package io.github.svcrelay.client.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class ReceiverTest {
  @Test
  void recordsOrderAndRepetitions() throws Exception {
    try (Receiver receiver = Receiver.start()) {
      receiver.answer(503);
      assertEquals(503, post(receiver, "m1", "1"));
      receiver.answer(200);
      assertEquals(200, post(receiver, "m1", "1"));
      assertEquals(200, post(receiver, "m2", "2"));
      assertEquals(List.of("m1", "m2"),
          receiver.await(2, Duration.ofSeconds(5)).stream().map(Receiver.Delivery::messageId).toList());
      assertEquals(List.of("m1/0", "m1/1", "m2/0"),
          receiver.deliveries().stream().map(each -> each.messageId() + "/" + each.repetition()).toList());
      assertEquals("/hook?a=1", receiver.deliveries().get(0).path());
      assertEquals("2", receiver.deliveries().get(2).body());
      assertThrows(AssertionError.class, () -> receiver.await(3, Duration.ofMillis(50)));
    }
  }

  private static int post(Receiver receiver, String id, String body) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create(receiver.url() + "/hook?a=1")).header("X-Message-Id", id)
        .POST(HttpRequest.BodyPublishers.ofString(body)).build();
    return HttpClient.newHttpClient().send(request, BodyHandlers.discarding()).statusCode();
  }
}
