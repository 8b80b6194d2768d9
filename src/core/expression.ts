import jsonata from "jsonata";

/**
 * Compiles a JSONata expression without running it.
 *
 * @param text the expression
 * @param options limits and regular expression engine of later evaluations (JSONata's own options)
 * @returns the compiled expression
 * @throws Error with the reason and, where JSONata knows it, the character (counted from 1) and the text around it
 */
export function compileExpression(text: string, options: jsonata.JsonataOptions = {}): jsonata.Expression {
  try {
    return jsonata(text, options);
  } catch (error) {
    throw new Error(reason(text, error), { cause: error });
  }
}

/** JSONata throws plain objects with a code, a message and the position behind the last token it read. */
function reason(text: string, thrown: unknown): string {
  if (thrown instanceof RangeError) return "the expression is nested too deeply to compile";
  const { message, position } = Object(thrown) as { readonly message?: unknown; readonly position?: unknown };
  const what = typeof message === "string" && message !== "" ? message : String(thrown);
  if (typeof position !== "number") return what;
  const from = Math.max(0, position - 20);
  const around = text.slice(from, position + 20);
  return `${what}, at character ${position} near ${JSON.stringify(around)}`;
}
