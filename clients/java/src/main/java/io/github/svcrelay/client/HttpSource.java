package io.github.svcrelay.client;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * Messages over HTTP, for every database. The service decides when a message is dead ({@code inbox.pull.maxAttempts}):
 * a {@link DeadMessageException} is an attempt with its reason, and so is a message that is given back.
 */
public final class HttpSource implements PullSource<Void> {
  private static final Duration ANSWER = Duration.ofSeconds(10);

  private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  private final String base;
  private final String source;
  private final Map<String, String> headers = new LinkedHashMap<>(Map.of("content-type", "application/json"));
  private Duration wait = Duration.ofSeconds(5);

  /**
   * @param url the pull routes, such as {@code http://svc:8080/pull}
   * @param source a source with {@code consumption: pull}
   */
  public HttpSource(String url, String source) {
    this.source = source;
    String name = URLEncoder.encode(source, StandardCharsets.UTF_8).replace("+", "%20");
    base = url.replaceFirst("/$", "") + "/" + name + "/";
  }

  /** Such as the credentials of {@code inbox.pull.auth}: {@code header("authorization", "Bearer …")}. */
  public HttpSource header(String name, String value) {
    headers.put(name, value);
    return this;
  }

  /** Longest wait of the server for a message, at most a minute; default 5 s. A stop waits for it. */
  public HttpSource waitFor(Duration duration) {
    wait = duration;
    return this;
  }

  @Override
  public Claim claim(int max, Duration lease) throws IOException, InterruptedException {
    Map<?, ?> answer = post("claim", Map.of("max", max, "leaseMs", lease.toMillis(), "waitMs", wait.toMillis()));
    String token = (String) answer.get("claimToken");
    return new Claim(token, ((List<?>) answer.get("messages")).stream().map(HttpSource::messageOf).toList());
  }

  @Override
  public Set<String> renew(Claim claim, Collection<String> ids, Duration lease)
      throws IOException, InterruptedException {
    Map<?, ?> answer = post("extend", body(claim, ids, "leaseMs", lease.toMillis()));
    return ((List<?>) answer.get("extended")).stream().map(String.class::cast).collect(Collectors.toSet());
  }

  @Override
  public boolean handled(Claim claim, String id, Work<Void> work) throws Exception {
    work.run(null);
    return ((List<?>) post("ack", body(claim, List.of(id))).get("acknowledged")).contains(id);
  }

  @Override
  public void retry(Claim claim, String id, Duration delay, String reason) throws IOException, InterruptedException {
    post("nack", body(claim, List.of(id), "delayMs", delay.toMillis(), "error", reason));
  }

  @Override
  public boolean dead(Claim claim, String id, String reason) throws IOException, InterruptedException {
    post("nack", body(claim, List.of(id), "error", reason));
    return false;
  }

  @Override
  public void release(Claim claim, Collection<String> ids) throws IOException, InterruptedException {
    post("nack", body(claim, ids));
  }

  private static Map<String, Object> body(Claim claim, Collection<String> ids, Object... others) {
    Map<String, Object> body = new LinkedHashMap<>(Map.of("claimToken", claim.token(), "ids", List.copyOf(ids)));
    for (int n = 0; n < others.length; n += 2) body.put((String) others[n], others[n + 1]);
    return body;
  }

  private Map<?, ?> post(String operation, Map<String, Object> body) throws IOException, InterruptedException {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(base + operation))
        .timeout(wait.plus(ANSWER)).POST(BodyPublishers.ofString(Json.write(body)));
    headers.forEach(request::setHeader);
    HttpResponse<String> answer = http.send(request.build(), BodyHandlers.ofString());
    // 409: none of the messages is held any more; the body says so.
    if (answer.statusCode() != 200 && answer.statusCode() != 409) {
      String text = answer.body();
      throw new IOException(operation + " of " + source + ": found " + answer.statusCode() + " "
          + text.substring(0, Math.min(text.length(), 200)) + ", expected 200");
    }
    return (Map<?, ?>) Json.parse(answer.body(), 3);
  }

  private static PulledMessage messageOf(Object message) {
    Map<?, ?> of = (Map<?, ?>) message;
    return new PulledMessage((String) of.get("id"), (String) of.get("aggregateId"), (String) of.get("eventType"),
        (String) of.get("idempotencyKey"), (String) of.get("correlationId"), ((Number) of.get("attempt")).intValue(),
        PulledMessage.headersOf(of.get("headers")), (String) of.get("payload"));
  }
}
