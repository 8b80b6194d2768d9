import type jsonata from "jsonata";
import { type SyntaxNode, syntaxNodes } from "./expression.ts";

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
