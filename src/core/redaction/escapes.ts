/** The ways to read an escaped text: receivers echo requests in JSON, HTML, URLs and source code, also one in another. */

/** Replaces what a pattern finds. */
export interface Change {
  readonly pattern: RegExp;
  /** @param groups of the pattern */
  readonly to: (found: string, ...groups: readonly (string | undefined)[]) => string;
}

/** A text that changes have made of another one, and where each of its units was there. */
class Reading {
  readonly text: string;
  readonly #from: { readonly reading: Reading; readonly change: Change } | undefined;
  #places: { readonly starts: readonly number[]; readonly ends: readonly number[] } | undefined;

  constructor(text: string, from?: { readonly reading: Reading; readonly change: Change }) {
    this.text = text;
    this.#from = from;
  }

  /** @returns this one if the pattern finds nothing */
  changed(change: Change): Reading {
    const text = this.text.replace(change.pattern, change.to);
    return text === this.text ? this : new Reading(text, { reading: this, change });
  }

  /** @returns the range of the first text from which a range of this one was made */
  rangeOf(start: number, end: number): { readonly start: number; readonly end: number } {
    if (this.#from === undefined || start === end) return { start, end };
    const { reading, change } = this.#from;
    this.#places ??= placesOf(reading.text, change);
    const { starts, ends } = this.#places;
    return reading.rangeOf(starts[start] ?? 0, ends[end - 1] ?? reading.text.length);
  }
}

/** For each unit of a changed text where its origin starts and ends. */
function placesOf(text: string, { pattern, to }: Change) {
  const starts: number[] = [];
  const ends: number[] = [];
  let at = 0;
  const keepUntil = (end: number): void => {
    for (; at < end; at++) {
      starts.push(at);
      ends.push(at + 1);
    }
  };
  for (const match of text.matchAll(pattern)) {
    keepUntil(match.index);
    const end = match.index + match[0].length;
    const [found, ...groups] = match;
    for (let left = to(found, ...groups).length; left > 0; left--) {
      starts.push(match.index);
      ends.push(end);
    }
    at = end;
  }
  keepUntil(text.length);
  return { starts, ends };
}

/** JSON within JSON within HTML: deeper nesting is not read. */
const MOST_NESTED = 3;
/** A hostile text may have more. */
const MOST_READINGS = 24;

/** A text unchanged, and without the escapes of each kind, up to {@link MOST_NESTED} times. */
export function readingsOf(text: string): readonly Reading[] {
  const readings = [new Reading(text)];
  const known = new Set([text]);
  let last: readonly Reading[] = readings;
  for (let nested = 0; nested < MOST_NESTED; nested++) {
    const next: Reading[] = [];
    for (const reading of last) {
      for (const each of ESCAPES) {
        const unescaped = reading.changed(each);
        if (known.size >= MOST_READINGS || known.has(unescaped.text)) continue;
        known.add(unescaped.text);
        next.push(unescaped);
      }
    }
    readings.push(...next);
    last = next;
  }
  return readings;
}

/** Longer than any escape of one character: an escape this close to the end of a cut text may be incomplete. */
export const LONGEST_ESCAPE = 24;

/** Bytes of one character in UTF-8, or else in Latin-1. */
function characterOf(bytes: readonly string[], base: number): string {
  const buffer = Buffer.from(bytes.map((byte) => Number.parseInt(byte, base)));
  const character = buffer.toString("utf8");
  return character.includes("\ufffd") ? buffer.toString("latin1") : character;
}

const codePoint = (digits: string, base: number): string => {
  const value = Number.parseInt(digits, base);
  return value <= 0x10ffff ? String.fromCodePoint(value) : "";
};

const CONTROL_LETTERS: Readonly<Record<string, string>> = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" };

/** Of JSON and string literals: `\n`, `\/`, `\u002B`, `\u{2b}`, `\U0000002b`, `\x2b`, `\053`. */
const BACKSLASHES: Change = {
  pattern:
    /\\(?:u([\da-fA-F]{4})|u\{([\da-fA-F]{1,6})\}|U([\da-fA-F]{8})|x([c-fC-F][\da-fA-F](?:\\x[89abAB][\da-fA-F]){1,3}|[\da-fA-F]{2})|(3[0-7]{2}(?:\\2[0-7]{2}){1,3}|[0-3][0-7]{2})|([bfnrtv])|(\W))/g,
  to(found, four, braced, eight, hex, octal, control, other) {
    const digits = braced ?? eight;
    // Half of a pair is a unit of its own.
    if (four !== undefined) return String.fromCharCode(Number.parseInt(four, 16));
    if (digits !== undefined) return codePoint(digits, 16);
    if (hex !== undefined) return characterOf(hex.split("\\x"), 16);
    if (octal !== undefined) return characterOf(octal.split("\\"), 8);
    return other ?? CONTROL_LETTERS[control ?? ""] ?? found;
  },
};

/** `%2B`, `%C3%BC`, `%u00fc`. */
const PERCENT: Change = {
  pattern: /%(?:u([0-9a-f]{4})|([c-f][0-9a-f](?:%[89ab][0-9a-f]){1,3}|[0-9a-f]{2}))/gi,
  to: (_found, unit, bytes = "") =>
    unit === undefined ? characterOf(bytes.split("%"), 16) : String.fromCharCode(Number.parseInt(unit, 16)),
};

const FORM: Change = {
  pattern: new RegExp(`\\+|${PERCENT.pattern.source}`, "gi"),
  to: (found, ...groups) => (found === "+" ? " " : PERCENT.to(found, ...groups)),
};

/** Named characters as escapers write them: some of ASCII, and Latin-1 in code point order. */
const LATIN_1_ENTITIES =
  "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro para " +
  "middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute " +
  "Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml " +
  "Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml " +
  "eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";
const NAMED: Readonly<Record<string, string>> = {
  ...{ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", plus: "+", sol: "/", equals: "=", commat: "@" },
  ...Object.fromEntries(LATIN_1_ENTITIES.split(" ").map((name, n) => [name, String.fromCharCode(0xa0 + n)])),
};

/** `&amp;`, `&#43;`, `&#x2b`. */
const HTML: Change = {
  pattern: new RegExp(`&(?:#([0-9]{1,8})|#[xX]([0-9a-fA-F]{1,8})|(${Object.keys(NAMED).join("|")}));?`, "g"),
  to: (found, decimal, hexadecimal, name = "") =>
    (decimal && codePoint(decimal, 10)) ?? (hexadecimal && codePoint(hexadecimal, 16)) ?? NAMED[name] ?? found,
};

const ESCAPES = [BACKSLASHES, HTML, PERCENT, FORM];
