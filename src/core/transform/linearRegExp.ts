import { type Matcher, RE2JS, RE2JSSyntaxException } from "re2js";

/**
 * A regular expression that looks like a `RegExp` with the flag `g` and runs on RE2, in time linear in the text: the engine of
 * JavaScript backtracks, and a crafted payload of 27 characters holds it for seconds. It has as much of a `RegExp` as JSONata
 * uses: `new` with a `RegExp`, `lastIndex`, `exec`.
 */
export class LinearRegExp {
  /** Where the next search begins, in UTF-16 units. */
  lastIndex = 0;
  readonly #pattern: RE2JS;
  /** Kept between searches of one text, since all matches are found one `exec` after another. */
  #current: { readonly text: string; readonly matcher: Matcher } | undefined;

  /** @throws Error that says what RE2 does not have */
  constructor(expression: RegExp) {
    this.#pattern = compileLinear(expression);
  }

  /**
   * Finds the next match from `lastIndex` on, and moves it behind the match: onto its end, also when the match is empty.
   *
   * @returns match and groups, undefined for a group that took no part, with `index`; null when there is none, and `lastIndex` is 0
   */
  exec(text: string): RegExpExecArray | null {
    // A regular expression that is called as a function may get anything.
    const input = String(text);
    const matcher = this.#matcher(input);
    if (this.lastIndex > input.length || !matcher.find(this.lastIndex)) {
      this.lastIndex = 0;
      return null;
    }
    this.lastIndex = matcher.end();
    const groups = Array.from({ length: matcher.groupCount() + 1 }, (_, group) => matcher.group(group) ?? undefined);
    return Object.assign(groups, { index: matcher.start(), input }) as RegExpExecArray;
  }

  #matcher(text: string): Matcher {
    if (this.#current?.text !== text) this.#current = { text, matcher: this.#pattern.matcher(text) };
    return this.#current.matcher;
  }
}

/** JSONata hands over the same literal at every use: it is compiled once, and let go of together with its expression. */
const compiled = new WeakMap<RegExp, RE2JS>();

/**
 * Compiles a regular expression for RE2. Groups by name, `\/`, `\uXXXX` and the flags `i` and `m` mean what they do in JavaScript.
 *
 * @throws Error that says what RE2 does not have
 */
export function compileLinear(expression: RegExp): RE2JS {
  let pattern = compiled.get(expression);
  if (pattern === undefined) {
    pattern = translate(expression);
    compiled.set(expression, pattern);
  }
  return pattern;
}

function translate(expression: RegExp): RE2JS {
  // The translation takes some of these for letters and digits, and would then match something else.
  if (BACKREFERENCE.test(expression.source)) throw new Error("backreferences are not supported");
  try {
    return RE2JS.compile(RE2JS.translateRegExp(expression));
  } catch (error) {
    throw new Error(error instanceof RE2JSSyntaxException ? reason(error) : String(error));
  }
}

/** `\1` to `\9` and `\k<name>`; the pairs before them let a backslash that is itself escaped pass. */
const BACKREFERENCE = /^(?:[^\\]|\\[^1-9k]|\\k(?!<))*\\(?:[1-9]|k<)/;

function reason({ error, input }: { readonly error: string; readonly input: string | null }): string {
  if (input === null) return error;
  if (/^\(\?[=!]/.test(input)) return "lookahead is not supported";
  if (/^\(\?<[=!]/.test(input)) return "lookbehind is not supported";
  return `${error} ${input}`;
}
