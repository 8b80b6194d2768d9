import jsonata from "jsonata";
import { type Matcher, RE2JS, RE2JSSyntaxException } from "re2js";
import { errorText } from "../../model/errors.ts";
import { correctTimeZones } from "./timeZones.ts";

/**
 * Compiles a JSONata expression without running it. Its regular expressions run in linear time; those that the engine
 * does not support are refused here, not when a message arrives.
 *
 * @param options limits and regular expression engine of later evaluations (JSONata's own options)
 * @throws Error with the reason and, where JSONata reports it, the character (counted from 1) and the text around it
 */
export function compileExpression(text: string, options: jsonata.JsonataOptions = {}): jsonata.Expression {
  try {
    const expression = jsonata(text, options);
    checkDepth(expression);
    correctTimeZones(expression);
    for (const node of syntaxNodes(expression)) checkRegularExpression(node);
    return expression;
  } catch (error) {
    throw new Error(reason(text, error), { cause: error });
  }
}

/** A node of JSONata's syntax tree; its properties depend on its type. */
interface SyntaxNode {
  readonly type: string;
  readonly value?: unknown;
  readonly position?: unknown;
  readonly [property: string]: unknown;
}

/** Every node of an expression's syntax tree, roughly in the order of the text. */
export function syntaxNodes(expression: jsonata.Expression): readonly SyntaxNode[] {
  return Array.from(syntaxTree(expression), ({ part }) => part).filter(
    (part): part is SyntaxNode => "type" in part && typeof part.type === "string",
  );
}

/** Every object of the syntax tree, with its depth. Not recursive: a long chain of operators is a deep tree. */
function* syntaxTree(expression: jsonata.Expression): Generator<{ readonly part: object; readonly depth: number }> {
  const seen = new Set<object>();
  const pending: { readonly value: unknown; readonly above: number }[] = [{ value: expression.ast(), above: 0 }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { value, above } = next;
    if (typeof value !== "object" || value === null || value instanceof RegExp || seen.has(value)) continue;
    seen.add(value);
    const depth = above + levelsOf(value);
    yield { part: value, depth };
    for (const child of Object.values(value).reverse()) pending.push({ value: child, above: depth });
  }
}

/** JSONata's error as text. It throws plain objects with a message and the position after the last token read. */
export function reasonAt(text: string, thrown: unknown): string {
  const what = errorText(thrown);
  const { position } = Object(thrown) as { readonly position?: unknown };
  // The position of a built-in function may be left over from another expression.
  if (typeof position !== "number" || position > text.length) return what;
  const from = Math.max(0, position - NEIGHBOURHOOD);
  return `${what}, at character ${position} near ${JSON.stringify(text.slice(from, position + NEIGHBOURHOOD))}`;
}

/** Characters shown on each side of a position. */
const NEIGHBOURHOOD = 20;

/**
 * Deepest syntax tree. The parser recurses, and its limit depends on the version of Node (1,200 to 5,000 levels): an
 * expression that one version accepts must compile on the others too.
 */
const MAX_DEPTH = 1000;
const TOO_DEEP =
  `the expression is nested too deeply to compile: more than ${MAX_DEPTH} levels, and each operator of a chain such as ` +
  "a & b & c is one; join many values with $join([...]) or $sum([...])";

function reason(text: string, thrown: unknown): string {
  return thrown instanceof RangeError ? TOO_DEEP : reasonAt(text, thrown);
}

/** @throws RangeError, like the parser at its own limit */
function checkDepth(expression: jsonata.Expression): void {
  for (const { depth } of syntaxTree(expression)) if (depth > MAX_DEPTH) throw new RangeError(TOO_DEEP);
}

/** The steps and predicates of a path are a list in the tree, but one level each for the parser. */
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

/**
 * JSONata evaluates the members of `[...]` and `{...}` and the groups of a group-by concurrently, and counts each one
 * begun as a level of depth: an object of 101 members, or a group-by over 101 keys, would exceed a `maxDepth` of 100
 * without recursion. MemberTurns runs one member at a time; `waiting` is the excess in JSONata's count.
 *
 * Its hooks at the entry and exit of each node make an evaluation a third slower: use it only for expressions that
 * {@link countsMembersAsDepth} selects.
 */
export class MemberTurns {
  /** Members that JSONata has counted but that have not begun. */
  waiting = 0;
  /** Values that JSONata evaluates concurrently. */
  readonly #members = new WeakSet<SyntaxNode>();
  /** The constructor whose members JSONata is entering; all of them come before anything else runs. */
  #open: Turn[] | undefined;
  /** The constructors in evaluation, innermost last, each with its waiting members. */
  readonly #constructors: Turn[][] = [];

