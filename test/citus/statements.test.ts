import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { migratedDatabase } from "../support/postgresHarness.ts";
import { everyStatement, prepare } from "../support/postgresStatements.ts";

/**
 * Citus sends a statement to the node of its tables as a whole, with one snapshot there, or cuts it into parts that it
 * runs one after another, each with a snapshot of its own, and some on the coordinator. A statement of the second kind
 * must be right in that way too.
 */

/** They give positions or the ids of entries, which are the coordinator's, in a part of a `WITH`. */
const IN_PARTS = [
  "history.trial",
  "inbox.relay",
  "inbox.relay of named rows",
  "operations.beat",
  "outbox.settle with history",
  "outbox.settle with history (2)",
  "parked.discard (3)",
  "parked.discard (4)",
  "parked.retry (3)",
  "parked.retry (4)",
  "replay.move (3)",
  "replay.move (4)",
];
/** They read the catalogue or the clock, and no rows. */
const ON_COORDINATOR = [
  "inbox.mark coordination",
  "messages.lock holder",
  "outbox.mark coordination",
  "outbox.may lack times",
];

let database: TestDatabase;
let client: pg.Client;
beforeAll(async () => {
  database = await migratedDatabase();
  client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await client.connect();
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

const ID = "00000000-0000-4000-8000-000000000000";
const BY_TYPE: Readonly<Record<string, string>> = {
  text: "a",
  bigint: "1",
  integer: "1",
  "double precision": "1",
  boolean: "t",
  uuid: ID,
  "timestamp with time zone": "2020-01-01Z",
  jsonb: '{"topics":{"a":["x"]},"ownKeySources":[]}',
  "text[]": "{a}",
  "uuid[]": `{${ID}}`,
  "bigint[]": "{1,1,1,1,1,1,1,1}",
  "integer[]": "{1}",
  "boolean[]": "{t}",
  "double precision[]": "{1}",
};
const BY_NAME: Readonly<Record<string, string>> = { figures: "[]", headers: "{}" };

/** How Citus runs a statement. */
async function routeOf(text: string, parameters: readonly string[]): Promise<string> {
  await client.query("BEGIN");
  try {
    const types = await prepare(client, "asked", text);
    const values = types.map((type, n) => {
      const value = BY_NAME[parameters[n] ?? ""] ?? BY_TYPE[type];
      if (value === undefined) throw new Error(`no value of the type ${type}`);
      return pg.escapeLiteral(value);
    });
    const call = values.length === 0 ? "asked" : `asked(${values.join(", ")})`;
    const { rows } = await client.query<{ "QUERY PLAN": string }>(`EXPLAIN EXECUTE ${call}`);
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    if (!/Citus/.test(plan)) return "on the coordinator";
    return /Distributed Subplan/.test(plan) ? "in parts" : "whole";
  } finally {
    await client.query("ROLLBACK");
    await client.query("DEALLOCATE ALL");
  }
}

describe("how Citus runs", () => {
  test.each([...everyStatement()])("%s", async (name, { text, parameters = [] }) => {
    const expected = IN_PARTS.includes(name)
      ? "in parts"
      : ON_COORDINATOR.includes(name)
        ? "on the coordinator"
        : "whole";
    expect(await routeOf(text, parameters)).toBe(expected);
  });

  test("no statement that is not there", () => {
    expect([...everyStatement().keys()]).toEqual(expect.arrayContaining([...IN_PARTS, ...ON_COORDINATOR]));
  });
});
