import { TSqlLexer } from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlLexer.js";
import {
  As_table_aliasContext,
  Declare_localContext,
  Declare_statementContext,
  Execute_statement_arg_namedContext,
  Full_column_nameContext,
  Insert_column_idContext,
  Insert_statementContext,
  Output_clauseContext,
  Output_column_nameContext,
  Table_source_itemContext,
  Update_statementContext,
} from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlParser.js";
import type { TableNames } from "../../../src/adapters/stores/sql/names.ts";
import {
  DESTINATION_COLUMNS,
  HISTORY_COLUMNS,
  INBOX_COLUMNS,
  JOURNAL_COLUMNS,
  OUTBOX_COLUMNS,
  operationsTables,
} from "../../../src/model/rows.ts";
import { type Batch, nodesOf, placeOf, tokensOf } from "./grammar.ts";

export const MARK = "configured_";

const RESERVED_WORDS = [
  "Key",
  "From",
  "where",
  "group",
  "table",
  "index",
  "user",
  "values",
  "begin",
  "END",
  "case",
  "join",
  "union",
  "update",
  "delete",
  "insert",
  "into",
  "order",
  "select",
  "desc",
  "having",
  "percent",
];

/** Names that appear nowhere else: a test sees every place that has one, and every place that lacks one. */
export const MARKED_NAMES: TableNames = {
  schema: `${MARK}schema`,
  inboxTable: `${MARK}inbox`,
  outboxTable: `${MARK}outbox`,
  destinationTable: `${MARK}destination`,
  historyTable: `${MARK}history`,
  operations: operationsTables(MARK),
  inbox: named(INBOX_COLUMNS, (key) => `${MARK}inbox_${key}`),
  outbox: named(OUTBOX_COLUMNS, (key) => `${MARK}outbox_${key}`),
  destination: named(DESTINATION_COLUMNS, (key) => `${MARK}destination_${key}`),
  history: named(HISTORY_COLUMNS, (key) => `${MARK}history_${key}`),
  journal: named(JOURNAL_COLUMNS, (key) => `${MARK}journal_${key}`),
};

/** Names that mean something else wherever they stand without brackets. */
export const RESERVED_NAMES: TableNames = {
  schema: "user",
  inboxTable: "select",
  outboxTable: "Order",
  destinationTable: "Drop",
  historyTable: "Table",
  operations: operationsTables("Index_"),
  inbox: named(INBOX_COLUMNS, (_, index) => RESERVED_WORDS[index] as string),
  outbox: named(OUTBOX_COLUMNS, (_, index) => RESERVED_WORDS[index] as string),
  destination: named(DESTINATION_COLUMNS, (_, index) => RESERVED_WORDS[index] as string),
  history: named(HISTORY_COLUMNS, (_, index) => RESERVED_WORDS[index] as string),
  journal: named(JOURNAL_COLUMNS, (_, index) => RESERVED_WORDS[index] as string),
};

/**
 * Configured names that stand without brackets, and columns of a configured table that are written down under a name of their own.
 *
 * @param batch made with {@link MARKED_NAMES}
 * @returns what is wrong, with line and column
 */
export function misusedNames({ tree, tokens }: Batch): readonly string[] {
  const bare = tokens
    .filter(({ text = "", type }) => text.includes(MARK) && type !== TSqlLexer.SQUARE_BRACKET_ID)
    .map((token) => `${token.line}:${token.charPositionInLine} ${token.text} stands without brackets`);

  const { configured, other } = aliases(tree);
  const columns = [
    ...nodesOf(tree, Full_column_nameContext).filter(({ _tablename: table }) => {
      const alias = table?.text ?? "";
      return configured.has(alias) && !other.has(alias);
    }),
    ...nodesOf(tree, Output_column_nameContext),
    ...nodesOf(tree, Insert_statementContext)
      .filter((insert) => insert.ddl_object()?.text.includes(MARK))
      .flatMap((insert) => nodesOf(insert, Insert_column_idContext)),
    ...nodesOf(tree, Update_statementContext)
      .filter((update) => !update.ddl_object()?.text.startsWith("@"))
      .flatMap((update) => update.update_elem())
      .filter((element) => element.LOCAL_ID() === undefined),
  ];
  const foreign = columns
    .filter((column) => !column.start.text?.includes(MARK) && !column.text.split("=")[0]?.includes(MARK))
    .map((column) => `${placeOf(column)} ${column.text} is no configured column`);
  return [...bare, ...foreign];
}

