import { afterEach, beforeEach, expect, jest, test } from "@jest/globals";
import type sql from "mssql";
import { createSqlServerStore } from "../../../../src/adapters/stores/sqlserver/index.ts";
import { SqlServerPool } from "../../../../src/adapters/stores/sqlserver/pool.ts";
import { answersOf, execute, statement } from "../../../../src/adapters/stores/sqlserver/statement.ts";
import { ConfigError } from "../../../../src/model/errors.ts";
import { BUNDLED_INDEXES, bundledColumns } from "../../../support/bundledSqlServer.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";
import { UNCONNECTED } from "../../../support/unconnectedSqlServer.ts";

/** What the start says of a database and of an owner's tables, by what the server would answer. */

type Found = Readonly<Record<string, unknown>>;

let settings: Found;
let indexes: readonly Found[];
/** What the named columns are instead. */
let changed: Readonly<Record<string, Found>>;

beforeEach(() => {
  settings = { has_versions: true, remedy: "ALTER DATABASE [shop] SET READ_COMMITTED_SNAPSHOT ON;" };
  indexes = BUNDLED_INDEXES;
  changed = {};
  jest.spyOn(SqlServerPool.prototype, "runAll").mockImplementation(async ({ name }, values = {}) => {
    if (name === "schema.settings") return [[settings]];
    if (name === "schema.indexes") return [[...indexes]];
    if (name !== "schema.columns") return [[]];
    return [bundledColumns(values.columns).map((column) => ({ ...column, ...changed[column.name] }))];
  });
});

afterEach(() => {
  jest.restoreAllMocks();
});

async function started() {
  const { log, lines } = recordingLog();
  const store = createSqlServerStore(UNCONNECTED, new ManualClock(), log);
  const failure: unknown = await store.schema.checkColumns().catch((error: unknown) => error);
  const problems = failure instanceof ConfigError ? failure.problems.map(({ message }) => message) : [];
  return { problems, warnings: lines.filter(({ level }) => level === "warn") };
}

test("the bundled tables are taken, with row versions without a word", async () => {
  const { problems, warnings } = await started();
  expect(problems).toEqual([]);
  expect(warnings.filter(({ message }) => /READ_COMMITTED_SNAPSHOT/.test(message))).toEqual([]);
});

test("a database without row versions is warned of once, with what it costs and the statement that switches them on", async () => {
  settings = { ...settings, has_versions: false };
  const { problems, warnings } = await started();
  expect(problems).toEqual([]);
  expect(warnings.filter(({ message }) => /READ_COMMITTED_SNAPSHOT off: .* wait/.test(message))).toMatchObject([
    { fields: { remedy: "ALTER DATABASE [shop] SET READ_COMMITTED_SNAPSHOT ON;" } },
  ]);
});

test.each<[string, Found, RegExp]>([
  ["source", { type: "varchar" }, /"source" of type varchar, .*: use nvarchar$/],
  [
    "source",
    { collation: "Latin1_General_CS_AS", bytes: 900 },
    /ALTER COLUMN \[source\] nvarchar\(450\) COLLATE Latin1_General_100_BIN2 NOT NULL;$/,
  ],
  ["state", { type: "varchar", bytes: 20 }, /"state" of type varchar, .*: use nvarchar$/],
  [
    "idempotency_key",
    { collation: "SQL_Latin1_General_CP1_CI_AS", bytes: 400 },
    /"idempotency_key" with the collation SQL_Latin1_General_CP1_CI_AS.*\n +ALTER TABLE \[inbox\] ALTER COLUMN \[idempotency_key\] nvarchar\(255\) COLLATE Latin1_General_100_BIN2 NOT NULL;$/,
  ],
  [
    "destination",
    { collation: "Latin1_General_CS_AS", bytes: 800 },
    /ALTER TABLE \[outbox\] ALTER COLUMN \[destination\] nvarchar\(400\) COLLATE Latin1_General_100_BIN2 NULL;$/,
  ],
  ["created_at", { type: "datetime2" }, /"created_at" of type datetime2, .*: use datetimeoffset$/],
  [
    "created_at",
    { scale: 3 },
    /"created_at" with a scale of 3.*ALTER COLUMN \[created_at\] datetimeoffset\(7\) NOT NULL;$/s,
  ],
])("a column %s that is %j is refused", async (name, found, message) => {
  changed = { [name]: found };
  const { problems } = await started();
  // Some names are those of columns of both tables, with rules of their own.
  expect(problems.filter((problem) => message.test(problem)).length).toBeGreaterThan(0);
  expect(problems.every((problem) => problem.includes(`"${name}"`))).toBe(true);
});

test("tables without a key on the id are refused, with the statement that adds it", async () => {
  indexes = BUNDLED_INDEXES.filter(({ name }) => name !== "id");
  const { problems } = await started();
  expect(problems).toEqual([
    expect.stringMatching(
      /\[inbox\] has no key on its id.*\n +ALTER TABLE \[inbox\] ADD UNIQUE NONCLUSTERED \(\[id\]\);$/,
    ),
    expect.stringMatching(/\[outbox\] has no key on its id/),
  ]);
});

test("a statement has a short lock timeout, unless it names another", async () => {
  const texts: string[] = [];
  const request = () => ({
    query: async (text: string) => {
      texts.push(text);
      return { recordsets: [] };
    },
  });
  const on = { request } as unknown as sql.ConnectionPool;
  await execute(on, statement("ping")("SELECT 1;"), {});
  await execute(on, statement("migrate", { lockTimeoutMs: -1 })("SELECT 2;"), {});
  expect(texts).toEqual(["SET LOCK_TIMEOUT 2000;\nSELECT 1;", "SET LOCK_TIMEOUT -1;\nSELECT 2;"]);
});

test("what a trigger of the owner selects comes before the answers", () => {
  const [latest, ids] = answersOf([[{ of: "a trigger" }], [{ latest: 1 }], [{ id: "a" }]], 2);
  expect([latest, ids]).toEqual([[{ latest: 1 }], [{ id: "a" }]]);
});
