/** Keeps secrets out of texts that come from outside, such as an error body in which a receiver echoes what it was sent. */
export interface SecretMasker {
  /**
   * Masks every known secret, however it is escaped or encoded.
   *
   * @param text any text
   * @param cut whether the text goes on where it ends here: it then comes back without a secret's beginning at its end
   */
  mask(text: string, cut: boolean): string;
  /**
   * Adds a secret that came up at run time, such as an access token.
   *
   * @returns forgets it again
   */
  add(secret: string): () => void;
}
