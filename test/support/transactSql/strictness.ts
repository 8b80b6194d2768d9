import type { ParserRuleContext } from "antlr4ts";
import { TSqlLexer } from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlLexer.js";
import {
  Column_aliasContext,
  DATEADDContext,
  DATEDIFFContext,
  Data_typeContext,
  Execute_body_batchContext,
  SCALAR_FUNCTIONContext,
  Sql_clausesContext,
  Table_hintContext,
  type With_table_hintsContext,
} from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlParser.js";
import { type Batch, nodesOf, parseByGrammar, placeOf } from "./grammar.ts";

/**
 * Parses a batch of T-SQL, and refuses what the grammar takes and SQL Server does not.
 *
 * @param text what would go to the server in one request
 * @throws Error with lines, columns and reasons
 */
export function parseBatch(text: string): Batch {
  const batch = parseByGrammar(text);
  const loose = looseForms(batch);
  if (loose.length > 0) throw new Error(loose.join("\n"));
  return batch;
}

/**
 * Finds forms that the grammar takes and SQL Server refuses or reads otherwise: a misspelt word would pass as a procedure, an alias, a function, a type or a
 * hint.
 *
 * @returns what is wrong, with line and column
 */
function looseForms({ tree, tokens }: Batch): readonly string[] {
  const wrong: string[] = [];
  const expect = (right: boolean, node: ParserRuleContext, message: string): void => {
    if (!right) wrong.push(`${placeOf(node)} ${message}`);
  };

  // Without EXECUTE a procedure may be called at the beginning of a batch, and the grammar takes it for one anywhere: `LIMIT 5`, `NULLS FIRST`.
  for (const call of nodesOf(tree, Execute_body_batchContext)) {
    expect(false, call, `"${call.text}" would be the call of a procedure`);
  }
  // A statement that begins where another one is cut off would pass for one of its own.
  for (const statement of nodesOf(tree, Sql_clausesContext)) {
    const { stop } = statement;
    const last = stop === undefined || tokens.findIndex(({ tokenIndex }) => tokenIndex > stop.tokenIndex);
    const ended = stop?.type === TSqlLexer.SEMI || stop?.type === TSqlLexer.END;
    expect(ended || tokens[Number(last)]?.type === TSqlLexer.EOF, statement, "the statement does not end with ;");
  }
  for (const alias of nodesOf(tree, Column_aliasContext)) {
    expect(alias.STRING() === undefined, alias, `${alias.text} would be the alias of a column`);
  }
  for (const hint of nodesOf(tree, Table_hintContext)) {
    // Hints may stand without WITH, and so the grammar takes the names of a derived table's columns for hints: `(VALUES (1)) v (x)`.
    if ((hint.parent as With_table_hintsContext).WITH() === undefined) continue;
    expect(HINTS.has(hint.text.toUpperCase()), hint, `${hint.text} is no table hint that the store uses`);
  }
  for (const type of nodesOf(tree, Data_typeContext)) {
    const name = type.start.text ?? "";
    expect(TYPES.has(name.toLowerCase()), type, `${name} is no type that the store uses`);
  }
  for (const call of nodesOf(tree, SCALAR_FUNCTIONContext)) {
    const name = call.scalar_function_name().text;
    expect(FUNCTIONS.has(name.toUpperCase()), call, `${name} is no function that the store uses`);
  }
  for (const kind of [SCALAR_FUNCTIONContext, DATEADDContext, DATEDIFFContext] as const) {
    for (const call of nodesOf<ParserRuleContext>(tree, kind)) {
      if (!OF_DATES.has((call.start.text ?? "").toUpperCase())) continue;
      const [part] = tokens.filter(({ tokenIndex }) => tokenIndex >= call.getChild(2).sourceInterval.a);
      expect(DATE_PARTS.has((part?.text ?? "").toLowerCase()), call, `${part?.text} is no part of a date`);
    }
  }
  return wrong;
}

/** Microsoft Learn, "Table hints (Transact-SQL)". None that names an index: an owner's table has indexes of its own. */
const HINTS = new Set([
  "UPDLOCK",
  "READPAST",
  "ROWLOCK",
  "READCOMMITTEDLOCK",
  "READUNCOMMITTED",
  "REPEATABLEREAD",
  "FORCESEEK",
  "HOLDLOCK",
]);

const TYPES = new Set(["bigint", "bit", "datetimeoffset", "int", "nvarchar", "table", "uniqueidentifier", "varbinary"]);

/** Microsoft Learn, "What are the SQL database functions?", those of SQL Server 2017; what the grammar knows by itself is not in here. */
const FUNCTIONS = new Set([
  "CHARINDEX",
  "COL_LENGTH",
  "COL_NAME",
  "COLUMNPROPERTY",
  "CONCAT",
  "COUNT_BIG",
  "DATALENGTH",
  "DATEADD",
  "DATEDIFF",
  "DATEDIFF_BIG",
  "DATEPART",
  "DB_NAME",
  "HASHBYTES",
  "HAS_PERMS_BY_NAME",
  "ISJSON",
  "JSON_MODIFY",
  "JSON_VALUE",
  "LEFT",
  "LEN",
  "NEWID",
  "OBJECT_ID",
  "OBJECT_SCHEMA_NAME",
  "OPENJSON",
  "POWER",
  "QUOTENAME",
  "RIGHT",
  "SCHEMA_NAME",
  "SERVERPROPERTY",
  "SUBSTRING",
  "STRING_AGG",
  "SYSUTCDATETIME",
  "SWITCHOFFSET",
  "TYPE_NAME",
]);

const OF_DATES = new Set(["DATEADD", "DATEDIFF", "DATEDIFF_BIG"]);
const DATE_PARTS = new Set(["day", "hour", "minute", "second", "millisecond", "microsecond", "nanosecond"]);
