package io.github.svcrelay.client;

/** A message was refused before its statement: the caller's transaction has not changed. */
public final class EnqueueException extends IllegalArgumentException {
  /** The field of a message that the database would refuse; {@code OPTIONS} for a table, a column or a cell. */
  public enum Code { TOPIC, PAYLOAD, KEY, HEADERS, DESTINATION, TIME, ID, OPTIONS }

  private final Code code;

  EnqueueException(Code code, String message) {
    super(message);
    this.code = code;
  }

  public Code code() {
    return code;
  }
}
