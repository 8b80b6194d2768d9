import type { ParserRuleContext } from "antlr4ts";
import type { ParseTree } from "antlr4ts/tree/ParseTree.js";
import {
  As_table_aliasContext,
  Order_by_clauseContext,
  Predicate_brContext,
  Query_specificationContext,
  Search_conditionContext,
  Table_source_itemContext,
} from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlParser.js";
import { type Batch, nodesOf, placeOf } from "./grammar.ts";
import { MARK } from "./names.ts";

/** A comparison of a plain column: the other side has no part in whether an index serves it. */
const PLAIN = new RegExp(`^(\\w+)\\.\\[(${MARK}\\w+)\\](?:=|<(?!>)|>|IN\\(|ISNULL)`, "i");
const REVERSED = new RegExp(`^(\\w+\\.\\w+|@\\w+)=(\\w+)\\.\\[(${MARK}\\w+)\\]$`);

/**
 * Reads of a configured table by no column but its state: of all rows of that state. A column that a function or a
 * collation converts, or that a condition joins by OR, is none that an index finds rows by; a hint that requires an
 * index makes such a statement impossible (error 8622).
 *
 * @param batch made with `MARKED_NAMES`
 */
export function readsOfAll({ tree }: Batch): readonly string[] {
  return nodesOf(tree, Table_source_itemContext).flatMap((item) => {
    const table = item.table_name_with_hint() ?? item.full_table_name();
    const alias = nodesOf(item, As_table_aliasContext)[0]?.table_alias().id().text;
    const query = queryOf(item);
    if (alias === undefined || query === undefined || table?.text.includes(MARK) !== true) return [];
    const columns = ownTerms(query).flatMap((term) => plainColumns(term, alias));
    const isFound = columns.some((column) => !/(?:State|Consumption)$/i.test(column));
    return isFound ? [] : [`${placeOf(item)} ${table.start.text}${table.text.slice(0, 60)} ${alias}`];
  });
}

/** Pages that begin with no range of the column that orders them: the rows before each page are read, too. */
export function unboundedPages({ tree }: Batch): readonly string[] {
  return nodesOf(tree, Order_by_clauseContext).flatMap(({ parent: query, text }) => {
    const [, alias, name] = /^ORDERBY(\w+)\.\[(\w+)\]/i.exec(text) ?? [];
    const condition = query && nodesOf(query, Query_specificationContext)[0]?._where;
    if (alias === undefined || name === undefined || !name.startsWith(MARK) || condition === undefined) return [];
    const terms = termsOf(condition);
    const column = `${alias}.[${name}]`;
    // On the left of a comparison: on the right it is no place in the order.
    const isMentioned = terms.some((term) => COMPARED.some((operator) => term.text.includes(`${column}${operator}`)));
    const isRange = terms.some((term) => plainColumns(term, alias).includes(name));
    return isMentioned && !isRange ? [`${placeOf(condition)} ${column} in ${condition.text}`] : [];
  });
}

const COMPARED = ["<", ">", "=", "IS"] as const;

/** What the conditions of a query, WHERE and ON, join by AND; those of subqueries are their own. */
function ownTerms(query: ParserRuleContext): readonly ParserRuleContext[] {
  return nodesOf(query, Search_conditionContext)
    .filter((each) => !(each.parent instanceof Predicate_brContext) && queryOf(each) === query)
    .flatMap(termsOf);
}

/** Without the brackets around it; the whole condition if it joins by OR. */
function termsOf(condition: Search_conditionContext): readonly ParserRuleContext[] {
  if (condition.OR().length > 0) return [condition];
  return condition.predicate_br().flatMap((term) => {
    const inner = term.search_condition();
    return inner === undefined || term.NOT().length > 0 ? [term] : termsOf(inner);
  });
}

function plainColumns(term: ParserRuleContext, alias: string): readonly string[] {
  if (!(term instanceof Predicate_brContext)) return [];
  const [, ofPlain, plain] = PLAIN.exec(term.text) ?? [];
  const [, , ofReversed, reversed] = REVERSED.exec(term.text) ?? [];
  const columns = [ofPlain === alias ? plain : undefined, ofReversed === alias ? reversed : undefined];
  return columns.filter((column) => column !== undefined);
}

/** The innermost query, UPDATE or DELETE around a node. */
function queryOf(node: ParserRuleContext): ParserRuleContext | undefined {
  for (let at: ParseTree | undefined = node.parent; at !== undefined; at = at.parent)
    if (at instanceof Query_specificationContext || /^(Update|Delete)_statementContext$/.test(at.constructor.name))
      return at as ParserRuleContext;
  return undefined;
}
