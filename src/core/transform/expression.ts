import jsonata from "jsonata";
import { type Matcher, RE2JS, RE2JSSyntaxException } from "re2js";
import { errorText } from "../../model/errors.ts";

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
interface SyntaxNode {
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

/**
 * JSONata evaluates the members of `[...]` and `{...}` and the groups of a group-by beside each other, and counts each one that has
 * begun as one level of depth: an object of 101 members, or a group-by over 101 keys of a payload, would exceed a `maxDepth` of 100
 * without any recursion. Here the members wait for their turn, so that one runs at a time, and `waiting` says by how many the count
 * is too high.
 *
 * It stands on JSONata's hooks at the entry and the exit of each node, which make an evaluation a third longer: use it for those
 * expressions only that {@link countsMembersAsDepth} picks out.
 */
export class MemberTurns {
  /** Members that JSONata has counted but that have not had their turn. */
  waiting = 0;
  /** Values that JSONata evaluates beside others. */
  readonly #members = new WeakSet<SyntaxNode>();
  /** The constructor whose members are just coming in; they all come before anything else runs. */
  #open: Turn[] | undefined;
  /** The constructors in evaluation, the innermost last, each with the members that wait. */
  readonly #constructors: Turn[][] = [];

  constructor(expression: jsonata.Expression) {
    const hook = (name: string, callback: (node: SyntaxNode) => Promise<void> | undefined) =>
      // The type knows no symbols as names, the function takes them.
      expression.assign(Symbol.for(name) as unknown as string, callback);
    hook("jsonata.__evaluate_entry", (node) => this.#enter(node));
    hook("jsonata.__evaluate_exit", (node) => this.#exit(node));
  }

  /** Forgets what a failed evaluation left. Its members that wait never run. */
  reset(): void {
    this.waiting = 0;
    this.#open = undefined;
    this.#constructors.length = 0;
  }

  #enter(node: SyntaxNode): Promise<void> | undefined {
    // Here and not when it is compiled: `$eval` brings nodes that nobody has seen before.
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
    // JSONata counts this member as ended one step after this hook: the next one begins behind that.
    if (members !== undefined) queueMicrotask(() => this.#next(members));
  }
}

type Turn = () => void;

/** The values that JSONata evaluates beside each other for a node. */
function membersOf(node: SyntaxNode): readonly SyntaxNode[] {
  if (node.type === "unary" && node.value === "[") return node.expressions as readonly SyntaxNode[];
  const pairs = [...(node.type === "unary" && node.value === "{" ? pairsOf(node) : []), ...pairsOf(node.group)];
  return pairs.map(([, value]) => value);
}

function pairsOf(pairs: unknown): readonly (readonly [SyntaxNode, SyntaxNode])[] {
  return (pairs as { readonly lhs: readonly [SyntaxNode, SyntaxNode][] } | undefined)?.lhs ?? [];
}

/**
 * Whether JSONata's own count of the depth can exceed a limit without recursion. It counts too high only beside other members, and
 * never above the number of nodes as long as none is in evaluation twice at once: that takes a group-by, or a function of the
 * expression's own. What `$eval` brings is not known.
 *
 * @param maxDepth the limit
 */
export function countsMembersAsDepth(expression: jsonata.Expression, maxDepth: number): boolean {
  const nodes = syntaxNodes(expression);
  if (nodes.some(({ type, value }) => type === "variable" && value === "eval")) return true;
  if (!nodes.some((node) => node.group !== undefined || membersOf(node).length > 1)) return false;
  return nodes.length > maxDepth || nodes.some(mayRunTwiceAtOnce);
}

function mayRunTwiceAtOnce(node: SyntaxNode): boolean {
  // `{...}` with a key that is no literal makes a member for each key that the input gives.
  const hasOpenKeys =
    node.type === "unary" && node.value === "{" && pairsOf(node).some(([key]) => key.type !== "string");
  return hasOpenKeys || node.group !== undefined || FUNCTION_NODES.has(node.type);
}

const FUNCTION_NODES: ReadonlySet<string> = new Set(["lambda", "partial", "apply"]);

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
function compileLinear(expression: RegExp): RE2JS {
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
    throw new Error(error instanceof RE2JSSyntaxException ? regExpFault(error) : String(error));
  }
}

/** `\1` to `\9` and `\k<name>`; the pairs before them let a backslash that is itself escaped pass. */
const BACKREFERENCE = /^(?:[^\\]|\\[^1-9k]|\\k(?!<))*\\(?:[1-9]|k<)/;

function regExpFault({ error, input }: { readonly error: string; readonly input: string | null }): string {
  if (input === null) return error;
  if (/^\(\?[=!]/.test(input)) return "lookahead is not supported";
  if (/^\(\?<[=!]/.test(input)) return "lookbehind is not supported";
  return `${error} ${input}`;
}
