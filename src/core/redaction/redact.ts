import type { SecretMasker } from "../../ports/secretMasker.ts";
import { oneLine } from "./knownSecrets.ts";

/**
 * Cleans texts that come from outside (an error body, a client library) before they are logged or stored in `last_error`:
 * no secret, no byte that a database column or a terminal trips over, bounded length, time linear in the length.
 */

export type Redact = (text: string) => string;

const MASK = "***";
const ELLIPSIS = "…";
/** Longer texts are cut before anything else, so that a hostile megabyte costs no more than this. */
const MAX_INPUT_LENGTH = 65_536;

/** `user:password@` of a URL. The scan ends at each slash, so that no text makes it quadratic. */
const USER_INFO = /:\/\/[^\s/?#]*@/g;
/**
 * The value of an `Authorization` header that somebody echoes: it may be a token that no configuration names. The quotation marks
 * around may be escaped for JSON or HTML.
 */
const QUOTE = String.raw`(?:\\{0,8}["']|&(?:amp;)?(?:quot|#0?3[49]|#x2[27]);|\\{1,8}u002[27])?`;
const AUTHORIZATION = new RegExp(
  String.raw`(\bauthorization${QUOTE} ?[:=] ?${QUOTE}(?:\w{1,20}(?: |%20|\+))?)[^\s"',;<>&\\]+`,
  "gi",
);

/**
 * Makes the function that cleans reasons.
 *
 * @param secrets masks the secrets of the process
 * @param maxLength longest result, in UTF-16 units, with the ellipsis of a cut text
 * @returns a function from any text to one without secrets, NUL, control characters or halves of surrogate pairs, on one line
 */
export function createRedactor(secrets: Pick<SecretMasker, "mask">, maxLength: number): Redact {
  return (text) => {
    const cut = text.length > MAX_INPUT_LENGTH;
    const cleaned = oneLine(secrets.mask(cut ? text.slice(0, MAX_INPUT_LENGTH) : text, cut));
    const safe = cleaned.replace(USER_INFO, `://${MASK}@`).replace(AUTHORIZATION, `$1${MASK}`);
    return truncate(cut ? safe + ELLIPSIS : safe, maxLength);
  };
}

function truncate(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const end = Math.max(0, maxLength - ELLIPSIS.length);
  const splitsPair = /[\ud800-\udbff]/.test(text.charAt(end - 1));
  return text.slice(0, splitsPair ? end - 1 : end) + ELLIPSIS;
}
