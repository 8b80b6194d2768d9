package io.github.svcrelay.client;

import java.time.Duration;
import java.util.List;

/** For metrics and logs. What a hook throws goes to the uncaught exception handler of its thread. */
public interface WorkerHooks {
  /** How a message ended. */
  enum Result {
    DONE,
    RETRY,
    DEAD,
    LOST,
    RELEASED
  }

  default void claimed(List<PulledMessage> messages) {}

  default void ended(PulledMessage message, Result result, Duration duration) {}

  /** A claim, renewal or result that failed; the worker tries again. */
  default void failed(Throwable error) {}
}
