package io.github.svcrelay.client;

/** Thrown by a handler: the message can never be handled. Later ones of its aggregate follow. */
public class DeadMessageException extends RuntimeException {
  /** @param reason kept with the message */
  public DeadMessageException(String reason) {
    super(reason);
  }
}
