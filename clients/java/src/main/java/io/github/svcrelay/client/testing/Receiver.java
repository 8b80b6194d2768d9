package io.github.svcrelay.client.testing;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** A receiver of deliveries in memory, on a free port of 127.0.0.1. */
public final class Receiver implements AutoCloseable {
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final HttpServer server;
  /** Guarded by this. */
  private final List<Delivery> deliveries = new ArrayList<>();
  private volatile int status = 204;

  private Receiver(HttpServer server) {
    this.server = server;
  }

  /**
   * A delivery as it came.
   *
   * @param messageId {@code x-message-id}
   * @param repetition 0 for the first delivery of a message, 1 for the next
   * @param headers by names in lower case, the first value of each
   */
  public record Delivery(String messageId, int repetition, String path, Map<String, String> headers, String body) {}

  public static Receiver start() {
    try {
      HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
      Receiver receiver = new Receiver(server);
      server.createContext("/", receiver::take);
      server.setExecutor(receiver.threads);
      server.start();
      return receiver;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** The {@code baseUrl} of a destination. */
  public String url() {
    return "http://127.0.0.1:" + server.getAddress().getPort();
  }

  /** What it answers from now on; default 204. A 503 makes svc try again. */
  public void answer(int newStatus) {
    status = newStatus;
  }

  /** All deliveries so far, in their order, repetitions included. */
  public synchronized List<Delivery> deliveries() {
    return List.copyOf(deliveries);
  }

  /** The first delivery of each message, in their order. */
  public List<Delivery> messages() {
    return deliveries().stream().filter(delivery -> delivery.repetition() == 0).toList();
  }

  /**
   * Waits until so many messages have been delivered.
   *
   * @return {@link #messages}
   * @throws AssertionError with the deliveries so far if the time is over
   */
  public synchronized List<Delivery> await(int messages, Duration timeout) throws InterruptedException {
    long deadline = System.nanoTime() + timeout.toNanos();
    while (messages().size() < messages) {
      long left = deadline - System.nanoTime();
      if (left <= 0)
        throw new AssertionError("found " + messages().size() + " messages within " + timeout + ", expected " + messages
            + "; deliveries: " + deliveries);
      TimeUnit.NANOSECONDS.timedWait(this, left);
    }
    return messages();
  }

  private void take(HttpExchange exchange) throws IOException {
    try (exchange) {
      String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
      Map<String, String> headers = new TreeMap<>();
      exchange.getRequestHeaders()
          .forEach((name, values) -> headers.put(name.toLowerCase(Locale.ROOT), values.get(0)));
      String id = headers.get("x-message-id");
      synchronized (this) {
        long before = deliveries.stream().filter(each -> id != null && id.equals(each.messageId())).count();
        deliveries.add(new Delivery(id, (int) before, exchange.getRequestURI().toString(), headers, body));
        notifyAll();
      }
      exchange.sendResponseHeaders(status, -1);
    }
  }

  @Override
  public void close() {
    server.stop(0);
    threads.shutdown();
  }
}
