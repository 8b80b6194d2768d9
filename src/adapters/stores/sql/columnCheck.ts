import type { ConfigProblem } from "../../../model/errors.ts";

/** A table as the check speaks of it. */
export interface CheckedTable {
  readonly which: "inbox" | "outbox" | "destination";
  /** Quoted, and qualified where the configuration names a schema. */
  readonly name: string;
}

/** A column as the database describes it. */
export interface FoundColumn {
  /** The name of its type, of the one below it where it is a domain or an alias; `enum` for every enumeration. */
  readonly type: string;
  readonly nullable: boolean;
  /** Most characters of a text; null where there is no limit. */
  readonly length: number | null;
}

/** What a column must be for the statements to work, and how the bundled table has it. */
export interface ColumnRule {
  /** Types that every statement works with. */
  readonly accepted: readonly string[];
  /** What to write after the column's name to add it, and the type alone. */
  readonly definition: string;
  readonly type: string;
  /** The default alone; undefined for none. */
  readonly fallback?: string;
  /** True where a row with NULL would never be seen, or never be found again. */
  readonly notNull?: boolean;
  /** Characters of the longest text that the service writes there and compares. */
  readonly leastLength?: number;
}

/** Statements that mend a table. */
export interface Remedies<K extends string> {
  add(key: K, column: string): string;
  /** Gives a column its type. @param found as it is now */
  retype(key: K, column: string, found: FoundColumn): string;
  forbidNull(key: K, column: string): string;
}

/** What to say of a table that does not exist. */
export function missingTable({ which, name }: CheckedTable): ConfigProblem {
  const remedy = "run `svc migrate`, set database.migrate: true, or name your own table";
  const without =
    which === "inbox" ? "; the roles poller and retention alone (`svc poller retention`) need no inbox" : "";
  return { path: `database.${which}TableName`, message: `the table ${name} does not exist: ${remedy}${without}` };
}

/**
 * What is wrong with the columns of a table: all of it, so that it can be mended at once.
 *
 * @param names key of `database.columnMapping` to the column's name
 * @param found the columns that are there, by name
 */
export function columnProblems<K extends string>(
  table: CheckedTable,
  names: Readonly<Record<K, string>>,
  found: ReadonlyMap<string, FoundColumn>,
  rules: Readonly<Record<K, ColumnRule>>,
  remedies: Remedies<K>,
): readonly ConfigProblem[] {
  return (Object.entries(names) as [K, string][]).flatMap(([key, column]) => {
    // The columns of the destinations' table have one name only.
    const isMapped = table.which !== "destination";
    const path = isMapped ? `database.columnMapping.${table.which}.${key}` : "database.destinationTableName";
    const problem = (what: string, remedy: string) => ({
      path,
      message: `the table ${table.name} ${what}\n      ${remedy}`,
    });
    const is = found.get(column);
    const rule = rules[key];
    if (is === undefined) {
      const map = isMapped ? "map the key to the column you have, or " : "";
      const what = `has no column "${column}": ${map}add it with`;
      return [problem(what, remedies.add(key, column))];
    }
    if (!rule.accepted.includes(is.type)) {
      const what = `has the column "${column}" of type ${is.type}, which the service cannot work with (${rule.accepted.join(", ")}): change it with`;
      return [problem(what, remedies.retype(key, column, is))];
    }
    if (is.length !== null && is.length < (rule.leastLength ?? 0)) {
      const what = `has the column "${column}" for ${is.length} characters, and the service writes up to ${rule.leastLength}: change it with`;
      return [problem(what, remedies.retype(key, column, is))];
    }
    if (is.nullable && rule.notNull === true) {
      const what = `allows NULL in the column "${column}", and a row without it could never be delivered: forbid it with`;
      return [problem(what, remedies.forbidNull(key, column))];
    }
    return [];
  });
}

/** An index as the check looks at it: the columns of its key in order, null for an expression. */
export interface FoundIndex {
  readonly columns: readonly (string | null)[];
  readonly unique: boolean;
  /** True when it holds every row. */
  readonly whole: boolean;
}

/** Whether a key of exactly these columns, in any order, holds for every row. */
export function hasUniqueKey(indexes: readonly FoundIndex[], ...columns: readonly string[]): boolean {
  return indexes.some(
    (index) =>
      index.unique &&
      index.whole &&
      index.columns.length === columns.length &&
      columns.every((column) => index.columns.includes(column)),
  );
}

/** Whether rows can be found, or read in order, by a column: it comes first in an index, or right behind `state`. */
export function hasIndexOn(indexes: readonly FoundIndex[], column: string, state: string): boolean {
  return indexes.some(({ columns: [first, second] }) => first === column || (first === state && second === column));
}
