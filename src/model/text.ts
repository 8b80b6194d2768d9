// biome-ignore lint/suspicious/noControlCharactersInRegex: a header cannot carry these
export const HEADER_CONTROL = /[\u0000-\u0008\u000a-\u001f\u007f]/;
/** Receivers trim values, and could confuse two of them. */
const BLANK_AROUND = /^[\t ]|[\t ]$/;
const ENCODED = "UTF-8''";
/** Headers that identify messages: two values must never become one. */
const IDENTIFYING: ReadonlySet<string> = new Set(["x-idempotency-key", "x-source"]);

/**
 * A header value as one line of text. One with a control character (a line break would begin another header) becomes an
 * extended value of RFC 8187: `UTF-8''` and the percent-encoded text. `x-idempotency-key` and `x-source` also do so
 * when they have blanks around them or begin like an encoded value: comparing the encoded texts then compares the
 * values.
 *
 * @param lowerCaseName the header's name
 */
export function encodedHeaderValue(lowerCaseName: string, value: string): string {
  if (HEADER_CONTROL.test(value)) return extended(value);
  if (!IDENTIFYING.has(lowerCaseName)) return value;
  return BLANK_AROUND.test(value) || value.startsWith(ENCODED) ? extended(value) : value;
}

/** Header names of HTTP are tokens (RFC 9110, section 5.6.2). */
export const HTTP_HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const ASCII_TEXT = /^[\t\x20-\x7e]*$/;

/** A header value as HTTP sends it: text outside ASCII becomes UTF-8, one character per octet. */
export function httpHeaderOctets(value: string): string {
  return ASCII_TEXT.test(value) ? value : Buffer.from(value, "utf8").toString("latin1");
}

/**
 * A header name with the characters that the wire does not allow as percent-encoded UTF-8.
 *
 * @param allowed matches one allowed character
 * @returns null for the empty name: leave that header out
 */
export function encodedHeaderName(name: string, allowed: RegExp): string | null {
  if (name === "") return null;
  return Array.from(name, (character) => (allowed.test(character) ? character : percentEncoded(character))).join("");
}

function extended(value: string): string {
  return (
    ENCODED +
    Array.from(value, (character) => (/[\w.~-]/.test(character) ? character : percentEncoded(character))).join("")
  );
}

/** Every byte of the text in UTF-8 as `%XX`. */
export function percentEncoded(text: string): string {
  return Array.from(Buffer.from(text), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
}

/**
 * Invisible characters that change what is shown: controls beyond ASCII, direction marks, zero-width characters, line
 * separators. A topic or key that holds them can forge a line.
 */
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
/** ASCII controls except tab and line feed. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are searched for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f]/g;

/** Escapes invisible characters. @param text JSON or a terminal's text: both keep their meaning */
export function escapeUnseen(text: string): string {
  return text.replace(UNSEEN, escaped);
}

/** Escapes invisible characters, and ASCII controls except tab and line feed, for a terminal. */
export function escapeControls(text: string): string {
  return escapeUnseen(text.replace(CONTROLS, escaped));
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

const DURATION = /^(\d{1,9})([smhd])$/;
const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Reads a duration (spec, "Value formats"). @returns ms; undefined for any other text */
export function parseDuration(text: string): number | undefined {
  const match = DURATION.exec(text);
  const unit = match?.[2] as keyof typeof UNITS | undefined;
  return unit === undefined ? undefined : Number(match?.[1]) * UNITS[unit];
}

/** The value of a JSON text; undefined for any other text. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Writes ms, a multiple of 1000, as a duration in the largest unit that is exact. */
export function formatDuration(ms: number): string {
  const suffix = (["d", "h", "m"] as const).find((unit) => ms > 0 && ms % UNITS[unit] === 0) ?? "s";
  return `${ms / UNITS[suffix]}${suffix}`;
}

/**
 * Headers that carry credentials. An HTTP source stores the received headers and forwards them to its receivers, but
 * not what authenticates the sender to this service or a proxy in front of it (spec, "POST <inbox.basePath><path>").
 * Body signatures (`X-Hub-Signature-256`, `Stripe-Signature`) are kept: they prove this one body, and a receiver may
 * want to verify them again.
 */

/** Names of credential headers contain one of these anywhere ... */
const ANYWHERE = /authori[sz]|authentication|secret|passw|passphrase|credential|cookie|jwt|assertion|session/;
/** ... or end with one: `X-Token-Count`, `X-Api-Key-Id`, `X-Auth-User` hold no credential, nor `X-Idempotency-Key`. */
const AT_THE_END =
  /(?:token|auth|bearer|[-_]otp|[-_]pass|[-_]pwd|(?:access|account|admin|api|app|application|auth|client|consumer|customer|developer|encryption|functions?|insert|licen[cs]e|master|private|query|root|sas|service|shared|signing|subscription)[-_]?key)$/;
/** Credentials whose names do not show it. */
const OTHERS: ReadonlySet<string> = new Set(["dpop", "x-amzn-oidc-data", "x-gotify-key", "x-honeycomb-team", "x-wsse"]);

/** Whether a header's name marks it as a credential. @param name in lower case */
export function isCredentialHeader(name: string): boolean {
  return ANYWHERE.test(name) || AT_THE_END.test(name) || OTHERS.has(name);
}
