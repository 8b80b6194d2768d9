package io.github.svcrelay.client;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationContext;
import com.fasterxml.jackson.databind.JsonDeserializer;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.annotation.JsonDeserialize;
import io.github.svcrelay.client.Worker.Result;
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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Messages over HTTP, for every database. The service decides when a message is dead ({@code inbox.pull.maxAttempts}):
 * a {@link DeadMessageException} is an attempt like others, and so is a message that is given back. A request fails if its
 * answer takes 10 s longer than {@link #waitFor}.
 */
public final class HttpSource implements PullSource<Void> {
  private static final Duration ANSWER = Duration.ofSeconds(10);
  /** The service takes no longer one. */
  private static final long LONGEST_DELAY_MS = 86_400_000;

  private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  private final String base;
  private final Map<String, String> headers = new LinkedHashMap<>(Map.of("content-type", "application/json"));
  private Duration wait = Duration.ofSeconds(5);

  /**
   * @param url the pull routes, such as {@code http://svc:8080/pull}
   * @param source a source with {@code consumption: pull}
   */
  public HttpSource(String url, String source) {
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
  public Claim claim(int max, Duration lease) throws Exception {
    Answer answer = post("claim", Map.of("max", max, "leaseMs", lease.toMillis(), "waitMs", wait.toMillis()));
    return new Claim(answer.claimToken, answer.messages.stream().map(Received::message).toList());
  }

  @Override
  public Set<String> renew(Claim claim, Collection<String> ids, Duration lease) throws Exception {
    return post("extend", Map.of("claimToken", claim.token(), "ids", ids, "leaseMs", lease.toMillis())).extended;
  }

  @Override
  public boolean handled(Claim claim, String id, Work<Void> work) throws Exception {
    work.run(null);
    return post("ack", Map.of("claimToken", claim.token(), "ids", List.of(id))).acknowledged.contains(id);
  }

  @Override
  public Result retry(Claim claim, String id, Duration delay, String reason) throws Exception {
    long delayMs = Math.min(Math.max(delay.toMillis(), 0), LONGEST_DELAY_MS);
    Answer answer = post("nack", Map.of(
        "claimToken", claim.token(), "ids", List.of(id), "delayMs", delayMs, "error", reason));
    return answer.dead.contains(id) ? Result.DEAD : answer.lost.contains(id) ? Result.LOST : Result.RETRY;
  }

  @Override
  public boolean dead(Claim claim, String id, String reason) {
    return false;
  }

  @Override
  public void release(Claim claim, Collection<String> ids) throws Exception {
    post("nack", Map.of("claimToken", claim.token(), "ids", ids));
  }

  private Answer post(String operation, Map<String, ?> body) throws Exception {
    URI uri = URI.create(base + operation);
    String json = Json.MAPPER.writeValueAsString(body);
    HttpRequest.Builder request = HttpRequest.newBuilder(uri).POST(BodyPublishers.ofString(json));
    headers.forEach(request::setHeader);
    // The timeout of a request of java.net.http ends with the headers of the answer; this covers its body, too.
    CompletableFuture<HttpResponse<String>> answered = http.sendAsync(request.build(), BodyHandlers.ofString());
    try {
      HttpResponse<String> answer = answered.get(wait.plus(ANSWER).toMillis(), TimeUnit.MILLISECONDS);
      String text = answer.body();
      // 409: none of the messages is held any more; the body says so.
      if (answer.statusCode() != 200 && answer.statusCode() != 409)
        throw new IOException(uri + ": found " + answer.statusCode() + " "
            + text.substring(0, Math.min(text.length(), 200)) + ", expected 200");
      return Json.MAPPER.readerFor(Answer.class).withAttribute(RawText.class, text).readValue(text);
    } finally {
      answered.cancel(true);
    }
  }

  private record Answer(String claimToken, List<Received> messages, Set<String> extended, Set<String> acknowledged,
      Set<String> dead, Set<String> lost) {}

  private record Received(String id, String aggregateId, String eventType, String idempotencyKey, String correlationId,
      int attempt, JsonNode headers, @JsonDeserialize(using = RawText.class) String payload) {
    PulledMessage message() {
      return new PulledMessage(id, aggregateId, eventType, idempotencyKey, correlationId, attempt,
          PulledMessage.headersOf(headers), payload);
    }
  }

  /** JSON as the answer has it, byte for byte. */
  private static final class RawText extends JsonDeserializer<String> {
    @Override
    public String deserialize(JsonParser parser, DeserializationContext context) throws IOException {
      int from = (int) parser.currentTokenLocation().getCharOffset();
      parser.skipChildren();
      parser.finishToken();
      String answer = (String) context.getAttribute(RawText.class);
      return answer.substring(from, (int) parser.currentLocation().getCharOffset());
    }

    @Override
    public String getNullValue(DeserializationContext context) {
      return "null";
    }
  }
}
