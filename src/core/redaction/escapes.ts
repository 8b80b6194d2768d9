/**
 * The readings of an escaped text: which characters each piece may mean. Receivers echo requests in JSON, HTML, URLs,
 * source code and mixtures of them, and escape more characters than they must.
 */

/** One reading at a position of a text. */
interface Reading {
  /** One UTF-16 unit, or a surrogate pair. */
  readonly units: string;
  /** Position after this reading. */
  readonly end: number;
}

/** JSON within JSON within HTML: deeper nesting is not decoded. */
const MAX_DEPTH = 3;
/** Longer than any escape of one character: an escape this close to the end of a cut text may be incomplete. */
export const MAX_ESCAPE_LENGTH = 24;

const BACKSLASH = 0x5c;
const AMPERSAND = 0x26;
const PERCENT = 0x25;
const PLUS = 0x2b;

/** Whether a UTF-16 unit can begin an escape; every other unit means only itself. */
export function beginsEscape(unit: number): boolean {
  return unit === BACKSLASH || unit === PERCENT || unit === AMPERSAND || unit === PLUS;
}

/** A text with the readings of its escapes. Each position is decoded once, so reading all of them takes linear time. */
export class EscapedText {
  readonly text: string;
  readonly #known = new Map<number, readonly Reading[]>();

  constructor(text: string) {
    this.text = text;
  }

  /**
   * The readings at a position: the unit itself and, where an escape begins, each character that it may mean.
   *
   * @param position below the length of the text
   * @param depth how many levels of escapes may be nested
   */
  at(position: number, depth = MAX_DEPTH): readonly Reading[] {
    const place = position * (MAX_DEPTH + 1) + depth;
    const known = this.#known.get(place);
    if (known !== undefined) return known;
    const readings: Reading[] = [{ units: this.text.charAt(position), end: position + 1 }];
    if (depth > 0 && !this.#addPlainEscape(position, readings)) this.#addEscapes(position, depth - 1, readings);
    this.#known.set(place, readings);
    return readings;
  }

  /** Fast path for escapes that cannot be nested, such as `\n`: most are. */
  #addPlainEscape(position: number, readings: Reading[]): boolean {
    if (this.text.charCodeAt(position) !== BACKSLASH) return false;
    const letter = this.text.charAt(position + 1);
    if (!PLAIN_ESCAPE.test(letter)) return false;
    const units = CONTROL_LETTERS[letter] ?? letter;
    if (units !== letter || isPunctuation(letter)) readings.push({ units, end: position + 2 });
    return true;
  }

  /** @param depth of the escapes within this escape */
  #addEscapes(position: number, depth: number, readings: Reading[]): void {
    const unit = this.text.charCodeAt(position);
    if (!beginsEscape(unit)) return;
    if (unit === PLUS) readings.push({ units: " ", end: position + 1 });
    const add = (units: string, end: number): void => {
      if (!readings.some((reading) => reading.units === units && reading.end === end)) readings.push({ units, end });
    };
    for (const { units, end } of this.at(position, depth)) {
      // Fewer levels count too: the same escape without nesting.
      if (end > position + 1) add(units, end);
      if (units === "\\") this.#addBackslash(end, depth, add);
      else if (units === "%") this.#addPercent(end, depth, add);
      else if (units === "&") this.#addHtml(end, depth, add);
    }
  }

  /** What follows a backslash: `\n`, `\/`, `\u002B`, `\u{2b}`, `\x2b`, `\053`. */
  #addBackslash(at: number, depth: number, add: (units: string, end: number) => void): void {
    if (at >= this.text.length) return;
    const letter = this.text.charAt(at);
    if (isPunctuation(letter)) {
      for (const { units, end } of this.at(at, depth)) if (isPunctuation(units)) add(units, end);
      return;
    }
    const control = CONTROL_LETTERS[letter];
    if (control !== undefined) add(control, at + 1);
    const codePoint = this.#match(CODE_POINT, at);
    if (codePoint !== undefined) {
      const [all, four, braced, eight] = codePoint;
      const value = Number.parseInt(four ?? braced ?? eight ?? "", 16);
      if (value <= 0x10ffff) add(String.fromCodePoint(value), at + all.length);
    }
    for (const form of [HEX_BYTE, OCTAL_BYTE]) this.#addBytes(form, "\\", at, depth, add);
  }

  /** What follows a percent sign: `%2B`, `%C3%BC`, `%u00fc`. */
  #addPercent(at: number, depth: number, add: (units: string, end: number) => void): void {
    const unit = this.#match(PERCENT_UNIT, at)?.[1];
    if (unit !== undefined) add(String.fromCharCode(Number.parseInt(unit, 16)), at + 5);
    this.#addBytes(PERCENT_BYTE, "%", at, depth, add);
  }

  /** What follows an ampersand: `&amp;`, `&#43;`, `&#x2b`. */
  #addHtml(at: number, depth: number, add: (units: string, end: number) => void): void {
    const name = this.#match(ENTITY_NAME, at)?.[0];
    const named = name === undefined ? undefined : ENTITIES.get(name);
    if (name !== undefined && named !== undefined) {
      for (const end of this.#after(";", at + name.length, depth)) add(named, end);
    }
    for (const digitsAt of this.#after("#", at, depth)) {
      const number = this.#match(CHARACTER_NUMBER, digitsAt);
      if (number === undefined) continue;
      const value = number[1] === undefined ? Number(number[2]) : Number.parseInt(number[1], 16);
      if (value > 0x10ffff) continue;
      const end = digitsAt + number[0].length;
      const ends = this.#after(";", end, depth);
      for (const each of ends.length === 0 ? [end] : ends) add(String.fromCodePoint(value), each);
    }
  }

  /** Positions after a given character, which may be escaped itself. */
  #after(character: string, at: number, depth: number): number[] {
    if (at >= this.text.length) return [];
    return this.at(at, depth)
      .filter(({ units }) => units === character)
      .map(({ end }) => end);
  }

  /** Adds the character that begins with the byte at a position, read as UTF-8 and as Latin-1. */
  #addBytes(
    form: ByteForm,
    introducer: string,
    at: number,
    depth: number,
    add: (units: string, end: number) => void,
  ): void {
    const first = this.#byte(form, at);
    if (first === undefined) return;
    add(String.fromCharCode(first.value), first.end);
    const length = first.value >= 0xf0 ? 4 : first.value >= 0xe0 ? 3 : first.value >= 0xc0 ? 2 : 1;
    const bytes = [first.value];
    let end = first.end;
    while (bytes.length < length) {
      const [next] = this.#after(introducer, end, depth);
      const byte = next === undefined ? undefined : this.#byte(form, next);
      if (byte === undefined) return;
      bytes.push(byte.value);
      end = byte.end;
    }
    const character = length === 1 ? "" : Buffer.from(bytes).toString("utf8");
    if (character !== "" && !character.includes("\ufffd")) add(character, end);
  }

  #byte(form: ByteForm, at: number): { readonly value: number; readonly end: number } | undefined {
    const match = this.#match(form.pattern, at);
    if (match === undefined) return undefined;
    return { value: Number.parseInt(match[1] ?? "", form.base), end: at + match[0].length };
  }

  #match(pattern: RegExp, at: number): RegExpExecArray | undefined {
    pattern.lastIndex = at;
    return pattern.exec(this.text) ?? undefined;
  }
}

