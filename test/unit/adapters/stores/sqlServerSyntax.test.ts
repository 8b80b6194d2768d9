import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, jest, test } from "@jest/globals";
import { quoteNames, type TableNames, withoutColumns } from "../../../../src/adapters/stores/sql/names.ts";
import { destinationStatements } from "../../../../src/adapters/stores/sqlserver/destinationsSql.ts";
import {
  parkedStatements,
  replayStatements,
  retentionStatements,
} from "../../../../src/adapters/stores/sqlserver/finishedSql.ts";
import { historyStatements } from "../../../../src/adapters/stores/sqlserver/historySql.ts";
import { messageStatements } from "../../../../src/adapters/stores/sqlserver/messagesSql.ts";
import {
  cellStatements,
  journalStatements,
  operationsStatements,
} from "../../../../src/adapters/stores/sqlserver/operationsSql.ts";
import { outboxStatements } from "../../../../src/adapters/stores/sqlserver/outboxSql.ts";
import { type Executor, SqlServerPool } from "../../../../src/adapters/stores/sqlserver/pool.ts";
import { pullStatements } from "../../../../src/adapters/stores/sqlserver/pullSql.ts";
import { copyLastStatement, insertStatement } from "../../../../src/adapters/stores/sqlserver/receipt.ts";
import { relayStatements } from "../../../../src/adapters/stores/sqlserver/relay.ts";
import { repeatable } from "../../../../src/adapters/stores/sqlserver/schema.ts";
import type { Statement } from "../../../../src/adapters/stores/sqlserver/statement.ts";
import { ConfigError } from "../../../../src/model/errors.ts";
import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../../../src/model/rows.ts";
import { BUNDLED_INDEXES, bundledColumns } from "../../../support/bundledSqlServer.ts";
import { DEFAULT_NAMES } from "../../../support/postgresHarness.ts";
import { type Batch, parseByGrammar } from "../../../support/transactSql/grammar.ts";
import {
  MARKED_NAMES,
  misusedNames,
  misusedVariables,
  outputsToClient,
  RESERVED_NAMES,
  uncollatedColumns,
} from "../../../support/transactSql/names.ts";
import { readsOfAll, unboundedPages } from "../../../support/transactSql/ranges.ts";
import { parseBatch } from "../../../support/transactSql/strictness.ts";
import { unconnectedSqlServerStore } from "../../../support/unconnectedSqlServer.ts";

/** Every statement and every migration for SQL Server is read by a grammar of T-SQL, wherever the tests run. */

const ROOT = new URL("../../../../", import.meta.url);
const STORE = new URL("src/adapters/stores/sqlserver/", ROOT);
const MIGRATIONS = new URL("migrations/sqlserver/", ROOT);

/** The grammar's tables are built while it reads: the first long statements take seconds. */
jest.setTimeout(180_000);

function statementsWith(names: TableNames): readonly Statement[] {
  const quoted = quoteNames(names, (identifier) => `[${identifier}]`);
  const builders = [
    cellStatements,
    copyLastStatement,
    destinationStatements,
    historyStatements,
    insertStatement,
    journalStatements,
    messageStatements,
    operationsStatements,
    outboxStatements,
    parkedStatements,
    pullStatements,
    relayStatements,
    replayStatements,
    retentionStatements,
  ];
  return builders.flatMap((build) => statementsIn(build(quoted, true) as Made));
}

type Made = Statement | ((count: number) => Statement) | { readonly [name: string]: unknown };

/** A statement with a parameter for each of several values comes with one and with two. */
function statementsIn(made: Made): readonly Statement[] {
  if (typeof made === "function") return [made(1), made(2)];
  if (typeof made.text === "string") return [made as Statement];
  const { dialect, valuesOf, ...statements } = made as Record<string, Made | undefined>;
  return Object.values(statements)
    .filter((statement) => statement !== undefined)
    .flatMap(statementsIn);
}

