/** Where a message lies in its stream. */
export interface StreamPlace {
  readonly stream: string;
  readonly sequence: string;
  /** When the stream stored it, in ns since the Unix epoch. */
  readonly storedAtNs: string;
}

/**
 * Reads the subject on which a delivery is acknowledged (NATS ADR-15):
 * `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>`, or with domain and account
 * in front of the stream.
 */
export function streamPlace(acknowledgeTo: string): StreamPlace {
  const tokens = acknowledgeTo.split(".");
  const first = tokens.length >= 11 ? 4 : 2;
  return {
    stream: tokens[first] ?? "",
    sequence: tokens[first + 3] ?? "",
    storedAtNs: tokens[first + 5] ?? "",
  };
}
