package io.github.svcrelay.client;

import java.time.Duration;
import java.util.function.IntFunction;

/** What a {@link Worker} does. Change nothing after its start. */
public final class WorkerOptions<T> {
  final PullSource<T> source;
  final Handler<T> handler;
  int concurrency = 1;
  Duration lease = Duration.ofSeconds(30);
  IntFunction<Duration> retryDelay = attempt -> Duration.ofSeconds(Math.min(1L << Math.min(attempt - 1, 6), 60));
  Duration poll = Duration.ofMillis(500);
  Duration stopTimeout = Duration.ofSeconds(30);
  WorkerHooks hooks = new WorkerHooks() {};

  private WorkerOptions(PullSource<T> source, Handler<T> handler) {
    this.source = source;
    this.handler = handler;
  }

  public static <T> WorkerOptions<T> of(PullSource<T> source, Handler<T> handler) {
    return new WorkerOptions<>(source, handler);
  }

  /** Most messages at a time; default 1. */
  public WorkerOptions<T> concurrency(int most) {
    if (most < 1) throw new IllegalArgumentException("concurrency is " + most + ", expected at least 1");
    concurrency = most;
    return this;
  }

  /** Default 30 s. */
  public WorkerOptions<T> lease(Duration duration) {
    if (duration.toMillis() < 3)
      throw new IllegalArgumentException("the lease is " + duration + ", expected at least 3 ms");
    lease = duration;
    return this;
  }

  /** Before a message whose handler failed comes again, by its attempt from 1; default 1 s, doubled up to a minute. */
  public WorkerOptions<T> retryDelay(IntFunction<Duration> byAttempt) {
    retryDelay = byAttempt;
    return this;
  }

  /** Between two claims that find nothing; default 500 ms. */
  public WorkerOptions<T> poll(Duration duration) {
    poll = duration;
    return this;
  }

  /** For handlers at a stop; default 30 s. */
  public WorkerOptions<T> stopTimeout(Duration duration) {
    stopTimeout = duration;
    return this;
  }

  public WorkerOptions<T> hooks(WorkerHooks all) {
    hooks = all;
    return this;
  }
}
