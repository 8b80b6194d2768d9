/** Characters of `last_error` and of other texts that people read. */
const LONGEST_TEXT = 2000;

/** @returns what a database can store: without NUL and halves of characters, no longer than `length` UTF-16 units */
export function storable(text: string, length = LONGEST_TEXT): string {
  return text.slice(0, length).replace(/\0|\p{Surrogate}/gu, "");
}
