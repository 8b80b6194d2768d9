package io.github.svcrelay.client;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Set;

/**
 * Where messages come from: {@link SqlSource} or {@link HttpSource}.
 *
 * @param <T> the handler's transaction; {@code Void} over HTTP
 */
public interface PullSource<T> {
  /**
   * Messages that a worker holds.
   *
   * @param messages oldest first
   */
  record Claim(String token, List<PulledMessage> messages) {}

  /** What {@link #handled} calls. */
  @FunctionalInterface
  interface Work<T> {
    void run(T transaction) throws Exception;
  }

  /** Claims at most {@code max} messages. A stop waits for it: messages of a claim that is given up come late. */
  Claim claim(int max, Duration lease) throws Exception;

  /** @return the ids that are still held */
  Set<String> renew(Claim claim, Collection<String> ids, Duration lease) throws Exception;

  /**
   * Calls {@code work}, and acknowledges in its transaction.
   *
   * @return false if the claim was lost: nothing is written
   */
  boolean handled(Claim claim, String id, Work<T> work) throws Exception;

  /**
   * The message comes again after {@code delay}, or is dead if this was its last attempt; later ones of its aggregate are
   * given back.
   *
   * @return {@code RETRY}, {@code DEAD} or {@code LOST}
   */
  Worker.Result retry(Claim claim, String id, Duration delay, String reason) throws Exception;

  /**
   * The message is dead; later ones of its aggregate are still held.
   *
   * @return false, and nothing is written, if the claim was lost or the source has only {@link #retry}
   */
  boolean dead(Claim claim, String id, String reason) throws Exception;

  /** Gives back what is left of the claim. */
  void release(Claim claim, Collection<String> ids) throws Exception;
}
