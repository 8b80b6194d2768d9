package io.github.svcrelay.client;

/**
 * Handles a message. When it returns, the message is done; an exception returns the message after a delay.
 *
 * @param <T> the transaction: {@code Connection} over SQL, {@code Void} over HTTP
 */
@FunctionalInterface
public interface Handler<T> {
  void handle(PulledMessage message, Context<T> context) throws Exception;

  /** What a handler works with. */
  interface Context<T> {
    /** Over SQL the connection whose transaction the worker commits, with the acknowledgement. Over HTTP null. */
    T transaction();

    /** Whether the lease is lost, or a stop does not wait any longer; then the handler's thread is interrupted, too. */
    boolean isCancelled();
  }
}
