package io.github.svcrelay.client;

/**
 * Handles a message. When it returns, the message is done; an exception returns the message after a delay. Its thread is
 * interrupted when the lease is lost, or when a stop does not wait any longer: then nothing is acknowledged.
 *
 * @param <T> the transaction: {@code Connection} over SQL, {@code Void} over HTTP
 */
@FunctionalInterface
public interface Handler<T> {
  /**
   * @param transaction over SQL the connection whose transaction the worker commits, with the acknowledgement; over HTTP null
   * @throws RetryMessageException to choose the delay
   * @throws DeadMessageException to end the message
   */
  void handle(PulledMessage message, T transaction) throws Exception;
}
