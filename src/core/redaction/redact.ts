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
    const escaped = secrets.flatMap((secret) => secret.escaped.flatMap((each) => findEscaped(each, line, cut)));
    // Many programs wrap base64 at 64 or 76 characters, in JSON too, and write a blank between bytes.
    const packed = line.replace(/\\[nr]?| /g, "");
    const encoded = secrets.flatMap((secret) => find(secret.encoded, packed, cut));
    if (encoded.length === 0 || packed === line) return [...escaped, ...encoded];
    const places = Array.from(line.matchAll(/(?<!\\)[nr]|[^ \\nr]/g), ({ index }) => index);
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

function findEscaped(part: Part, text: string, cut: boolean): readonly Range[] {
  const ranges: Range[] = [];
  for (let from = 0; text.includes(part.fixed, from); from = part.whole.lastIndex) {
    part.whole.lastIndex = from;
    const found = part.whole.exec(text);
    if (found === null) break;
    const [start, end] = [found.index, part.whole.lastIndex];
    if (!part.isShort || isAlone(text, start, end)) ranges.push({ start, end, isCut: false });
    part.whole.lastIndex = start + 1;
  }
  const tail = cut ? text.slice(-LONGEST_PART * LONGEST_ESCAPED) : "";
  const start = tail.includes(part.lead) ? tail.search(part.beginning) : beginningOf(part.lead, tail);
  if (start >= 0 && start < tail.length) {
    ranges.push({ start: text.length - tail.length + start, end: text.length, isCut: true });
  }
  return ranges;
}

