import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { citusProblems, type Volatility } from "../support/citusRules.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { migratedDatabase } from "../support/postgresHarness.ts";
import { everyStatement, prepare } from "../support/postgresStatements.ts";
import { isNode, parseQueryTree, type TreeNode, type Value } from "../support/queryTree.ts";

/** Without Citus: what its planner refuses is found in the statement as PostgreSQL has analysed it. */

let database: TestDatabase;
let client: pg.Client;
let volatility: Volatility;

beforeAll(async () => {
  database = await migratedDatabase();
  client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await client.connect();
  volatility = await readVolatility();
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

failOnLeaks("block");

async function readVolatility(): Promise<Volatility> {
  const pairs = async (sql: string) => {
    const { rows } = await client.query<{ id: string; volatility: string }>(sql);
    return new Map(rows.map(({ id, volatility }) => [id, volatility]));
  };
  const { rows } = await client.query<{ id: string }>(
    "SELECT oid::text AS id FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace",
  );
  return {
    functions: await pairs("SELECT oid::text AS id, provolatile::text AS volatility FROM pg_proc"),
    types: await pairs(`SELECT t.oid::text AS id, max(p.provolatile::text) AS volatility
      FROM pg_type t JOIN pg_proc p ON p.oid IN (t.typinput, t.typoutput) GROUP BY t.oid`),
    catalogue: new Set(rows.map(({ id }) => id)),
  };
}

/** The server analyses the text as the body of a function; a text of several commands cannot be prepared. */
async function analysed(text: string): Promise<TreeNode> {
  await client.query("BEGIN");
  try {
    const types = await prepare(client, "analysed", text);
    await client.query(
      `CREATE FUNCTION analysed(${types.join(", ")}) RETURNS void LANGUAGE sql BEGIN ATOMIC ${text}; END`,
    );
    const { rows } = await client.query<{ body: string }>(
      "SELECT prosqlbody::text AS body FROM pg_proc WHERE proname = 'analysed'",
    );
    return queryIn(parseQueryTree(rows[0]?.body ?? ""));
  } finally {
    await client.query("ROLLBACK");
    await client.query("DEALLOCATE ALL");
  }
}

function queryIn([value]: readonly Value[]): TreeNode {
  if (value === undefined || typeof value === "string") throw new Error("no query in the body");
  return isNode(value) ? value : queryIn(value);
}

const problemsOf = async (text: string) => citusProblems(await analysed(text), volatility);

describe("Citus can run", () => {
  test.each([...everyStatement()])("%s", async (_, { text }) => {
    expect(await problemsOf(text)).toEqual([]);
  });
});

describe("a statement is refused", () => {
  test.each([
    [
      "UPDATE outbox SET scheduled_at = CASE WHEN attempt > 0 THEN now() END",
      "CASE or COALESCE over what is not immutable",
    ],
    ["UPDATE outbox SET scheduled_at = least(now(), created_at + interval '1 day')", "a stable function of a column"],
    ["UPDATE outbox SET updated_at = clock_timestamp()", "a volatile function in UPDATE"],
    [
      "UPDATE outbox SET state = CASE state WHEN 'sent' THEN 'dead' ELSE state END",
      "CASE with an operand in what UPDATE writes",
    ],
    [
      "WITH c AS (UPDATE outbox SET attempt = 1 RETURNING created_at < now() AS a) SELECT * FROM c",
      "RETURNING what is not immutable",
    ],
    [
      "INSERT INTO outbox (topic, payload) VALUES ('t', '') ON CONFLICT (id) DO UPDATE SET updated_at = now()",
      "ON CONFLICT with what is not immutable",
    ],
    [
      "WITH c AS (DELETE FROM inbox RETURNING 1) INSERT INTO outbox (topic, payload) SELECT 't', '' FROM c",
      "changes in the WITH of a statement that is no SELECT",
    ],
    [
      "WITH c AS (SELECT pg_current_snapshot() AS s) UPDATE outbox SET attempt = 1 FROM c WHERE c.s IS NOT NULL",
      "what is not immutable in the WITH of a change: it is computed on the coordinator",
    ],
    [
      "SELECT h.id::text AS sequence, h.outbox_id AS id FROM outbox_history h ORDER BY h.id",
      "ORDER BY a column whose name is that of another result",
    ],
    ["SELECT FROM outbox, pg_database", "the catalogue beside the tables"],
  ])("%s", async (text, problem) => {
    expect(await problemsOf(text)).toEqual([problem]);
  });

  test("that has several commands", async () => {
    await expect(problemsOf("SELECT 1; SELECT 2")).rejects.toThrow(/multiple commands/);
  });
});

test.each([
  "UPDATE outbox SET updated_at = now(), lease_expires_at = now() + interval '1 second'",
  "UPDATE outbox SET attempt = coalesce(attempt, 0) + 1, last_error = last_error || 'x'",
  "UPDATE outbox o SET updated_at = t.now FROM (SELECT now() AS now) t WHERE o.created_at < t.now",
  "SELECT h.id, h.outbox_id AS sequence FROM outbox_history h ORDER BY h.id",
  "SELECT h.id::text AS id FROM outbox_history h ORDER BY h.id::text::bigint",
  "SELECT CASE WHEN created_at < now() THEN clock_timestamp() END FROM outbox",
])("a statement is not refused: %s", async (text) => {
  expect(await problemsOf(text)).toEqual([]);
});
