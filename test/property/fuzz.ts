import { Dice } from "./receipts/dice.ts";
import { PARSER_RUNS, runsOf, SEED } from "./settings.ts";

/**
 * Gives a parser of foreign bytes 100,000 inputs. They are drawn by hand: fast-check's generators take several times as
 * long as the parsers.
 *
 * @param draw makes an input
 * @param isRight whether the parser's answer to it is right
 * @throws Error with the first input that is answered wrongly, and the seed that draws it again
 */
export function fuzz<T>(draw: (dice: Dice) => T, isRight: (input: T) => boolean): void {
  const dice = new Dice(SEED);
  for (let left = runsOf(PARSER_RUNS); left > 0; left -= 1) {
    const input = draw(dice);
    let cause: unknown;
    try {
      if (isRight(input)) continue;
    } catch (error) {
      cause = error;
    }
    throw new Error(`SVC_TEST_SEED=${SEED} makes this input again: ${JSON.stringify(input)}`, { cause });
  }
}

/** What means something to JSON, to headers, or to JavaScript. */
const PIECES = [
  ...'"\\{}[]:,;=%/.-+ \t\n\r\0',
  ...["1e9", "-0", "null", "true", "\\u00e9", "\\ud800", "__proto__", "constructor", "\ufeff", "a", "é", "😀"],
] as const;

/** Up to so many pieces: meaningful ones, and characters of any plane, halves of a surrogate pair among them. */
export function anyText(dice: Dice, most = 10): string {
  let text = "";
  for (let left = dice.below(most + 1); left > 0; left -= 1) {
    text += dice.chance(0.5) ? dice.pick(PIECES) : String.fromCodePoint(dice.below(dice.pick(PLANES)));
  }
  return text;
}

const PLANES = [0x80, 0x800, 0x10000, 0x110000] as const;

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** Any value of JSON, nested so deep at most. */
export function anyJson(dice: Dice, depth = 3): Json {
  switch (dice.below(depth > 0 ? 7 : 5)) {
    case 0:
      return null;
    case 1:
      return dice.chance(0.5);
    case 2:
      return dice.below(1000) - 500;
    case 3:
      return dice.pick(NUMBERS) * dice.below(2 ** 32);
    case 4:
      return anyText(dice);
    case 5:
      return Array.from({ length: dice.below(4) }, () => anyJson(dice, depth - 1));
    default:
      return Object.fromEntries(
        Array.from({ length: dice.below(4) }, () => [anyText(dice, 3), anyJson(dice, depth - 1)]),
      );
  }
}

const NUMBERS = [-1, 0.1, 2 ** -40, 1e21, 5e-324, 1e290] as const;

/** JSON with and without spaces, now and then with a piece cut out or put in. */
export function anyJsonText(dice: Dice, value = anyJson(dice)): string {
  const text = JSON.stringify(value, null, dice.pick(SPACES));
  if (dice.chance(0.7)) return text;
  const at = dice.below(text.length + 1);
  return text.slice(0, at) + (dice.chance(0.5) ? dice.pick(PIECES) : "") + text.slice(at + dice.below(4));
}

export const SPACES = ["", "  ", "\t"] as const;
