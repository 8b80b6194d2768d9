package io.github.svcrelay.client;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** The cells of an outbox: several databases or schemas that share out the keys. */
public final class Cells {
  private Cells() {}

  /** The cell of a key among {@code cells}, from 0, as the service chooses it. Without a key: the first. */
  public static int cellOf(String key, int cells) {
    if (key == null) return 0;
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(key.getBytes(StandardCharsets.UTF_8));
      return Integer.remainderUnsigned(ByteBuffer.wrap(digest).getInt(), cells);
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException("this Java has no SHA-256, expected of every one", error);
    }
  }
}