describe("the check itself", () => {
  const right = `
SET NOCOUNT ON;
DECLARE @now datetimeoffset(7) = SYSUTCDATETIME();
DECLARE @done TABLE (id uniqueidentifier NOT NULL PRIMARY KEY);
UPDATE o SET [state] = N'sent' OUTPUT inserted.[id] INTO @done (id)
FROM [dbo].[outbox] o WITH (UPDLOCK, READPAST, ROWLOCK) JOIN OPENJSON(@rows) WITH (id uniqueidentifier '$.id') r ON o.[id] = r.id
WHERE o.[updated_at] < DATEADD(second, -1, @now);
SELECT TOP (1) d.id FROM @done d ORDER BY d.id;`;

  test("takes what is right", () => {
    const batch = parseBatch(right);
    expect(misusedVariables(batch, ["rows"])).toEqual([]);
    expect(outputsToClient(batch)).toEqual([]);
  });

  test.each([
    ["UPDATE", "UPDTE"],
    ["TOP (1)", "TOP 1)"],
    ["WITH (UPDLOCK, READPAST, ROWLOCK)", "WITH UPDLOCK"],
    ["(id)\nFROM", "(id\nFROM"],
    ["N'sent'", "N'sent"],
    ["SYSUTCDATETIME", "SYSUTCDATETME"],
    ["DATEADD(second", "DATEADD(secund"],
    ["datetimeoffset(7)", "timestamptz"],
    ["id uniqueidentifier '$.id'", "id '$.id'"],
    ["ORDER BY d.id", "ORDER BY d.id NULLS FIRST"],
    ["SELECT TOP (1) d.id", "SELECT EXISTS (SELECT 1 FROM @done) AS found"],
    ["SELECT TOP (1) d.id", "SELECT d.id::text"],
    ["@now);", "@now) RETURNING id;"],
  ])("refuses %j written as %j", (from, to) => {
    expect(right).toContain(from);
    expect(() => parseBatch(right.replace(from, to))).toThrow(/^\d+:\d+ /);
  });

  test("tells variables that are not declared, used or spelt alike", () => {
    const wrong = (text: string, parameters: readonly string[] = []) => misusedVariables(parseBatch(text), parameters);
    expect(wrong("SELECT @limit AS a;")).toEqual(["1:7 @limit is not declared", "@limit is never used"]);
    expect(wrong("SELECT 1 AS a;", ["limit"])).toEqual(["@limit is never used"]);
    expect(wrong("SELECT @Limit AS a, @limit AS b;", ["limit"])).toContain("1:7 @Limit is not declared");
    expect(wrong("DECLARE @limit int = 1; SELECT @limit AS a;", ["limit"])).toEqual(["1:8 @limit is declared twice"]);
    expect(wrong("SELECT @n AS a; DECLARE @n int = 1;")).toContain("1:7 @n is not declared");
    expect(
      wrong("DECLARE @n int; EXEC @n = sp_getapplock @Resource = N'a', @LockMode = 'Shared'; SELECT @n AS n;"),
    ).toEqual([]);
  });

  test("tells OUTPUT without INTO", () => {
    expect(outputsToClient(parseBatch("DELETE FROM [t] OUTPUT deleted.[id] WHERE [id] = 1;"))).toHaveLength(1);
  });

  test.each([
    ["SELECT j.name FROM OPENJSON(@rows) WITH (name nvarchar(400) '$.name') j;", 1],
    [
      "SELECT j.name FROM OPENJSON(@rows) WITH (n int '$.n', name nvarchar(max) COLLATE Latin1_General_100_BIN2 '$.name') j;",
      0,
    ],
    ["DECLARE @t TABLE ([name] nvarchar(400) NOT NULL, word varchar(9) COLLATE Latin1_General_100_BIN2 NULL);", 1],
    ["CREATE TABLE #t (name nvarchar(max));", 1],
    ["DECLARE @text nvarchar(max) = CONVERT(nvarchar(40), 1); SELECT CAST(@text AS varchar(9)) AS a;", 0],
  ])("tells text columns without a collation: %s", (text, count) => {
    expect(uncollatedColumns(text)).toHaveLength(count);
  });

  test.each([
    ["o.[T_id] = @id", 0],
    ["@id = o.[T_id]", 0],
    ["o.[T_state] = N'pending' AND (o.[T_sequence] >= @from AND o.[T_attempt] > 0)", 0],
    ["o.[T_state] = N'pending'", 1],
    ["o.[T_key] COLLATE Latin1_General_100_BIN2 = @key", 1],
    ["CONCAT(o.[T_key], N'.') = @key", 1],
    ["CONVERT(nvarchar(20), o.[T_sequence]) = @text", 1],
    ["o.[T_sequence] < @before OR @before IS NULL", 1],
    ["NOT (o.[T_sequence] < @before)", 1],
    ["EXISTS (SELECT 1 FROM [t] x WHERE x.a = @a AND o.[T_id] = x.id)", 1],
  ])("tells reads by no plain column: %s", (condition, count) => {
    const batch = parseBatch(
      `SELECT 1 AS a FROM [${MARKED_NAMES.outboxTable}] o WHERE ${condition.replaceAll("T_", "configured_outbox_")};`,
    );
    expect(readsOfAll(batch)).toHaveLength(count);
  });

  test.each([
    ["o.[T_sequence] < @before", 0],
    ["o.[T_state] = N'sent'", 0],
    ["o.[T_sequence] <= @at AND (o.[T_sequence] < @at OR o.[T_id] < @id)", 0],
    ["(@before IS NULL OR o.[T_sequence] < @before)", 1],
    ["(o.[T_sequence] <= @now OR o.[T_sequence] IS NULL)", 1],
  ])("tells pages without a range: %s", (condition, count) => {
    const where = condition.replaceAll("T_", "configured_outbox_");
    const batch = parseBatch(
      `SELECT TOP (9) o.[configured_outbox_id] FROM [${MARKED_NAMES.outboxTable}] o WHERE ${where} ORDER BY o.[configured_outbox_sequence];`,
    );
    expect(unboundedPages(batch)).toHaveLength(count);
  });

  test("tells configured names without brackets, and columns that are not configured", () => {
    const { outboxTable: table, outbox } = MARKED_NAMES;
    const wrong = (text: string) => misusedNames(parseBatch(text)).length;
    expect(wrong(`SELECT o.[${outbox.id}] FROM [${table}] o;`)).toBe(0);
    expect(wrong(`SELECT o.${outbox.id} FROM [${table}] o;`)).toBe(1);
    expect(wrong(`SELECT o.[${outbox.id}] FROM ${table} o;`)).toBe(1);
    expect(wrong(`SELECT o.[id] FROM [${table}] o;`)).toBe(1);
    expect(wrong(`UPDATE o SET [state] = N'sent' FROM [${table}] o;`)).toBe(1);
    expect(wrong(`INSERT INTO [${table}] ([id]) VALUES (1);`)).toBe(1);
    expect(wrong(`DELETE FROM [${table}] OUTPUT deleted.[id] INTO @gone (id);`)).toBe(1);
  });
});