/** @param cut whether to find the beginning of a word at the end of the text too */
function find(words: readonly string[], text: string, cut: boolean): readonly Range[] {
  const ranges: Range[] = [];
  for (const word of words) {
    for (let start = text.indexOf(word); start >= 0; start = text.indexOf(word, start + 1)) {
      ranges.push({ start, end: start + word.length, isCut: false });
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
  readonly escaped: readonly Part[];
  /** For texts whose blanks between the characters mean nothing. */
  readonly encoded: readonly string[];
}

/** The spellings of a secret, and of what follows the scheme of a header value (`ApiKey abc`). */
function spellingsOf(given: string): Spellings {
  const secret = given.replace(LONE_SURROGATES, "\ufffd");
  const withoutScheme = /^[\w-]+ +(\S{6,})$/.exec(secret)?.[1];
  const values = withoutScheme === undefined ? [secret] : [secret, withoutScheme];
  // Receivers read UTF-8 as Latin-1.
  const read = values.flatMap((value) => [value, Buffer.from(value).toString("latin1")]);
  const hex = Buffer.from(secret).toString("hex");
  const bytes = hex.length < 2 * MIN_BYTES ? [] : [hex, hex.toUpperCase()];
  const form = new URLSearchParams([["", secret]]).toString().slice(1);
  // A body that is encoded as a whole has the secret unchanged, in JSON, or in a form.
  const encoded = [...bytes, ...[secret, JSON.stringify(secret).slice(1, -1), form].flatMap(base64Forms)];
  return { escaped: [...new Set(read)].flatMap(partsOf), encoded: [...new Set(encoded)] };
}

/** Characters of a part: an expression of as many is compiled in milliseconds. */
const LONGEST_PART = 64;
/** Characters of an escaped one. */
const LONGEST_ESCAPED = 40;
const OUTER = new RegExp(`^(?:\\s|${INVISIBLE.source})+|(?:\\s|${INVISIBLE.source})+$`, "g");

/** A text, or the parts of a long one: they overlap, so that what they find is masked as one. */
function partsOf(text: string): readonly Part[] {
  const all = text.replace(OUTER, "").match(/\\+|./gsu) ?? [];
  const last = Math.max(0, all.length - LONGEST_PART);
  const starts = Array.from({ length: Math.ceil(last / (LONGEST_PART - 1)) }, (_, n) => n * (LONGEST_PART - 1));
  return [...starts, last]
    .map((start) => all.slice(start, start + LONGEST_PART))
    .filter((characters) => oneLine(characters.join("")) !== "")
    .map((characters) => new Part(characters, text.length < SHORTEST_ANYWHERE));
}

/** Finds characters however each is escaped. */
class Part {
  /** The longest row of ASCII letters and digits: without it in a text the expression is not compiled. */
  readonly fixed: string;
  /** The letters and digits at the beginning. */
  readonly lead: string;
  readonly isShort: boolean;
  readonly #characters: readonly string[];
  #whole: RegExp | undefined;
  #beginning: RegExp | undefined;

  constructor(characters: readonly string[], isShort: boolean) {
    const rows = characters.join("").split(/[^a-z\d]/i);
    this.fixed = rows.reduce((longest, row) => (row.length > longest.length ? row : longest));
    this.lead = rows[0] ?? "";
    this.isShort = isShort;
    this.#characters = characters;
  }

  get whole(): RegExp {
    this.#whole ??= new RegExp(this.#sources().join(""), "g");
    return this.#whole;
  }

  /** Each character if the one before is there; at the end a part of an escape, and never the last character. */
  get beginning(): RegExp {
    this.#beginning ??= new RegExp(
      `${this.#sources().reduceRight((rest, source, n, { length }) => {
        const begun = source.length === 1 ? "(?!)" : String.raw`[%\\&][\w%#\\&;]{0,${LONGEST_ESCAPED}}`;
        return n === length - 1 ? `(?:${begun})?` : `(?:${source}${rest}|${begun})${n === 0 ? "" : "?"}`;
      }, "")}$`,
    );
    return this.#beginning;
  }

  #sources(): readonly string[] {
    return this.#characters.map((each, n) => sourceOf(each, /\s/.test(this.#characters[n - 1] ?? "")));
  }
}

/**
 * The expression of a character, or of backslashes in a row. Alternatives begin differently and repetitions are bounded,
 * so that the search takes linear time. Any entity stands for any character: too much is masked rather than too little.
 */
function sourceOf(found: string, afterBlank: boolean): string {
  if (/^[a-z\d]$/i.test(found)) return found;
  const [character = ""] = found;
  const units = character.split("").map((unit) => hexOf(unit.charCodeAt(0), 4));
  const bytes = Array.from(Buffer.from(character), (byte) => hexOf(byte, 2));
  const unicode = units.map((unit) => `u${unit}`).join("\\\\+");
  const percent = bytes.map((byte) => `[%x]${byte}`).join("\\\\*");
  // As in `\n`.
  const short = /^"\\([a-z])"$/.exec(JSON.stringify(character))?.[1];
  const isBlank = /\s/.test(character);
  const isSeen = character.replace(INVISIBLE, "").trim() !== "";
  const escapes = [unicode, percent, ...(short === undefined ? [] : [`(?<=\\\\)${short}`])];
  const entity = isSeen ? "&#?\\w{1,24};" : "&(?:nbsp|#\\w{1,7});";
  const written = (...others: readonly string[]) => `\\\\{0,8}(?:${[...others, ...escapes].join("|")})`;
  if (character === "\\") return `(?:(?:${written(entity)}){${found.length}}|\\\\{1,32}(?!\\\\))`;
  if (character === "%") return `\\\\{0,8}(?:%(?:25)?|[ux](?:00)?25|${entity})`;
  if (character === "&") return written(`&(?:${entity.slice(1)})?`);
  if (isSeen) return written(/[!-~]/.test(character) ? `\\${character}` : character, entity);
  const unlessWritten = `(?!${written(entity)})`;
  if (!isBlank) return `(?:${written(entity)}|${unlessWritten})`;
  // Blanks in a row are one in the text.
  if (!afterBlank) return written(" ", entity, ...(character === " " ? ["\\+"] : []));
  return `(?:${written(entity)}|(?<=\\+|%..)\\+| |(?<= )${unlessWritten})`;
}

/** A number in hexadecimal digits of either case. */
function hexOf(code: number, digits: number): string {
  const digit = (each: string) => `[${each}${each.toUpperCase()}]`;
  return code.toString(16).padStart(digits, "0").replace(/[a-f]/g, digit);
}

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
    .flatMap((word) => [word, word.replaceAll("+", "-").replaceAll("/", "_"), encodeURIComponent(word)]);
}
