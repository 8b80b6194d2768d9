import jsonata from "jsonata";
import { type Matcher, RE2JS, RE2JSSyntaxException } from "re2js";
import { errorText } from "../../model/errors.ts";

/**
 * Compiles a JSONata expression without running it. Its regular expressions run in linear time;
 * syntax that the engine does not support is refused here, not when a message arrives.
 *
 * @throws Error with the reason and, if JSONata reports it, the character (counted from 1) and the text around it
 */
export function compileExpression(text: string, options: jsonata.JsonataOptions = {}): jsonata.Expression {
  try {
    const expression = jsonata(text, options);
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

function syntaxNodes(expression: jsonata.Expression): readonly SyntaxNode[] {
  const nodes: SyntaxNode[] = [];
  const seen = new Set<object>();
  // Not recursive: a long chain of operators is a deep tree.
  const pending: unknown[] = [expression.ast()];
  while (pending.length > 0) {
    const part = pending.pop();
    if (typeof part !== "object" || part === null || part instanceof RegExp || seen.has(part)) continue;
    seen.add(part);
    if ("type" in part && typeof part.type === "string") nodes.push(part as SyntaxNode);
    for (const child of Object.values(part).reverse()) pending.push(child);
  }
  return nodes;
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

const NEIGHBOURHOOD = 20;

const TOO_DEEP =
  "the expression is nested too deeply to compile: each operator of a chain such as a & b & c is a level; " +
  "join many values with $join([...]) or $sum([...])";

function reason(text: string, thrown: unknown): string {
  return thrown instanceof RangeError ? TOO_DEEP : reasonAt(text, thrown);
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
 * Named groups, `\/`, `\uXXXX` and the flags `i` and `m` keep their JavaScript meaning.
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

/**
 * JSONata reads an offset from UTC as the number `hhmm`: `"+05:30"` as five minutes, `"-0530"` as six and a half hours,
 * `"Z"` as `NaN`, without an error. These functions of ours pass it on as JSONata means it.
 */

type FromMillis = (millis: number | undefined, picture?: string, zone?: string) => string | undefined;
type ToMillis = (this: Focus, text: string | undefined, picture?: string) => number | undefined;

/** What JSONata calls a function on. */
interface Focus {
  readonly environment: { readonly timestamp: Date };
}

const builtIn = async <F>(name: string): Promise<F> =>
  ((await jsonata(`$${name}`).evaluate(undefined)) as { readonly implementation: F }).implementation;
const [fromMillis, toMillis] = await Promise.all([builtIn<FromMillis>("fromMillis"), builtIn<ToMillis>("toMillis")]);

/** Makes `$fromMillis`, `$now` and `$toMillis` of an expression take every offset, or throw for what is none. */
function correctTimeZones(expression: jsonata.Expression): void {
  const format: FromMillis = (millis, picture, zone) =>
    fromMillis(millis, picture, zone === undefined ? undefined : zoneNumber(zone))
      // JSONata gives the minutes behind UTC a sign too, and `[Z1]` writes both signs.
      ?.replaceAll(/(-\d{1,2}:)-(\d{2})/g, "$1$2");
  expression.registerFunction("fromMillis", format, "<n-s?s?:s>");
  expression.registerFunction(
    "now",
    function (this: Focus, picture?: string, zone?: string) {
      return format(this.environment.timestamp.getTime(), picture, zone);
    },
    "<s?s?:s>",
  );
  expression.registerFunction("toMillis", parse, "<s-s?:n>");
}

/** @throws Error for anything but an offset: `Z`, `+5`, `-08`, `+0530`, `+05:30` */
function zoneNumber(zone: string): string {
  const [found, sign, hours, minutes = "00"] = /^(?:Z|([+-]?)(\d{1,2})(?::?([0-5]\d))?)$/i.exec(zone) ?? [];
  if (found === undefined)
    throw new Error(`the time zone ${JSON.stringify(zone)} is not an offset from UTC such as "+05:30" or "Z"`);
  if (hours === undefined) return "0";
  // JSONata rounds the hours down, but not the minutes: -0430 is what it takes for -05:30.
  const isSplit = sign === "-" && minutes !== "00";
  if (isSplit && Number(hours) === 0) throw new Error(`the time zone ${JSON.stringify(zone)} does not exist`);
  return `${sign ?? ""}${Number(hours) - (isSplit ? 1 : 0)}${minutes}`;
}

/** JSONata adds the minutes of an offset to its hours whatever the sign, and finds no offset in `Z`. */
function parse(this: Focus, text: string | undefined, picture?: string): number | undefined {
  const millis = toMillis.call(this, text, picture);
  if (text === undefined || picture === undefined || !/\[[Zz]/.test(picture)) return millis;
  // The picture takes a plus sign only in the place of the offset.
  const withOffset = (at: number, length: number, offset: string) =>
    toMillis.call(this, `${text.slice(0, at)}${offset}${text.slice(at + length)}`, picture);
  for (const { 0: found, 1: hours, 2: separator, 3: minutes, index } of text.matchAll(BEHIND)) {
    const utc = withOffset(index, found.length, `+00${separator}00`);
    if (utc !== undefined) return utc + (Number(hours) * 60 + Number(minutes)) * 60_000;
  }
  const z = millis === undefined ? text.toUpperCase().lastIndexOf("Z") : -1;
  return z < 0 ? millis : (withOffset(z, 1, "+00:00") ?? withOffset(z, 1, "+0000"));
}

/** Offsets behind UTC, and dates that look alike. */
const BEHIND = /-(\d{2})(:?)(\d{2})(?!\d)/g;
