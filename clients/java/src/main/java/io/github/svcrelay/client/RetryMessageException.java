package io.github.svcrelay.client;

import java.time.Duration;

/** Thrown by a handler: the message comes again after this time. */
public class RetryMessageException extends RuntimeException {
  private final Duration delay;

  public RetryMessageException(Duration delay, String reason) {
    super(reason);
    this.delay = delay;
  }

  public Duration delay() {
    return delay;
  }
}