  constructor(expression: jsonata.Expression) {
    const hook = (name: string, callback: (node: SyntaxNode) => Promise<void> | undefined) =>
      // The function accepts symbols as names; its type does not.
      expression.assign(Symbol.for(name) as unknown as string, callback);
    hook("jsonata.__evaluate_entry", (node) => this.#enter(node));
    hook("jsonata.__evaluate_exit", (node) => this.#exit(node));
  }

  /** Drops the state of a failed evaluation. Its waiting members never run. */
  reset(): void {
    this.waiting = 0;
    this.#open = undefined;
    this.#constructors.length = 0;
  }

  #enter(node: SyntaxNode): Promise<void> | undefined {
    // Not at compile time: `$eval` adds nodes.
    for (const member of membersOf(node)) this.#members.add(member);
    if (!this.#members.has(node)) return undefined;
    if (this.#open === undefined) {
      const members: Turn[] = [];
      this.#open = members;
      queueMicrotask(() => this.#begin(members));
    }
    const open = this.#open;
    this.waiting++;
    return new Promise((resolve) => open.push(resolve));
  }

  #begin(members: Turn[]): void {
    if (this.#open !== members) return;
    this.#open = undefined;
    this.#constructors.push(members);
    this.#next(members);
  }

  #next(members: Turn[]): void {
    if (this.#constructors.at(-1) !== members) return;
    const turn = members.shift();
    if (turn === undefined) {
      this.#constructors.pop();
      return;
    }
    this.waiting--;
    turn();
  }

  #exit(node: SyntaxNode): undefined {
    if (!this.#members.has(node)) return;
    const members = this.#constructors.at(-1);
    // JSONata counts this member as ended one step after this hook; the next one begins after that.
    if (members !== undefined) queueMicrotask(() => this.#next(members));
  }
}

type Turn = () => void;

/** The values of a node that JSONata evaluates concurrently. */
function membersOf(node: SyntaxNode): readonly SyntaxNode[] {
  if (node.type === "unary" && node.value === "[") return node.expressions as readonly SyntaxNode[];
  const pairs = [...(node.type === "unary" && node.value === "{" ? pairsOf(node) : []), ...pairsOf(node.group)];
  return pairs.map(([, value]) => value);
}

function pairsOf(pairs: unknown): readonly (readonly [SyntaxNode, SyntaxNode])[] {
  return (pairs as { readonly lhs: readonly [SyntaxNode, SyntaxNode][] } | undefined)?.lhs ?? [];
}

/**
 * Whether JSONata's depth count can exceed a limit without recursion. Only concurrent members inflate it, and never
 * above the number of nodes unless a node is evaluated twice at once: that takes a group-by, or a function defined in
 * the expression. What `$eval` adds is unknown.
 */
export function countsMembersAsDepth(expression: jsonata.Expression, maxDepth: number): boolean {
  const nodes = syntaxNodes(expression);
  if (nodes.some(({ type, value }) => type === "variable" && value === "eval")) return true;
  if (!nodes.some((node) => node.group !== undefined || membersOf(node).length > 1)) return false;
  return nodes.length > maxDepth || nodes.some(mayRunTwiceAtOnce);
}

function mayRunTwiceAtOnce(node: SyntaxNode): boolean {
  // `{...}` with a computed key makes a member for each key in the input.
  const hasOpenKeys =
    node.type === "unary" && node.value === "{" && pairsOf(node).some(([key]) => key.type !== "string");
  return hasOpenKeys || node.group !== undefined || FUNCTION_NODES.has(node.type);
}

const FUNCTION_NODES: ReadonlySet<string> = new Set(["lambda", "partial", "apply"]);

/**
 * A `RegExp` with the flag `g` on RE2, in time linear in the text: JavaScript's engine backtracks, and a crafted
 * payload of 27 characters blocks it for seconds. It implements what JSONata uses: `new` with a `RegExp`, `lastIndex`,
 * `exec`.
 */
export class LinearRegExp {
  /** Start of the next search, in UTF-16 units. */
  lastIndex = 0;
  readonly #pattern: RE2JS;
  /** Kept between searches of one text: each match is one call of `exec`. */
  #current: { readonly text: string; readonly matcher: Matcher } | undefined;

  /** @throws Error that names what RE2 does not support */
  constructor(expression: RegExp) {
    this.#pattern = compileLinear(expression);
  }

  /**
   * Finds the next match from `lastIndex` and moves `lastIndex` to its end, also for an empty match.
   *
   * @returns match and groups, undefined for a group without a match, with `index`; null without a match, and
   * `lastIndex` is 0
   */
  exec(text: string): RegExpExecArray | null {
    // A regular expression called as a function may get any value.
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

/** JSONata passes the same literal at every use: it is compiled once, and freed with its expression. */
const compiled = new WeakMap<RegExp, RE2JS>();

/**
 * Compiles a regular expression for RE2. Named groups, `\/`, `\uXXXX` and the flags `i` and `m` keep their JavaScript
 * meaning.
 *
 * @throws Error that names what RE2 does not support
 */
function compileLinear(expression: RegExp): RE2JS {
  let pattern = compiled.get(expression);
  if (pattern === undefined) {
    pattern = translate(expression);
    compiled.set(expression, pattern);
  }
  return pattern;
}

function translate(expression: RegExp): RE2JS {
  // The translation takes some of these for letters and digits, and would match something else.
  if (BACKREFERENCE.test(expression.source)) throw new Error("backreferences are not supported");
  try {
    return RE2JS.compile(RE2JS.translateRegExp(expression));
  } catch (error) {
    throw new Error(error instanceof RE2JSSyntaxException ? regExpFault(error) : String(error));
  }
}

/** `\1` to `\9` and `\k<name>`; the alternatives before them skip escaped backslashes. */
const BACKREFERENCE = /^(?:[^\\]|\\[^1-9k]|\\k(?!<))*\\(?:[1-9]|k<)/;

function regExpFault({ error, input }: { readonly error: string; readonly input: string | null }): string {
  if (input === null) return error;
  if (/^\(\?[=!]/.test(input)) return "lookahead is not supported";
  if (/^\(\?<[=!]/.test(input)) return "lookbehind is not supported";
  return `${error} ${input}`;
}