interface ByteForm {
  readonly pattern: RegExp;
  readonly base: 8 | 16;
}

const CODE_POINT = /u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})/y;
const PERCENT_UNIT = /u([0-9a-f]{4})/iy;
const PERCENT_BYTE: ByteForm = { pattern: /([0-9a-f]{2})/iy, base: 16 };
const HEX_BYTE: ByteForm = { pattern: /x([0-9a-f]{2})/iy, base: 16 };
const OCTAL_BYTE: ByteForm = { pattern: /([0-3][0-7]{2})/y, base: 8 };
const CHARACTER_NUMBER = /[xX]([0-9a-fA-F]{1,8})|([0-9]{1,8})/y;
const ENTITY_NAME = /[A-Za-z]{2,8}[0-9]{0,2}/y;

/** What may follow a backslash and cannot begin anything else. */
const PLAIN_ESCAPE = /^[^\\%&+uUx0-9]$/;
const CONTROL_LETTERS: Readonly<Record<string, string>> = {
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/** Whether it is one ASCII character that is neither a letter, a digit nor a control character. */
function isPunctuation(units: string): boolean {
  const unit = units.charCodeAt(0);
  if (units.length !== 1 || unit < 0x20 || unit > 0x7e) return false;
  return unit < 0x30 || (unit > 0x39 && unit < 0x41) || (unit > 0x5a && unit < 0x61) || unit > 0x7a;
}

/** Named HTML characters as escapers write them: ASCII, and Latin-1 in code point order. */
const ASCII_ENTITIES = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  plus: "+",
  sol: "/",
  bsol: "\\",
  equals: "=",
  colon: ":",
  semi: ";",
  comma: ",",
  period: ".",
  excl: "!",
  quest: "?",
  num: "#",
  dollar: "$",
  percnt: "%",
  commat: "@",
  lpar: "(",
  rpar: ")",
  ast: "*",
  lsqb: "[",
  rsqb: "]",
  lcub: "{",
  rcub: "}",
  lowbar: "_",
  hyphen: "-",
  verbar: "|",
  vert: "|",
  grave: "`",
  Hat: "^",
  Tab: "\t",
  NewLine: "\n",
};
const LATIN_1_ENTITIES =
  "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro para " +
  "middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute " +
  "Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml " +
  "Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml " +
  "eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";
const ENTITIES: ReadonlyMap<string, string> = new Map([
  ...Object.entries(ASCII_ENTITIES),
  ...LATIN_1_ENTITIES.split(" ").map((name, index): [string, string] => [name, String.fromCharCode(0xa0 + index)]),
]);
