/** Texts that operators give with what they change, by the command or over HTTP; others read them later. */

/** Characters of a reason. */
export const LONGEST_REASON = 1000;

/**
 * Checks the reason of a pause, or of giving parked rows up.
 *
 * @returns it without blanks around it
 * @throws Error that says what is expected
 */
export function parseReason(text: string): string {
  if (!/[^\0- ]/.test(text)) throw new Error("a reason that is not blank is expected: it is all that others see");
  const { length } = [...text];
  if (length > LONGEST_REASON) {
    throw new Error(`a reason of at most ${LONGEST_REASON} characters is expected; this one has ${length}`);
  }
  if (/\0|\p{Surrogate}/u.test(text)) throw new Error("text without NUL and lone surrogates is expected");
  return text.replace(/^[\0- ]+|[\0- ]+$/g, "");
}