/** Several tests read each statement. */
const batches = new Map<string, Batch>();

function batchOf(text: string): Batch {
  const batch = batches.get(text) ?? parseBatch(text);
  batches.set(text, batch);
  return batch;
}

describe("statements", () => {
  const plain = statementsWith(DEFAULT_NAMES);
  const marked = statementsWith(MARKED_NAMES);
  const reserved = statementsWith(RESERVED_NAMES);
  const known = new Set(plain.map(({ text }) => text));
  const withoutLists = { messageSequence: "", expandedTo: "" };
  const withoutOptional = [
    { inbox: {}, outbox: withoutLists },
    { inbox: { expiresAt: "" }, outbox: { destination: "", routes: "", expiresAt: "", ...withoutLists } },
  ]
    .flatMap((missing) => statementsWith(withoutColumns(DEFAULT_NAMES, missing)))
    .filter(({ text }) => !known.has(text));
  const byName = (statements: readonly Statement[]) =>
    statements.map((statement) => [statement.name, statement] as const);

  test("have the same text every time", () => {
    expect(statementsWith(DEFAULT_NAMES)).toEqual(plain);
  });

  test.each(byName([...plain, ...withoutOptional]))(
    "%s is T-SQL, declares its variables, keeps OUTPUT in the server and names its collations",
    (_, statement) => {
      const batch = parseBatch(statement.text);
      expect(misusedVariables(batch, Object.keys(statement.parameters))).toEqual([]);
      expect(outputsToClient(batch)).toEqual([]);
      expect(uncollatedColumns(statement.text)).toEqual([]);
    },
  );

  // The tables for operators have columns of their own.
  const configured = marked.filter(
    ({ name }) => !/^(jobs|operations\.(?!dead rows|blocked|inbox)|cell\.(read|add))/.test(name),
  );
  test.each(byName(configured))("%s has every configured name in brackets, and no column of its own", (_, { text }) => {
    expect(misusedNames(batchOf(text))).toEqual([]);
  });

  test("find rows by a column that no function, collation or OR hides from an index", () => {
    const found = configured.filter(({ text }) => readsOfAll(batchOf(text)).length > 0).map(({ name }) => name);
    expect(found.filter((name) => !READS_OF_A_STATE.some((pattern) => pattern.test(name)))).toEqual([]);
    expect(READS_OF_A_STATE.filter((pattern) => !found.some((name) => pattern.test(name)))).toEqual([]);
  });

  test.each(byName(marked))("%s has pages that begin with a range", (_, { text }) => {
    expect(unboundedPages(batchOf(text))).toEqual([]);
  });

  test.each(byName(reserved))("%s is T-SQL with names that are reserved words, too", (_, { text }) => {
    parseBatch(text);
  });

  test("count a beat last: after a fault of what comes before, the same counts come again", () => {
    const { text = "" } = plain.find(({ name }) => name === "operations.beat") ?? {};
    expect(text.lastIndexOf("MERGE INTO")).toBeGreaterThan(text.lastIndexOf("DELETE"));
  });
});

