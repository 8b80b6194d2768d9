import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "@jest/globals";
import { onlineStatements } from "../../../../src/adapters/stores/postgres/migrations.ts";
import { migrationsDirectory } from "../../../../src/adapters/stores/sql/schema.ts";
import { DESTINATION_COLUMNS, INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../../../src/model/rows.ts";

const filesOf = (database: "postgresql" | "sqlserver") => readdirSync(migrationsDirectory(database)).sort();

const sqlOf = (database: "postgresql" | "sqlserver") =>
  filesOf(database)
    .map((file) => readFileSync(path.join(migrationsDirectory(database), file), "utf8").replace(/--.*$/gm, ""))
    .join("\n");

/** The words of each `CREATE INDEX` in the order of their columns, by index name. */
const indexes = () =>
  [...sqlOf("sqlserver").matchAll(/CREATE INDEX (\w+) ON (\w+) \(([^)]*)\)/g)].map(([, name, table, columns]) => ({
    name,
    table,
    columns: (columns ?? "").split(",").map((column) => column.trim().replace(/^\[(.*)\]$/, "$1")),
  }));

/** Bytes of a column in the key of an index. */
function width(table: string | undefined, column: string): number {
  const definition = new RegExp(
    `CREATE TABLE ${table} \\([\\s\\S]*?\\n  \\[?${column}\\]?\\s+([a-z]+)(?:\\((\\d+)\\))?`,
  );
  const added = new RegExp(`ALTER TABLE ${table} ADD ${column} ([a-z]+)(?:\\((\\d+)\\))?`);
  const [, type, size] = definition.exec(sqlOf("sqlserver")) ?? added.exec(sqlOf("sqlserver")) ?? [];
  const fixed: Readonly<Record<string, number>> = { bigint: 8, int: 4, uniqueidentifier: 16, datetimeoffset: 10 };
  const bytes = type === "nvarchar" ? 2 * Number(size) : fixed[type ?? ""];
  if (bytes === undefined) throw new Error(`the type of ${table}.${column} is not known`);
  return bytes;
}

test("every migration of tables in use runs on PostgreSQL without holding up writers", () => {
  const files = filesOf("postgresql").slice(2);
  expect(files.length).toBeGreaterThan(0);
  for (const file of files) {
    const script = readFileSync(path.join(migrationsDirectory("postgresql"), file), "utf8");
    const statements = onlineStatements(script, "public");
    // A file of comments alone has its work in the other database.
    expect(statements.length > 0).toBe(script.replace(/--.*$/gm, "").trim() !== "");
    for (const { text, isConcurrent } of statements) {
      if (isConcurrent) expect(text).toMatch(/^(CREATE|DROP) INDEX CONCURRENTLY IF (NOT )?EXISTS .*"public"\./);
      // A new table with a foreign key would lock the table that it references.
      else if (text.startsWith("CREATE")) {
        expect(text).toMatch(/^CREATE TABLE IF NOT EXISTS "public"\./);
        expect(text).not.toMatch(/\bREFERENCES\b/i);
      } else {
        expect(text).toMatch(
          /^ALTER TABLE "public"\.\w+ (ALTER COLUMN \w+ DROP NOT NULL|ADD COLUMN IF NOT EXISTS \w+ (text|bigint|timestamptz)|RENAME COLUMN \w+ TO \w+|DROP CONSTRAINT IF EXISTS \w+, ADD CONSTRAINT \w+ CHECK \([^()]+\) NOT VALID)$/,
        );
      }
    }
  }
});

test("both databases have the same migrations", () => {
  expect(filesOf("sqlserver")).toEqual(filesOf("postgresql"));
});

test.each(["postgresql", "sqlserver"] as const)(
  "the tables of %s have every column of the specification",
  (database) => {
    const sql = sqlOf(database);
    for (const [table, columns] of [
      ["inbox", INBOX_COLUMNS],
      ["outbox", OUTBOX_COLUMNS],
      ["outbox_destination", DESTINATION_COLUMNS],
    ] as const) {
      const definition =
        new RegExp(`CREATE TABLE (?:IF NOT EXISTS )?${table} \\(([\\s\\S]*?)\\n\\)`).exec(sql)?.[1] ?? "";
      const added = sql.matchAll(new RegExp(`ALTER TABLE ${table} ADD (?:COLUMN IF NOT EXISTS )?(\\w+) [a-z]`, "g"));
      const made = [...definition.matchAll(/^ {2}\[?(\w+)\]? +[a-z]/gm), ...added].map((match) => match[1]);
      expect(made).toEqual(expect.arrayContaining(Object.values(columns)));
    }
  },
);

test("the key of every index of SQL Server fits into the 1,700 bytes it may have", () => {
  const keys = indexes().map(({ name, table, columns }) => ({
    name,
    bytes: columns.reduce((sum, column) => sum + width(table, column), 0),
  }));

  expect(keys).toHaveLength(24);
  expect(keys.filter(({ bytes }) => bytes > 1700)).toEqual([]);
});
