package io.github.svcrelay.client;

import java.security.SecureRandom;
import java.util.UUID;

/** UUIDs of version 7 (RFC 9562). */
final class Ids {
  private static final SecureRandom RANDOM = new SecureRandom();
  private static long lastHigh;
  private static long lastLow;

  private Ids() {}

  /** A UUID larger than the earlier ones of this process. */
  static synchronized String next() {
    // 48 bits of time, 4 of version, 12 at random; 2 of variant, a zero that leaves room to count, and 61 at random.
    long high = System.currentTimeMillis() << 16 | 0x7000 | RANDOM.nextInt(0x1000);
    long low = Long.MIN_VALUE | RANDOM.nextLong() >>> 3;
    if (high < lastHigh || high == lastHigh && low <= lastLow) {
      high = lastHigh;
      low = lastLow + 1;
    }
    lastHigh = high;
    lastLow = low;
    return new UUID(high, low).toString();
  }
}
