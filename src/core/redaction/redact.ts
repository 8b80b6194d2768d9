import type { SecretMasker } from "../../ports/runtime.ts";
import { type Change, LONGEST_ESCAPE, readingsOf } from "./escapes.ts";

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
/** The bytes of a shorter secret occur in any list of numbers. */
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
 * The secrets of a process. Finds them in texts from outside: as they are, in base64 (inside a longer text and over
 * several lines too), as bytes in hexadecimal or decimal, and in all of these with any characters escaped for JSON,
 * HTML, a URL or source code, up to three levels deep. A secret under 4 characters is masked only as a separate word.
 */
export class KnownSecrets implements SecretMasker {
  readonly #counts = new Map<string, number>();
  #spellings: readonly Spellings[] = [];

  /** @param secrets every configured secret value */
  constructor(secrets: Iterable<string> = []) {
    for (const secret of secrets) this.#counts.set(secret, 1);
    this.#spell();
  }

  add(secret: string): () => void {
    this.#count(secret, 1);
    let known = true;
    return () => {
      if (known) this.#count(secret, -1);
      known = false;
    };
  }

  mask(text: string, cut: boolean, isOurs = false): string {
    if (this.#counts.size === 0) return text;
    const until = cut ? this.#beginningAtEnd(text) : text.length;
    let masked = "";
    let position = 0;
    for (const range of merged(this.#find(text))) {
      if (range.start >= until || (isOurs && !isNoWord(text, range))) continue;
      masked += text.slice(position, range.start) + MASK;
      position = range.end;
    }
    return masked + text.slice(position, Math.max(position, until));
  }

  #find(text: string): readonly Range[] {
    const ranges: Range[] = [];
    for (const reading of readingsOf(text)) {
      for (const { words, folding } of this.#spellings) {
        const folded = reading.changed(folding);
        for (const word of words) {
          for (let at = folded.text.indexOf(word); at >= 0; at = folded.text.indexOf(word, at + 1)) {
            const end = at + word.length;
            if (word.length >= SHORTEST_ANYWHERE || isAlone(folded.text, at, end)) ranges.push(folded.rangeOf(at, end));
          }
        }
      }
    }
    return ranges;
  }

  /** @returns the place of a secret that may have been cut off with the end of a text; the length of the text if none may */
  #beginningAtEnd(text: string): number {
    const from = Math.max(0, text.length - 6 * this.#longest);
    let first = text.length;
    for (let end = text.length; end >= from && end >= text.length - LONGEST_ESCAPE; end--) {
      // Behind the end is the beginning of an escape.
      if (end < text.length && !/[\\%&]/.test(text.charAt(end))) continue;
      for (const reading of readingsOf(text.slice(from, end))) {
        for (const { words, folding } of this.#spellings) {
          const folded = reading.changed(folding);
          for (const word of words) {
            const at = beginningOf(word, folded.text);
            if (at < folded.text.length) first = Math.min(first, from + folded.rangeOf(at, folded.text.length).start);
          }
        }
      }
    }
    return first;
  }

  get #longest(): number {
    return Math.max(...this.#spellings.flatMap(({ words }) => words.map(({ length }) => length)));
  }

  #count(secret: string, change: 1 | -1): void {
    const before = this.#counts.get(secret) ?? 0;
    const after = before + change;
    if (after === 0) this.#counts.delete(secret);
    else this.#counts.set(secret, after);
    if (before === 0 || after === 0) this.#spell();
  }

  #spell(): void {
    const secrets = [...this.#counts.keys()];
    const spelled = (forms: (secret: string) => readonly string[], folding: Change): Spellings => ({
      words: [...new Set(secrets.flatMap(forms))].filter((word) => word !== ""),
      folding,
    });
    this.#spellings = [
      spelled(plainForms, PLAIN),
      spelled((secret) => escapedForms(secret).flatMap(base64Forms), BASE64),
      spelled(byteForms, BYTES),
    ];
  }
}

/** The ways to write secrets in one encoding. */
interface Spellings {
  readonly words: readonly string[];
  /** Makes equal what means the same. */
  readonly folding: Change;
}

interface Range {
  readonly start: number;
  readonly end: number;
}

/** Makes one range of several ranges that overlap. */
function merged(ranges: readonly Range[]): readonly Range[] {
  const found: { start: number; end: number }[] = [];
  for (const { start, end } of ranges.toSorted((a, b) => a.start - b.start)) {
    const last = found.at(-1);
    if (last === undefined || start >= last.end) found.push({ start, end });
    else last.end = Math.max(last.end, end);
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
function isNoWord(text: string, { start, end }: Range): boolean {
  if (!WORD_OR_SHORT.test(text.slice(start, end))) return true;
  // No sign of a value is longer than eight characters.
  const [before, after] = [text.slice(Math.max(0, start - 8), start), text.slice(end, end + 1)];
  return PLACES.some((place) => place[0].test(before) && place[1].test(after));
}

/** The secret itself, without the scheme of a header value (`ApiKey abc`), and its UTF-8 bytes read as Latin-1. */
function plainForms(secret: string): readonly string[] {
  const withoutScheme = /^[\w-]+ +(\S{6,})$/.exec(secret)?.[1];
  const values = withoutScheme === undefined ? [secret] : [secret, withoutScheme];
  return values.flatMap((value) => [value, Buffer.from(value, "utf8").toString("latin1")]).map(oneLine);
}

/**
 * The base64 text of the secret, and the part of it that is the same inside any longer text: base64 writes three bytes
 * as four characters, so there are three alignments, and the characters at both edges depend on the neighbours.
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
  return [whole, whole.replace(/=+$/, ""), ...fragments].filter((form) => form.length >= MIN_FRAGMENT_LENGTH);
}

/** The secret in bodies that are encoded as a whole: as is, in JSON, in a form. */
function escapedForms(secret: string): readonly string[] {
  const json = JSON.stringify(secret).slice(1, -1);
  return [...new Set([secret, json, new URLSearchParams([["", secret]]).toString().slice(1)])];
}

/** The UTF-8 bytes of the secret: in hexadecimal, also as lists (`0x73, 0x76` and `73,76`), and as a decimal list. */
function byteForms(secret: string): readonly string[] {
  const bytes = Buffer.from(secret, "utf8");
  if (bytes.length < MIN_BYTES) return [];
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"));
  return [digits.join(""), digits.join(","), `0x${digits.join(",0x")}`, `0x${digits.join("0x")}`, bytes.join(",")];
}

/** Any run of blanks counts as one. */
const PLAIN: Change = {
  pattern: new RegExp(`(?:\\s|${INVISIBLE.source})+`, "g"),
  to: (found) => (/\s/.test(found) ? " " : ""),
};

/** Many programs wrap base64 at 64 or 76 characters, and URLs use other characters. */
const BASE64: Change = {
  pattern: new RegExp(`(?:\\s|${INVISIBLE.source})+|[-_]`, "g"),
  to: (found) => (found === "-" ? "+" : found === "_" ? "/" : ""),
};

/** Hexadecimal digits and the `x` of `0x` in either letter case, with or without a blank or a colon between bytes. */
const BYTES: Change = {
  pattern: new RegExp(`(?:[\\s:-]|${INVISIBLE.source})+|[A-FX]`, "g"),
  to: (found) => (/[A-FX]/.test(found) ? found.toLowerCase() : ""),
};
