/**
 * Cleans texts that come from outside (an error body, a client library) before they are logged or stored in `last_error`:
 * no secret, no byte that a database column or a terminal trips over, bounded length, linear time.
 */

export type Redact = (text: string) => string;

const MASK = "***";
const ELLIPSIS = "…";
/** Longer texts are cut before anything else, so that a hostile megabyte costs no more than this. */
const MAX_INPUT_LENGTH = 65_536;
/** A shorter secret is masked only where it stands alone: masking each `a` would leave nothing readable. */
const MIN_ANYWHERE_LENGTH = 4;
/** A shorter piece of a base64 text is not telling, and could be part of any word. */
const MIN_FRAGMENT_LENGTH = 6;

/** White space of every kind, line and paragraph separators included. */
const BLANKS = /\s+/g;
/** Control characters that are no white space, and the marks that turn the direction of text on a terminal. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what has to go
const CONTROLS = /[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
/** `user:password@` of a URL. The scan ends at each slash, so that no text makes it quadratic. */
const USER_INFO = /:\/\/[^\s/?#]*@/g;
/** The value of an `Authorization` header that somebody echoes: it may be a token that no configuration names. */
const AUTHORIZATION = /(\bauthorization["']? ?[:=] ?["']?(?:\w{1,20} )?)[^\s"',;<>]+/gi;
const LONE_SURROGATES = /\p{Surrogate}/gu;

/**
 * Makes the function that cleans reasons.
 *
 * @param secrets every configured secret value. Each is removed as it is, in base64 (inside a longer text too, as in Basic
 *   credentials), percent-encoded, form-encoded, and escaped for JSON or HTML. Secrets under 4 characters are removed only
 *   as a word of their own.
 * @param maxLength longest result, in UTF-16 units, with the ellipsis of a cut text
 * @returns a function from any text to one without secrets, NUL, control characters or halves of surrogate pairs, on one line
 */
export function createRedactor(secrets: readonly string[], maxLength: number): Redact {
  const forms = secretForms(secrets);
  const pattern = forms.length === 0 ? undefined : new RegExp(forms.map(patternOf).join("|"), "gu");
  const longest = forms.reduce((length, form) => Math.max(length, form.length), 0);

  return (text) => {
    const cut = text.length > MAX_INPUT_LENGTH;
    const cleaned = oneLine(cut ? text.slice(0, MAX_INPUT_LENGTH) : text);
    const masked = pattern === undefined ? cleaned : cleaned.replace(pattern, MASK);
    const safe = masked.replace(USER_INFO, `://${MASK}@`).replace(AUTHORIZATION, `$1${MASK}`);
    // The cut may have gone through a secret, whose first half no pattern finds: nothing of its length is kept there.
    return truncate(cut ? safe.slice(0, Math.max(0, safe.length - longest)) + ELLIPSIS : safe, maxLength);
  };
}

/** Control characters are dropped before secrets are looked for: one inside an echoed secret would otherwise hide it. */
function oneLine(text: string): string {
  return wellFormed(text).replace(CONTROLS, "").replace(BLANKS, " ").trim();
}

function wellFormed(text: string): string {
  return text.replace(LONE_SURROGATES, "\ufffd");
}

function truncate(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const end = Math.max(0, maxLength - ELLIPSIS.length);
  const splitsPair = /[\ud800-\udbff]/.test(text.charAt(end - 1));
  return text.slice(0, splitsPair ? end - 1 : end) + ELLIPSIS;
}

/** Every spelling of every secret, longest first, so that a secret inside another never leaves the rest of it standing. */
function secretForms(secrets: readonly string[]): readonly string[] {
  const forms = new Set<string>();
  for (const secret of secrets) {
    const spellings = [secret, withoutScheme(secret)].flatMap((value) => [value, ...escapedForms(value)]);
    for (const form of [...spellings, ...base64Forms(secret)]) {
      const line = oneLine(form);
      if (line !== "") forms.add(line);
    }
  }
  return [...forms].sort((a, b) => b.length - a.length);
}

/** What stands behind the scheme of a header value (`ApiKey abc`): a receiver that complains about a key names it alone. */
function withoutScheme(secret: string): string {
  return /^[\w-]+ +(\S{6,})$/.exec(secret)?.[1] ?? secret;
}

function escapedForms(secret: string): readonly string[] {
  const encodable = wellFormed(secret);
  const percent = encodeURIComponent(encodable);
  const form = new URLSearchParams([["", encodable]]).toString().slice(1);
  const html = encodable.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const withQuotes = html.replace(/"/g, "&quot;");
  return [
    JSON.stringify(secret).slice(1, -1),
    percent,
    lowerCaseEscapes(percent),
    form,
    lowerCaseEscapes(form),
    html,
    withQuotes,
    withQuotes.replace(/'/g, "&#39;"),
    withQuotes.replace(/'/g, "&#x27;"),
  ];
}

function lowerCaseEscapes(encoded: string): string {
  return encoded.replace(/%[0-9A-F]{2}/g, (byte) => byte.toLowerCase());
}

/**
 * The base64 text of the secret, and what of it is the same wherever it stands in a longer text: base64 writes three bytes as
 * four characters, so there are three alignments, and the characters at both edges depend on the neighbours.
 */
function base64Forms(secret: string): readonly string[] {
  const bytes = Buffer.from(secret, "utf8");
  const fragments = [0, 1, 2].map((offset) => {
    const encoded = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    const first = Math.ceil((offset * 8) / 6);
    const last = Math.floor(((offset + bytes.length) * 8) / 6);
    return encoded.slice(first, last);
  });
  const whole = bytes.toString("base64");
  return [whole, whole.replace(/=+$/, ""), ...fragments]
    .filter((form) => form.length >= MIN_FRAGMENT_LENGTH)
    .flatMap((form) => [form, form.replaceAll("+", "-").replaceAll("/", "_")]);
}

function patternOf(form: string): string {
  const literal = form.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
  return form.length < MIN_ANYWHERE_LENGTH ? `(?<![\\p{L}\\p{N}])${literal}(?![\\p{L}\\p{N}])` : literal;
}
