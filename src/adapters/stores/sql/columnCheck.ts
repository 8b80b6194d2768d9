import type { ConfigProblem } from "../../../model/errors.ts";

/** A table as the column check speaks of it. */
export interface CheckedTable {
  readonly which: "inbox" | "outbox";
  /** Quoted, and qualified where the configuration names a schema. */
  readonly name: string;
}

/** What to say of a table that does not exist. */
export function missingTable({ which, name }: CheckedTable): ConfigProblem {
  const remedy = "run `svc migrate`, set database.migrate: true, or name your own table";
  return { path: `database.${which}TableName`, message: `the table ${name} does not exist: ${remedy}` };
}

/**
 * What to say of columns that a table does not have.
 *
 * @param columns key of `database.columnMapping` to the column's name, of the columns that are missing
 * @param addition the statement that adds the column of a key
 */
export function missingColumns<K extends string>(
  table: CheckedTable,
  columns: readonly (readonly [key: K, column: string])[],
  addition: (key: K, column: string) => string,
): readonly ConfigProblem[] {
  return columns.map(([key, column]) => ({
    path: `database.columnMapping.${table.which}.${key}`,
    message:
      `the table ${table.name} has no column "${column}": map the key to the column you have, or add it with\n` +
      `      ${addition(key, column)}`,
  }));
}
