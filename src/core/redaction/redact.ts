import type { SecretMasker } from "../../ports/runtime.ts";

/**
 * Cleans texts from outside (an error body, a client library) before they are logged or stored in `last_error`: no
 * secrets, no bytes that break a database column or a terminal, bounded length, linear time.
 */

export type Redact = (text: string) => string;

const MASK = "***";
/** The end of a cut text. */
export const ELLIPSIS = "…";
/** Longer texts are cut first, so that a hostile megabyte costs no more than this. */
const MAX_INPUT_LENGTH = 65_536;

/** `user:password@` of a URL. The scan ends at each slash, so that no text makes it quadratic. */
const USER_INFO = /:\/\/[^\s/?#]*@/g;
/**
 * The value of an echoed `Authorization` header: it may be a token that no configuration names. The quotation marks
 * around it may be escaped for JSON or HTML.
 */
const QUOTE = String.raw`(?:\\{0,8}["']|&(?:amp;)?(?:quot|#0?3[49]|#x2[27]);|\\{1,8}u002[27])?`;
const AUTHORIZATION = new RegExp(
  String.raw`(\bauthorization${QUOTE} ?[:=] ?${QUOTE}(?:\w{1,20}(?: |%20|\+))?)[^\s"',;<>&\\]+`,
  "gi",
);

/**
 * @param secrets masks the secrets of the process
 * @param maxLength longest result, in UTF-16 units, with the ellipsis of a cut text; by default that of what is kept with
 *   a row or a change, which people read in the tables too
 * @param isOurs as of {@link SecretMasker.mask}
 * @returns a function that removes secrets, NUL, control characters and lone surrogates, and returns one line
 */
export function createRedactor(secrets: Pick<SecretMasker, "mask">, maxLength = 2000, isOurs = false): Redact {
  return (text) => {
    const cut = text.length > MAX_INPUT_LENGTH;
    const cleaned = oneLine(secrets.mask(cut ? text.slice(0, MAX_INPUT_LENGTH) : text, cut, isOurs));
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

/** A shorter piece of a base64 text reveals little, and could be part of any word. */
const MIN_FRAGMENT_LENGTH = 6;
/** The bytes of a shorter secret occur in any number. */
const MIN_BYTES = 4;

/** White space of every kind, line and paragraph separators included. */
const BLANKS = /\s+/g;
/**
 * Control characters other than white space, and invisible characters: they change the text direction on a terminal or
 * hide in a word.
 */
const INVISIBLE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what has to go
  /[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufff9-\ufffb]/g;

const LONE_SURROGATES = /\p{Surrogate}/gu;

/** Puts a text on one line, without invisible characters. */
function oneLine(text: string): string {
  return text.replace(LONE_SURROGATES, "\ufffd").replace(INVISIBLE, "").replace(BLANKS, " ").trim();
}

/**
 * The secrets of a process. Finds them in texts from outside, on one line, in the spellings of {@link spellingsOf}. A
 * secret under 4 characters is masked only as a separate word.
 */
export class KnownSecrets implements SecretMasker {
  readonly #secrets = new Map<string, Spellings & { count: number }>();

  /** @param secrets every configured secret value */
  constructor(secrets: Iterable<string> = []) {
    for (const secret of secrets) this.add(secret);
  }

  add(secret: string): () => void {
    const entry = this.#secrets.get(secret) ?? { ...spellingsOf(secret), count: 0 };
    this.#secrets.set(secret, entry);
    entry.count += 1;
    let known = true;
    return () => {
      if (known) entry.count -= 1;
      if (entry.count === 0) this.#secrets.delete(secret);
      known = false;
    };
  }

  mask(text: string, cut: boolean, isOurs = false): string {
    const line = oneLine(cut ? text.replace(/[\ud800-\udbff]$/, "") : text);
    const found = this.#find(line, cut).filter((range) => !isOurs || isNoWord(line, range));
    if (found.length === 0) return text;
    let masked = "";
    let position = 0;
    for (const { start, end, isCut } of merged(found)) {
      masked += line.slice(position, start) + (isCut ? "" : MASK);
      position = end;
    }
    return masked + line.slice(position);
  }

  #find(line: string, cut: boolean): readonly Range[] {
    const secrets = [...this.#secrets.values()];
    const escaped = secrets.flatMap((secret) => find(secret.escaped, line, cut));
    // Many programs wrap base64 at 64 or 76 characters, and write a blank between bytes.
    const packed = line.replaceAll(" ", "");
    const encoded = secrets.flatMap((secret) => find(secret.encoded, packed, cut));
    if (encoded.length === 0 || packed === line) return [...escaped, ...encoded];
    const places = Array.from(line.matchAll(/[^ ]/g), ({ index }) => index);
    const place = (at: number) => places[at] ?? 0;
    return [
      ...escaped,
      ...encoded.map(({ start, end, isCut }) => ({ start: place(start), end: place(end - 1) + 1, isCut })),
    ];
  }
}

interface Range {
  readonly start: number;
  readonly end: number;
  /** Whether it is only the beginning of a secret, at the end of a cut text. */
  readonly isCut: boolean;
}

/** @param cut whether to find the beginning of a word at the end of the text too */
function find(words: readonly string[], text: string, cut: boolean): readonly Range[] {
  const ranges: Range[] = [];
  for (const word of words) {
    for (let start = text.indexOf(word); start >= 0; start = text.indexOf(word, start + 1)) {
      const end = start + word.length;
      if (word.length >= SHORTEST_ANYWHERE || isAlone(text, start, end)) ranges.push({ start, end, isCut: false });
    }
    const start = cut ? beginningOf(word, text) : text.length;
    if (start < text.length) ranges.push({ start, end: text.length, isCut: true });
  }
  return ranges;
}

function merged(ranges: readonly Range[]): readonly Range[] {
  const found: { start: number; end: number; isCut: boolean }[] = [];
  for (const range of ranges.toSorted((a, b) => a.start - b.start)) {
    const last = found.at(-1);
    if (last === undefined || range.start >= last.end) found.push({ ...range });
    else {
      last.end = Math.max(last.end, range.end);
      last.isCut &&= range.isCut;
    }
  }
  return found;
}

/** @returns the place of the longest beginning of a word at the end of a text; the length of the text if it has none */
function beginningOf(word: string, text: string): number {
  let at = Math.max(0, text.length - word.length + 1);
  for (at = text.indexOf(word.charAt(0), at); at >= 0; at = text.indexOf(word.charAt(0), at + 1)) {
    if (word.startsWith(text.slice(at))) return at;
  }
  return text.length;
}

/** A shorter secret counts only by itself: masking each `a` would leave nothing to read. */
const SHORTEST_ANYWHERE = 4;
const LETTER = /[\p{L}\p{N}]/u;

function isAlone(text: string, start: number, end: number): boolean {
  return !LETTER.test(text.charAt(start - 1)) && !LETTER.test(String.fromCodePoint(text.codePointAt(end) ?? 0));
}

/** Secrets that may be words of our own texts: short ones, and those of lower-case letters that are no longer than these. */
const WORD_OR_SHORT = /^(?:.{1,7}|[a-z]{1,15})$/s;
/** Places of values, by the text before and the character after: `password=svc`, `X-Key: svc`, `://u:svc@`, `"svc"`. */
const PLACES: readonly (readonly [before: RegExp, after: RegExp])[] = [
  [/^$/, /^$/],
  [/(?:=|%3d)$/i, /^[^\w.-]?$/],
  [/: $/, /^["'`}\\\r\n]?$/],
  [/(?:[:"'`(<>[{,]|%(?:22|27|3a)|\\u00(?:22|27|3a)|&(?:quot|apos|#39|#34);)$/i, /^["'`)<>\]},;@&%\\\r\n]?$/],
];

/** Whether what was found can only be a secret, or stands in the place of a value. */
function isNoWord(text: string, { start, end, isCut }: Range): boolean {
  if (isCut) return true;
  if (!WORD_OR_SHORT.test(text.slice(start, end))) return true;
  // No sign of a value is longer than eight characters.
  const [before, after] = [text.slice(Math.max(0, start - 8), start), text.slice(end, end + 1)];
  return PLACES.some((place) => place[0].test(before) && place[1].test(after));
}

interface Spellings {
  readonly escaped: readonly string[];
  /** Where blanks between the characters mean nothing. */
  readonly encoded: readonly string[];
}

/** The spellings of a secret: unchanged, without the scheme of a header value (`ApiKey abc`), and by every encoder. */
function spellingsOf(given: string): Spellings {
  const secret = given.replace(LONE_SURROGATES, "\ufffd");
  const withoutScheme = /^[\w-]+ +(\S{6,})$/.exec(secret)?.[1];
  const values = withoutScheme === undefined ? [secret] : [secret, withoutScheme];
  const escaped = values.flatMap((value) => ESCAPERS.map((write) => oneLine(write(value))));
  const hex = Buffer.from(secret).toString("hex");
  const bytes = hex.length < 2 * MIN_BYTES ? [] : [hex, hex.toUpperCase()];
  // A body that is encoded as a whole has the secret unchanged, in JSON, or in a form.
  const encoded = [...bytes, ...[secret, json(secret), form(secret)].flatMap(base64Forms)];
  return { escaped: unique(escaped), encoded: unique(encoded) };
}

function unique(words: readonly string[]): readonly string[] {
  return [...new Set(words)].filter((word) => word !== "");
}

const json = (text: string): string => JSON.stringify(text).slice(1, -1);
const form = (text: string): string => new URLSearchParams([["", text]]).toString().slice(1);
const lower = (text: string): string => text.replace(/%../g, (byte) => byte.toLowerCase());
const unicode = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
const inAscii = (text: string): string => text.replace(/[^\0-\x7f]/g, unicode);
const dotNet = (text: string): string =>
  text.replace(/[<>&'+`]|\\"|[^\0-\x7f]/g, (found) => `\\u${unicode(found.slice(-1)).slice(2).toUpperCase()}`);
const html = (text: string, others: Readonly<Record<string, string>>): string =>
  text.replace(/[&<>"'+=/`]/g, (character) => others[character] ?? HTML[character] ?? character);
const HTML: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

const inUrl = (base64: string): string => base64.replaceAll("+", "-").replaceAll("/", "_");

/** How receivers and gateways escape what they were sent. */
const ESCAPERS: readonly ((secret: string) => string)[] = [
  (secret) => secret,
  // UTF-8 read as Latin-1.
  (secret) => Buffer.from(secret).toString("latin1"),
  json,
  (secret) => json(json(secret)),
  // Python; PHP.
  (secret) => inAscii(json(secret)),
  (secret) => json(secret).replaceAll("/", "\\/"),
  (secret) => inAscii(json(secret)).replaceAll("/", "\\/"),
  // Go; Rails; .NET.
  (secret) => json(secret).replace(/[<>&]/g, unicode),
  (secret) => json(secret).replace(/[<>&'+=]/g, unicode),
  (secret) => dotNet(json(secret)),
  encodeURIComponent,
  (secret) => lower(encodeURIComponent(secret)),
  form,
  (secret) => lower(form(secret)),
  (secret) => html(secret, {}),
  (secret) => html(secret, { '"': '"' }),
  (secret) => html(secret, { "'": "&#39;" }),
  (secret) => html(secret, { "'": "&#039;" }),
  (secret) => html(secret, { "'": "&apos;" }),
  // Go; Python; Mustache and other template engines.
  (secret) => html(secret, { "'": "&#39;", '"': "&#34;", "+": "&#43;" }),
  (secret) => html(secret, { "'": "&#39;", '"': "&#34;" }),
  (secret) => html(secret, { "'": "&#x27;" }),
  (secret) => html(secret, { "'": "&#x27;", "/": "&#x2F;" }),
  (secret) => html(secret, { "'": "&#x27;", '"': "&#x22;", "/": "&#x2F;", "+": "&#x2b;" }),
  (secret) => html(secret, { "'": "&#39;", "/": "&#x2F;", "`": "&#x60;", "=": "&#x3D;" }),
  (secret) => html(json(secret), {}),
  (secret) => html(json(secret), { "'": "&#39;" }),
];

/**
 * The base64 text of the secret, and the part of it that is the same inside any longer text: base64 writes three bytes
 * as four characters, so there are three alignments, and the characters at both edges depend on the neighbours. URLs
 * use other characters.
 */
function base64Forms(secret: string): readonly string[] {
  const bytes = Buffer.from(secret, "utf8");
  const fragments = [0, 1, 2].map((offset) => {
    const encoded = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    return encoded.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
  });
  const whole = bytes.toString("base64");
  return [whole, whole.replace(/=+$/, ""), ...fragments]
    .filter((word) => word.length >= MIN_FRAGMENT_LENGTH)
    .flatMap((word) => [word, inUrl(word), word.replaceAll("/", "\\/"), encodeURIComponent(word)]);
}
