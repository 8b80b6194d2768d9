/** A query as PostgreSQL has analysed it, from the text in which it stores the body of an SQL function (`prosqlbody`). */

export type Value = string | TreeNode | readonly Value[];

export interface TreeNode {
  /** In capitals, as `FUNCEXPR`. */
  readonly type: string;
  readonly fields: ReadonlyMap<string, readonly Value[]>;
}

/** @throws Error if the text ends too early */
export function parseQueryTree(text: string): readonly Value[] {
  // A backslash takes away the meaning of what follows.
  const tokens = text.match(/[(){}]|(?:\\[\s\S]|[^\s(){}\\])+/g) ?? [];
  let at = 0;
  const next = (): string => {
    const token = tokens[at];
    if (token === undefined) throw new Error("the query tree ends in the middle");
    at += 1;
    return token;
  };
  const values = (end: string): Value[] => {
    const found: Value[] = [];
    while (tokens[at] !== end) found.push(value());
    at += 1;
    return found;
  };
  const value = (): Value => {
    const token = next();
    if (token === "(") return values(")");
    return token === "{" ? node() : token;
  };
  const node = (): TreeNode => {
    const type = next();
    const fields = new Map<string, Value[]>();
    let field: Value[] = [];
    for (const each of values("}")) {
      if (typeof each === "string" && each.startsWith(":")) {
        field = [];
        fields.set(each.slice(1), field);
      } else field.push(each);
    }
    return { type, fields };
  };
  const all: Value[] = [];
  while (at < tokens.length) all.push(value());
  return all;
}

export const isNode = (value: Value | undefined): value is TreeNode =>
  typeof value === "object" && !Array.isArray(value);

/** The nodes of a field, through lists. */
export function nodesOf(node: TreeNode, field: string): readonly TreeNode[] {
  return nodesIn(node.fields.get(field) ?? []);
}

export function textOf(node: TreeNode, field: string): string | undefined {
  const [value] = node.fields.get(field) ?? [];
  return typeof value === "string" ? value : undefined;
}

function nodesIn(values: readonly Value[]): readonly TreeNode[] {
  return values.flatMap((value) => {
    if (typeof value === "string") return [];
    return isNode(value) ? [value] : nodesIn(value);
  });
}

/** The nodes below one. */
export function childrenOf({ fields }: TreeNode): readonly TreeNode[] {
  return nodesIn([...fields.values()].flat());
}

/** Whether a node, or one below it, is such a one. @param goesInto whether to look below a node */
export function contains(
  node: TreeNode,
  isSuch: (node: TreeNode) => boolean,
  goesInto: (node: TreeNode) => boolean = () => true,
): boolean {
  return isSuch(node) || (goesInto(node) && childrenOf(node).some((child) => contains(child, isSuch, goesInto)));
}

/** A node and all below it. */
export function allNodes(node: TreeNode): readonly TreeNode[] {
  return [node, ...childrenOf(node).flatMap(allNodes)];
}
