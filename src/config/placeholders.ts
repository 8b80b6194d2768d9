/** Looks up a variable; undefined when it is not set. */
export type Lookup = (name: string) => string | undefined;

interface Substitution {
  readonly text: string;
  /** Names without value and without fallback. */
  readonly missing: readonly string[];
  /** Whether a `${` was left as it stands because what follows is no placeholder. */
  readonly literal: boolean;
}

const NAME = /[A-Za-z_][\w.]*/y;
// Only in front of a placeholder: `$${"id": id}` is JSONata and means what it says.
const ESCAPED = /\$\$\{(?=[A-Za-z_][\w.]*(?:\}|:-))/y;

/**
 * Replaces `${NAME}` and `${NAME:-fallback}` (spec, "Value formats"). As in a shell, the fallback also stands in for an empty variable,
 * and may hold placeholders itself. `$${NAME}` gives a literal `${NAME}`; a `${` that begins no placeholder stays as it is, because
 * JSONata has it too. Values that were put in are not looked at again.
 *
 * @param text a string value of the YAML file
 * @param lookup gives the value of a variable
 */
export function substitute(text: string, lookup: Lookup): Substitution {
  const missing: string[] = [];
  let literal = false;
  let position = 0;
  const result = until(undefined);
  return { text: result, missing, literal };

  /** Reads up to `end`, or to the end of the text. */
  function until(end: "}" | undefined): string {
    let output = "";
    while (position < text.length && text[position] !== end) {
      ESCAPED.lastIndex = position;
      if (ESCAPED.test(text)) {
        output += "${";
        position += 3;
      } else if (text.startsWith("${", position)) output += placeholder();
      else output += text[position++];
    }
    return output;
  }

  function placeholder(): string {
    const start = position;
    NAME.lastIndex = start + 2;
    const name = NAME.exec(text)?.[0];
    const end = start + 2 + (name?.length ?? 0);
    if (name !== undefined && text[end] === "}") {
      position = end + 1;
      const value = lookup(name);
      if (value === undefined) missing.push(name);
      return value ?? "";
    }
    if (name !== undefined && text.startsWith(":-", end)) {
      position = end + 2;
      const missingBefore = missing.length;
      const fallback = until("}");
      if (text[position] === "}") {
        position += 1;
        const value = lookup(name);
        if (value === undefined || value === "") return fallback;
        // The fallback is not used, so what it lacks does not matter.
        missing.length = missingBefore;
        return value;
      }
      missing.length = missingBefore;
    }
    literal = true;
    position = start + 2;
    return "${";
  }
}