/** Statements that mean all rows of a state, or the first row in the order of an index, and read a filtered index for that. */
const READS_OF_A_STATE: readonly RegExp[] = [
  /^cell\.unfinished rows$/,
  /^history\.newest$/,
  /^inbox\.(copy the last processed row|unrelayed)$/,
  /^journal\.delete old$/,
  /^operations\.(dead rows|inbox backlog|messages of dead deliveries)$/,
  /^outbox\.(backlog|backlog by destination|due|expired|glance|relabel)$/,
  /^outbox\.(claim|rows chosen by a claim) of all past blocked keys$/,
  /^outbox\.set back the last sent row$/,
  /^replay\.begin$/,
  /^retention\.outbox by count$/,
];

/** Each form of a step that does nothing, or the same, the second time. */
const TAKEN_ONCE =
  /^(?:IF OBJECT_ID\(.* IS NULL\n|IF NOT EXISTS \(SELECT 1 FROM sys\.indexes .*\n|IF COL_LENGTH\(.* IS (?:NOT )?NULL\n|CREATE INDEX [^;]*DROP_EXISTING = ON|DROP INDEX IF EXISTS|ALTER TABLE \w+ (?:SET|ALTER COLUMN) )/;

describe("statements of the start", () => {
  const issued: Statement[] = [];
  const migrations = readdirSync(MIGRATIONS).flatMap((file) =>
    repeatable(readFileSync(new URL(file, MIGRATIONS), "utf8"), "dbo", true),
  );

  /** Answers as a server with empty tables would, as far as the callers look at the answer. */
  const server: Executor = {
    run: async (statement, values) => (await server.runAll(statement, values)).at(-1) ?? [],
    runAll: async (statement, values = {}) => {
      issued.push(statement);
      if (statement.name === "schema.columns") return [bundledColumns(values.columns)];
      if (statement.name === "schema.indexes") return [BUNDLED_INDEXES];
      if (statement.name === "migrate.lock") return [[{ result: 0 }]];
      if (statement.name === "migrate.default schema") return [[{ database: "shop", schema: "dbo", edition: 3 }]];
      if (statement.name === "schema.settings") return [[{ has_versions: false, remedy: "ALTER DATABASE [shop]" }]];
      return [[]];
    },
  };

  beforeAll(async () => {
    jest
      .spyOn(SqlServerPool.prototype, "runAll")
      .mockImplementation((statement, values) => server.runAll(statement, values));
    jest.spyOn(SqlServerPool.prototype, "transaction").mockImplementation((_, work) => work(server));
    const store = unconnectedSqlServerStore();
    await store.ping();
    await store.schema.migrate();
    await store.schema.checkColumns();
    await store.close();
  });

  afterAll(() => {
    jest.restoreAllMocks();
  });

  test("are T-SQL", () => {
    const ours = issued.filter(({ name, text }) => !name.startsWith("migrate ") || migrations.includes(text));
    const wrong = ours.flatMap((statement) => {
      const batch = parseBatch(statement.text);
      const uncollated = statement.name.startsWith("migrate ") ? [] : uncollatedColumns(statement.text);
      return [...misusedVariables(batch, Object.keys(statement.parameters)), ...outputsToClient(batch), ...uncollated];
    });
    expect(wrong).toEqual([]);
  });

  test("keep the history in T-SQL, too", () => {
    const ofTheHistory = issued.filter(({ text }) => text.includes("svc_migrations"));
    expect(ofTheHistory.length).toBeGreaterThan(readdirSync(MIGRATIONS).length);
    for (const { text } of ofTheHistory) parseByGrammar(text);
  });

  test("hold every migration", () => {
    expect(issued.map(({ text }) => text)).toEqual(expect.arrayContaining(migrations));
  });

  test("repeat no step of a migration that has been taken, and make indexes without locking the table", () => {
    for (const text of migrations) expect(text).toMatch(TAKEN_ONCE);
    const made = migrations.filter((text) => /^(?:IF .*\n)?CREATE INDEX/.test(text));
    expect(made.length).toBeGreaterThan(15);
    for (const text of made) expect(text).toMatch(/ WITH \((?:DROP_EXISTING = ON, )?ONLINE = ON\);$/);
    const script =
      "-- A comment; with a semicolon.\nCREATE INDEX a_idx ON a (b) WHERE c = N'd';\n\nDROP INDEX b_idx ON a;\n";
    expect(repeatable(script, "it's", false)).toEqual([
      "IF NOT EXISTS (SELECT 1 FROM sys.indexes i WHERE i.object_id = OBJECT_ID(N'[it''s].[a]') AND i.name = N'a_idx')\nCREATE INDEX a_idx ON a (b) WHERE c = N'd';",
      "DROP INDEX IF EXISTS b_idx ON a;",
    ]);
  });

  test("with those of the work are all that the store has", () => {
    const sources = readdirSync(STORE).map((file) => readFileSync(new URL(file, STORE), "utf8"));
    const named = sources.flatMap((source) =>
      [...source.matchAll(/\b(statement|short|onJobs|perSourceCount)\(\s*["`](\w[^"`($]*)(?=["`(])/g)].map(
        ([, maker, name]) => (maker === "onJobs" ? `jobs.${name}` : name),
      ),
    );
    const checked = [...issued, ...statementsWith(DEFAULT_NAMES)].map(({ name }) => name);
    expect(named.length).toBeGreaterThan(70);
    expect(named.filter((name) => !checked.includes(name as string))).toEqual([]);
  });

  test("propose columns in T-SQL", async () => {
    jest
      .spyOn(SqlServerPool.prototype, "runAll")
      .mockImplementation(async ({ name }, values = {}) => [
        name !== "schema.columns" ? [] : (values.columns as object[]).map((column) => ({ table_id: 1, ...column })),
      ]);
    const error = await unconnectedSqlServerStore()
      .schema.checkColumns()
      .catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ConfigError);
    const proposals = (error as ConfigError).problems.map(({ message }) => message.split("\n")[1]?.trim() ?? "");
    // All but the six optional ones.
    expect(proposals).toHaveLength(Object.keys(INBOX_COLUMNS).length + Object.keys(OUTBOX_COLUMNS).length - 6);
    for (const proposal of proposals) parseBatch(proposal);
  });
});
