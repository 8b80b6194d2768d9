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

/** Characters of who makes a change. */
export const LONGEST_BY = 100;
/** Control characters, line separators, direction marks and what has no width. */
const UNSEEN = "\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff";
/** Something to read, without blanks around it. Without flags, so that the OpenAPI document says the same. */
export const BY_PATTERN = `^[^ ${UNSEEN}]([^${UNSEEN}]*[^ ${UNSEEN}])?$`;

/**
 * Checks who makes a change, as the caller of an admin route says.
 *
 * @returns the text as it is
 * @throws Error that says what is expected
 */
export function parseBy(text: string): string {
  const isSeen = new RegExp(BY_PATTERN).test(text) && !/\p{Surrogate}/u.test(text);
  if (isSeen && [...text].length <= LONGEST_BY) return text;
  throw new Error(`1 to ${LONGEST_BY} printable characters without blanks around them are expected, such as alice`);
}

/** Who makes a change over HTTP, as it is kept: the credentials name nobody, so that the name is the caller's word. */
export function callerOf(by: string | undefined): string {
  return by === undefined ? "admin route" : `${by} (admin route)`;
}
