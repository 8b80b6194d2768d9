/**
 * JSONPath that names one value: the "singular queries" of RFC 9535, section 2.3.5.1. Dotted names are slightly wider
 * than the RFC's (`$.order-id`, `$.@type`, `$.$ref`), because messages have such fields. Startup rejects anything that
 * could select several values or needs computation.
 */

export interface JsonPath {
  readonly text: string;
  /** Member names and list indexes from the root down; a negative index counts from the end. */
  readonly segments: readonly (string | number)[];
}

const NAME = /[A-Za-z_$@\u{80}-\u{D7FF}\u{E000}-\u{10FFFF}][\w$@\u{80}-\u{D7FF}\u{E000}-\u{10FFFF}-]*/uy;
const LONE_SURROGATE = /\p{Surrogate}/u;
const BLANKS = /[ \t\n\r]*/y;
const INDEX = /(?:0|-?[1-9][0-9]*)(?![0-9.eE])/y;
/** How other kinds of expressions begin, and what to call them. */
const OTHER_SELECTORS: readonly (readonly [RegExp, string])[] = [
  [/\*/y, "the wildcard * finds any number of values"],
  [/\?/y, "the filter ? finds any number of values"],
  [/-?[0-9]*:/y, "a slice finds any number of values"],
  [/\(/y, "scripts are not evaluated"],
];
const ESCAPES: Readonly<Record<string, string>> = {
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  "/": "/",
  "\\": "\\",
  "'": "'",
  '"': '"',
};

/**
 * Parses a definite JSONPath.
 *
 * @param text such as `$.id`, `$.order['line items'][0].sku` or `$[-1]`
 * @throws Error with what was found, at which character (counted from 1), and what a path may hold
 */
export function parseJsonPath(text: string): JsonPath {
  const segments: (string | number)[] = [];
  let at = 0;

  const fail = (found: string, where = at): never => {
    throw new Error(
      `${JSON.stringify(text)} is not a usable JSONPath: at character ${where + 1}, ${found}; ` +
        "a path must name one value, for example $.order.id or $.items[0]['sku']",
    );
  };
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const match = pattern.exec(text)?.[0];
    at += match?.length ?? 0;
    return match;
  };
  const here = (): string => (at < text.length ? `found ${JSON.stringify(text.charAt(at))}` : "found the end");
  const failOnOtherSelectors = (): void => {
    for (const [pattern, reason] of OTHER_SELECTORS) {
      pattern.lastIndex = at;
      if (pattern.test(text)) fail(reason);
    }
  };

  /** A quoted name; `at` is on the opening quote. */
  const quotedName = (): string => {
    const start = at;
    const quote = text.charAt(at++);
    let name = "";
    for (;;) {
      const character = text.charAt(at);
      if (character === "") return fail("a quote opens that is never closed", start);
      if (character === quote) break;
      if (character < " ") return fail("found a raw control character (write it as \\u00XX)");
      at++;
      name += character === "\\" ? escapedCharacter() : character;
    }
    at++;
    if (LONE_SURROGATE.test(name)) return fail("the name holds half of a surrogate pair", start);
    return name;
  };
  const escapedCharacter = (): string => {
    const letter = text.charAt(at);
    const simple = Object.hasOwn(ESCAPES, letter) ? ESCAPES[letter] : undefined;
    const hex = letter === "u" ? /^[0-9A-Fa-f]{4}/.exec(text.slice(at + 1, at + 5))?.[0] : undefined;
    if (simple === undefined && hex === undefined) return fail("found an unknown escape", at - 1);
    at += hex === undefined ? 1 : 5;
    return hex === undefined ? (simple ?? "") : String.fromCharCode(Number.parseInt(hex, 16));
  };

  const bracketSegment = (): string | number => {
    const open = at++;
    take(BLANKS);
    failOnOtherSelectors();
    const quoted = text.charAt(at) === "'" || text.charAt(at) === '"';
    const digits = quoted ? undefined : take(INDEX);
    if (!quoted && digits === undefined) return fail(`expected a whole number or a quoted name, ${here()}`);
    const segment = quoted ? quotedName() : Number(digits);
    if (typeof segment === "number" && !Number.isSafeInteger(segment)) return fail("the index is too large", open);
    take(BLANKS);
    if (text.charAt(at) === ",") return fail("a union finds several values");
    failOnOtherSelectors();
    if (text.charAt(at) !== "]")
      return at < text.length ? fail(here()) : fail("a bracket opens that is never closed", open);
    at++;
    return segment;
  };
  const dottedName = (): string => {
    at++;
    if (text.charAt(at) === ".") return fail(".. finds any number of values", at - 1);
    failOnOtherSelectors();
    const name = take(NAME);
    if (name !== undefined) return name;
    if (/[0-9]/.test(text.charAt(at))) return fail("found a digit (write [0] for a list item, ['0'] for a member)");
    return fail(`expected a name, ${here()}`);
  };

  if (text.charAt(0) !== "$") fail("the leading $ is missing");
  at = 1;
  while (at < text.length) {
    const before = at;
    take(BLANKS);
    if (text.charAt(at) === "[") segments.push(bracketSegment());
    else if (text.charAt(at) === ".") segments.push(dottedName());
    else if (at === text.length) fail("blanks end it", before);
    else if (text.charAt(at) === "(") fail("functions are not evaluated");
    else fail(`expected . or [, ${here()}`);
  }
  return { text, segments };
}
