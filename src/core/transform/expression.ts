import jsonata from "jsonata";
import { errorText } from "../../model/errors.ts";
import { compileLinear } from "./linearRegExp.ts";

/**
 * Compiles a JSONata expression without running it, its regular expressions included: they run in linear time, and what that
 * engine does not have is refused here and not when a message comes.
 *
 * @param text the expression
 * @param options limits and regular expression engine of later evaluations (JSONata's own options)
 * @returns the compiled expression
 * @throws Error with the reason and, where JSONata knows it, the character (counted from 1) and the text around it
 */
export function compileExpression(text: string, options: jsonata.JsonataOptions = {}): jsonata.Expression {
  try {
    const expression = jsonata(text, options);
    checkDepth(expression);
    for (const node of syntaxNodes(expression)) checkRegularExpression(node);
    return expression;
  } catch (error) {
    throw new Error(reason(text, error), { cause: error });
  }
}

/** A node of JSONata's syntax tree; which properties it has depends on its type. */
export interface SyntaxNode {
  readonly type: string;
  readonly value?: unknown;
  readonly position?: unknown;
  readonly [property: string]: unknown;
}

/** Every node of an expression's syntax tree, in the order of the text by and large. */
export function syntaxNodes(expression: jsonata.Expression): readonly SyntaxNode[] {
  const nodes: SyntaxNode[] = [];
  const seen = new Set<object>();
  const pending: unknown[] = [expression.ast()];
  // Not by recursion: a long chain of operators is a deep tree.
  while (pending.length > 0) {
    const next = pending.pop();
    if (typeof next !== "object" || next === null || next instanceof RegExp || seen.has(next)) continue;
    seen.add(next);
    if ("type" in next && typeof next.type === "string") nodes.push(next as SyntaxNode);
    for (const child of Object.values(next).reverse()) pending.push(child);
  }
  return nodes;
}

/**
 * What went wrong in the words of JSONata, which throws plain objects with a message and the position behind the last token it read.
 *
 * @param text the expression
 * @param thrown anything
 */
export function reasonAt(text: string, thrown: unknown): string {
  const what = errorText(thrown);
  const { position } = Object(thrown) as { readonly position?: unknown };
  // The position of a built-in function may be left over from another expression.
  if (typeof position !== "number" || position > text.length) return what;
  const from = Math.max(0, position - NEIGHBOURHOOD);
  return `${what}, at character ${position} near ${JSON.stringify(text.slice(from, position + NEIGHBOURHOOD))}`;
}

/** Characters that are shown on each side of a position. */
const NEIGHBOURHOOD = 20;

/**
 * Deepest syntax tree. The parser recurses, and how deep it can is not the same in each version of Node (it gives up at 1,200 to
 * 5,000 levels): what one version takes another has to take too.
 */
const MAX_DEPTH = 1000;
const TOO_DEEP =
  `the expression is nested too deeply to compile: more than ${MAX_DEPTH} levels, and each operator of a chain such as ` +
  "a & b & c is one; join many values with $join([...]) or $sum([...])";

function reason(text: string, thrown: unknown): string {
  return thrown instanceof RangeError ? TOO_DEEP : reasonAt(text, thrown);
}

/** @throws RangeError as the parser does when it gives up by itself */
function checkDepth(expression: jsonata.Expression): void {
  const seen = new Set<object>();
  const pending: { readonly value: unknown; readonly depth: number }[] = [{ value: expression.ast(), depth: 0 }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { value, depth } = next;
    if (typeof value !== "object" || value === null || value instanceof RegExp || seen.has(value)) continue;
    seen.add(value);
    const below = depth + levelsOf(value);
    if (below > MAX_DEPTH) throw new RangeError(TOO_DEEP);
    for (const child of Object.values(value)) pending.push({ value: child, depth: below });
  }
}

/** Steps of a path and predicates behind each other are lists in the tree, and one level each to the parser. */
function levelsOf(value: object): number {
  const { type, steps, predicate, stages } = value as Partial<Record<string, unknown>>;
  const lists = [steps, predicate, stages].map((list) => (Array.isArray(list) ? list.length : 0));
  return lists.reduce((sum, length) => sum + length, type === undefined ? 0 : 1);
}

function checkRegularExpression({ type, value, position }: SyntaxNode): void {
  if (type !== "regex" || !(value instanceof RegExp)) return;
  try {
    compileLinear(value);
  } catch (error) {
    const why = `the regular expression ${value.toString().slice(0, 100)} cannot be run in linear time: ${errorText(error)}`;
    throw Object.assign(new Error(why), { position });
  }
}