/** `OUTPUT` without `INTO` is refused on a table that has a trigger (error 334). */
export function outputsToClient({ tree }: Batch): readonly string[] {
  return nodesOf(tree, Output_clauseContext)
    .filter((output) => output.INTO() === undefined)
    .map((output) => `${placeOf(output)} OUTPUT without INTO`);
}

/**
 * Text columns of `OPENJSON ... WITH`, table variables and temporary tables without a collation: they have the database's, and no
 * comparison with a column of another one compiles (error 468).
 */
export function uncollatedColumns(text: string): readonly string[] {
  const tokens = tokensOf(text);
  return tokens
    .filter(({ text = "" }, n) => {
      if (!/^n?(var)?char$|^n?text$/i.test(text)) return false;
      // CONVERT(type, ...), CAST(... AS type) and variables are no columns.
      const before = tokens[n - 1];
      const isColumn = before?.type !== TSqlLexer.LOCAL_ID && before?.type !== TSqlLexer.AS && before?.text !== "(";
      const behind = tokens[n + 1]?.text === "(" ? n + 4 : n + 1;
      return isColumn && tokens[behind]?.type !== TSqlLexer.COLLATE;
    })
    .map((token) => `${token.line}:${token.charPositionInLine} ${token.text} without COLLATE`);
}

/**
 * Variables that are used and not declared before, declared and not used, declared twice, or spelt in two ways.
 *
 * @param parameters names of the statement's parameters, without `@`
 */
export function misusedVariables({ tree, tokens }: Batch, parameters: readonly string[]): readonly string[] {
  // `@Resource = ...` names a parameter of the procedure that is called.
  const ofProcedures = new Set(nodesOf(tree, Execute_statement_arg_namedContext).map(({ start }) => start.tokenIndex));
  const declarations = new Set(
    [
      ...nodesOf(tree, Declare_localContext).map((declaration) => declaration.LOCAL_ID()),
      ...nodesOf(tree, Declare_statementContext).map((declaration) => declaration.LOCAL_ID()),
    ].flatMap((name) => (name === undefined ? [] : [name.symbol.tokenIndex])),
  );
  const wrong: string[] = [];
  const uses = new Map(parameters.map((name) => [`@${name}`, 0]));
  for (const { text = "", type, tokenIndex, line, charPositionInLine } of tokens) {
    // `@@ROWCOUNT` and its like are functions.
    if (type !== TSqlLexer.LOCAL_ID || text.startsWith("@@") || ofProcedures.has(tokenIndex)) continue;
    const known = uses.get(text);
    if (declarations.has(tokenIndex) === (known !== undefined)) {
      wrong.push(`${line}:${charPositionInLine} ${text} is ${known === undefined ? "not declared" : "declared twice"}`);
    }
    uses.set(text, known === undefined ? 0 : known + 1);
  }
  for (const [name, count] of uses) if (count === 0) wrong.push(`${name} is never used`);
  return wrong;
}

/** Aliases of configured tables, and of whatever else rows are read from: both may be the same in different parts of a batch. */
function aliases(tree: Batch["tree"]) {
  const configured = new Set<string>();
  const other = new Set<string>(["inserted", "deleted"]);
  for (const alias of nodesOf(tree, As_table_aliasContext)) {
    const { parent } = alias;
    const table =
      parent instanceof Table_source_itemContext
        ? (parent.table_name_with_hint() ?? parent.full_table_name())
        : undefined;
    const name = alias.table_alias().id().text;
    (table?.text.includes(MARK) ? configured : other).add(name);
  }
  return { configured, other };
}

function named<K extends string>(columns: Readonly<Record<K, string>>, name: (key: K, index: number) => string) {
  return Object.fromEntries((Object.keys(columns) as K[]).map((key, index) => [key, name(key, index)])) as Record<
    K,
    string
  >;
}
