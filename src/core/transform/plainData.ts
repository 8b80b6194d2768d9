import { randomBytes } from "node:crypto";

/**
 * JSONata marks its own functions and arrays by properties and asks any object for them, so that a payload with such a property is
 * taken for a function, for a stream of variables, or for an array. Such names are written differently while an expression runs,
 * in payloads as in expressions, and restored in what comes out. So are texts that equal one: an expression may make a name of a
 * text, as `{name: value}` does, or compare them.
 */
const RESERVED = ["_jsonata_lambda", "_jsonata_function", "tupleStream", "outerWrapper"];

/**
 * Nobody outside can know it, so that no text of a payload is taken for a hidden name. Its characters, for private use, have one
 * letter case: what `$uppercase` gives is restored too.
 */
const SUFFIX = Array.from(randomBytes(16), (byte) => String.fromCharCode(0xe000 + byte)).join("");
const HIDDEN: ReadonlyMap<string, string> = new Map(RESERVED.map((name) => [name, name + SUFFIX]));

/** Whether a JSON text may hold a reserved name, also one with escapes: every letter of theirs is between U+0050 and U+007F. */
function mayHoldReserved(json: string): boolean {
  return RESERVED.some((name) => json.includes(name)) || (json.includes("\\u00") && /\\u00[5-7]/.test(json));
}

/** The name itself unless it is reserved. */
export function hiddenName(name: string): string {
  return HIDDEN.get(name) ?? name;
}

/**
 * Parses a JSON text into data that JSONata takes for nothing else.
 *
 * @returns the value, and whether a name was hidden in it
 * @throws SyntaxError
 */
export function parsePlain(json: string): { readonly value: unknown; readonly hides: boolean } {
  const document: unknown = JSON.parse(json);
  if (!mayHoldReserved(json)) return { value: document, hides: false };
  // A document may be such a text itself.
  const root = [document];
  const hides = hideNames(root);
  return { value: root[0], hides };
}

/** Hides reserved names of the objects in a value, and texts that equal one, in place. @returns whether there was one */
export function hideNames(value: unknown): boolean {
  let found = false;
  const pending: unknown[] = [value];
  // Not by recursion: a payload may be nested deeper than the stack.
  while (pending.length > 0) {
    const next = pending.pop();
    if (typeof next !== "object" || next === null) continue;
    if (!Array.isArray(next) && RESERVED.some((name) => Object.hasOwn(next, name))) {
      rename(next as Record<string, unknown>);
      found = true;
    }
    for (const [name, child] of Object.entries(next)) {
      if (typeof child === "object") pending.push(child);
      else if (HIDDEN.has(child)) {
        (next as Record<string, unknown>)[name] = HIDDEN.get(child);
        found = true;
      }
    }
  }
  return found;
}

/** All properties are set anew, so that their order stays. */
function rename(object: Record<string, unknown>): void {
  for (const [name, value] of Object.entries(object)) {
    delete object[name];
    // Not by an assignment: `__proto__` is a name like any other.
    Object.defineProperty(object, hiddenName(name), { value, writable: true, enumerable: true, configurable: true });
  }
}

/** The text with every hidden name as it was. */
export function restoreNames(text: string): string {
  return text.replaceAll(SUFFIX, "");
}
