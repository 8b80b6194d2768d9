/**
 * The text of one member of a JSON object, so that what it holds travels on byte for byte: numbers keep their digits
 * (`12345678901234567890`, `1.0`), and nesting of any depth needs no stack.
 *
 * @param json an object's JSON text that has been parsed before: its form is not checked again
 * @param name of the member
 * @returns the member's text without the blanks around it, of the last one when there are several (as `JSON.parse` has it); undefined when
 *   there is none
 */
export function memberText(json: string, name: string): string | undefined {
  let found: string | undefined;
  let at = json.indexOf("{");
  do {
    const nameStart = json.indexOf('"', at);
    // An empty object.
    if (nameStart < 0) return found;
    const nameEnd = closingQuote(json, nameStart) + 1;
    const from = json.indexOf(":", nameEnd) + 1;
    at = endOfValue(json, from);
    if (JSON.parse(json.slice(nameStart, nameEnd)) === name) found = json.slice(from, at).trim();
  } while (json[at] === ",");
  return found;
}

/** Where the comma or brace stands that ends a member's value. */
function endOfValue(json: string, from: number): number {
  let depth = 0;
  for (let at = from; ; at++) {
    const character = json[at];
    if (character === '"') at = closingQuote(json, at);
    else if (character === "{" || character === "[") depth++;
    else if (depth === 0 && (character === "," || character === "}")) return at;
    else if (character === "}" || character === "]") depth--;
  }
}

function closingQuote(json: string, openingQuote: number): number {
  let at = openingQuote + 1;
  while (json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at;
}
