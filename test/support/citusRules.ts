import { allNodes, childrenOf, contains, nodesOf, type TreeNode, textOf } from "./queryTree.ts";

/** What Citus refuses, or does otherwise than PostgreSQL, in a statement on tables that one node holds. */

/** Of functions and types, by their OIDs as text; a type has that of its conversion from and to text. */
export interface Volatility {
  readonly functions: ReadonlyMap<string, string>;
  readonly types: ReadonlyMap<string, string>;
  /** OIDs of the tables of the catalogue. */
  readonly catalogue: ReadonlySet<string>;
}

const COMMANDS: Readonly<Record<string, string>> = { "1": "SELECT", "2": "UPDATE", "3": "INSERT", "4": "DELETE" };

/** @returns what is wrong with an analysed statement */
export function citusProblems(statement: TreeNode, volatility: Volatility): readonly string[] {
  const problems: string[] = [];
  const volatilityOf = (node: TreeNode): string => {
    if (node.type === "NEXTVALUEEXPR") return "v";
    if (node.type === "SQLVALUEFUNCTION") return "s";
    if (node.type === "COERCEVIAIO") return volatilityOfConversion(node, volatility);
    const id = ["funcid", "opfuncid", "aggfnoid", "winfnoid"].map((field) => textOf(node, field)).find(Boolean);
    return (id !== undefined && volatility.functions.get(id)) || "i";
  };
  const isVolatile = (node: TreeNode) => volatilityOf(node) === "v";
  const isMutable = (node: TreeNode) => volatilityOf(node) !== "i";
  const refuse = (isProblem: boolean, problem: string) => {
    if (isProblem && !problems.includes(problem)) problems.push(problem);
  };
  const has = (nodes: readonly TreeNode[], isSuch: (node: TreeNode) => boolean) =>
    nodes.some((node) => contains(node, isSuch));

  /** An expression that Citus computes on the coordinator, if it can. It does not look into subqueries here. */
  const checkReducible = (expression: TreeNode): void => {
    if (expression.type === "QUERY") return;
    if (expression.type === "CASEEXPR" || expression.type === "COALESCEEXPR" || expression.type === "COALESCE") {
      refuse(contains(expression, isMutable), "CASE or COALESCE over what is not immutable");
      return;
    }
    if (isMutable(expression)) {
      const hasColumn = contains(
        expression,
        ({ type }) => type === "VAR",
        ({ type }) => type !== "QUERY",
      );
      refuse(hasColumn, "a stable function of a column");
    }
    childrenOf(expression).forEach(checkReducible);
  };

  const checkChange = (query: TreeNode, command: string): void => {
    const targets = nodesOf(query, "targetList").filter((target) => textOf(target, "resjunk") !== "true");
    const quals = nodesOf(query, "jointree").flatMap((tree) => nodesOf(tree, "quals"));
    if (command !== "INSERT") {
      refuse(contains(query, isVolatile), `a volatile function in ${command}`);
      quals.forEach(checkReducible);
    }
    if (command === "UPDATE") {
      targets.forEach(checkReducible);
      refuse(
        has(targets, (node) => node.type === "CASEEXPR" && nodesOf(node, "arg").length > 0),
        "CASE with an operand in what UPDATE writes",
      );
    }
    refuse(has(nodesOf(query, "returningList"), isMutable), "RETURNING what is not immutable");
    for (const conflict of nodesOf(query, "onConflict")) {
      const set = nodesOf(conflict, "onConflictSet").filter((target) => nodesOf(target, "expr")[0]?.type !== "VAR");
      const where = nodesOf(conflict, "onConflictWhere");
      refuse(has([...set, ...where], isMutable), "ON CONFLICT with what is not immutable");
    }
  };

  /** Citus writes a query anew, without the table in front of the columns of an only one: a result's name means that result. */
  const checkOrder = (query: TreeNode): void => {
    const [table, ...others] = nodesOf(query, "rtable");
    if (table === undefined || others.length > 0) return;
    const names = columnsOf(table);
    const nameOf = (result: TreeNode | undefined): string | undefined => {
      const [column] = result === undefined ? [] : nodesOf(result, "expr");
      return column?.type === "VAR" ? names[Number(textOf(column, "varattno")) - 1] : undefined;
    };
    const results = nodesOf(query, "targetList");
    for (const clause of nodesOf(query, "sortClause")) {
      const reference = textOf(clause, "tleSortGroupRef");
      const name = nameOf(results.find((result) => textOf(result, "ressortgroupref") === reference));
      const isOther = (result: TreeNode) => textOf(result, "resname") === name && nameOf(result) !== name;
      refuse(name !== undefined && results.some(isOther), "ORDER BY a column whose name is that of another result");
    }
  };

  const queries = allNodes(statement).filter(({ type }) => type === "QUERY");
  for (const query of queries) {
    const command = COMMANDS[textOf(query, "commandType") ?? ""] ?? "another command";
    if (command !== "SELECT") checkChange(query, command);
    checkOrder(query);
    const changes = nodesOf(query, "cteList").some((cte) =>
      nodesOf(cte, "ctequery").some((inner) => textOf(inner, "commandType") !== "1"),
    );
    refuse(command !== "SELECT" && changes, "changes in the WITH of a statement that is no SELECT");
    refuse(
      command !== "SELECT" && command !== "INSERT" && nodesOf(query, "cteList").some((cte) => contains(cte, isMutable)),
      "what is not immutable in the WITH of a change: it is computed on the coordinator",
    );
  }
  const tables = allNodes(statement).flatMap((node) =>
    node.type === "RANGETBLENTRY" || node.type === "RTE" ? [textOf(node, "relid") ?? "0"] : [],
  );
  const own = tables.some((table) => table !== "0" && !volatility.catalogue.has(table));
  refuse(own && tables.some((table) => volatility.catalogue.has(table)), "the catalogue beside the tables");
  return problems;
}

/** The names of the columns of a table, or of what else a query reads. */
function columnsOf(entry: TreeNode): readonly string[] {
  const [names] = nodesOf(entry, "eref")[0]?.fields.get("colnames") ?? [];
  return Array.isArray(names) ? names.map((name) => String(name).replace(/^"|"$/g, "")) : [];
}

/** From or to text, by the types that the node and its argument have. */
function volatilityOfConversion(node: TreeNode, { types }: Volatility): string {
  const [argument] = nodesOf(node, "arg");
  const fields = ["vartype", "consttype", "funcresulttype", "opresulttype", "paramtype", "resulttype", "coalescetype"];
  const from = argument && fields.map((field) => textOf(argument, field)).find(Boolean);
  const found = [textOf(node, "resulttype"), from].map((type) => types.get(type ?? "") ?? "i");
  return ["v", "s"].find((each) => found.includes(each)) ?? "i";
}
