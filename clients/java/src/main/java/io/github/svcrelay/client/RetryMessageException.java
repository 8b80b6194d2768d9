package io.github.svcrelay.client;

import java.time.Duration;

/** Thrown by a handler: the message comes again after a delay. */
public class RetryMessageException extends RuntimeException {
  final Duration delay;

  /**
   * @param delay instead of the {@code retryDelay} of the options
   * @param reason kept with the message
   */
  public RetryMessageException(Duration delay, String reason) {
    super(reason);
    this.delay = delay;
  }
}
