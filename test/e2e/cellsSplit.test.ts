import { expect, test } from "@jest/globals";
import { cellOf } from "../../src/model/cells.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { read } from "../support/repository.ts";
import { type ConfigTree, ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const CELLS = ["public_0", "public_1", "public_2", "public_3"];

/**
 * What an installation has when it stops: messages 1 to 10,000 were delivered, 10,001 to 14,000 are in the outbox, to
 * 15,000 rows of an application, to 18,000 in the inbox alone; further ones are scheduled, parked, or to be pulled.
 */
const ROWS = `
CREATE FUNCTION message(n int) RETURNS text LANGUAGE sql AS
  $$ SELECT json_build_object('id', 'm-' || n, 'key', 'key-' || n % 50, 'type', 'created', 'n', n)::text $$;
INSERT INTO inbox (source, idempotency_key, aggregate_id, event_type, payload, state, processed_at, created_at)
SELECT 'orders', 'm-' || n, 'key-' || n % 50, 'created', message(n), CASE WHEN n <= 14000 THEN 'processed' ELSE 'pending' END,
  CASE WHEN n <= 14000 THEN now() END, now() - (18001 - n) * interval '1 millisecond'
FROM generate_series(1, 18000) n WHERE n NOT BETWEEN 14001 AND 15000;
INSERT INTO outbox (id, topic, key, payload, state)
SELECT id, 'orders.created', aggregate_id, payload, CASE WHEN (payload::json->>'n')::int <= 10000 THEN 'sent' ELSE 'pending' END
FROM inbox WHERE state = 'processed' ORDER BY created_at;
INSERT INTO outbox (topic, key, payload) SELECT 'orders.created', 'key-' || n % 50, message(n) FROM generate_series(14001, 15000) n;
UPDATE outbox SET state = 'processing', claim_token = gen_random_uuid(), claimed_at = now(), lease_expires_at = now() + interval '1 day'
WHERE sequence IN (SELECT sequence FROM outbox WHERE state = 'pending' ORDER BY sequence LIMIT 30);
INSERT INTO outbox (topic, payload, scheduled_at) SELECT 'orders.created', '{}', '2100-01-01' FROM generate_series(1, 500);
INSERT INTO outbox (topic, key, payload, attempt, scheduled_at, last_error)
SELECT 'orders.created', 'parked-' || n, '{}', 5, '9999-12-31Z', 'refused' FROM generate_series(1, 100) n;
INSERT INTO outbox_history (outbox_id, event, attempt) SELECT id, 'retry', 1 FROM outbox WHERE key LIKE 'parked%';
INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, consumption)
SELECT 'pulled', 'p-' || n, 'pulled-' || n % 50, '{}', 'pull' FROM generate_series(1, 500) n`;

async function countOf(database: TestDatabase, table: string, schemas: readonly string[]): Promise<number> {
  const parts = schemas.map((schema) => `SELECT count(*)::int AS n FROM ${schema}.${table}`);
  const [row] = await database.query<{ n: number }>(`SELECT sum(n)::int AS n FROM (${parts.join(" UNION ALL ")}) c`);
  return row?.n ?? 0;
}

test("one database becomes four cells offline: nothing is lost, repeated or reordered", async () => {
  const database = await services.database();
  for (const schema of ["public", ...CELLS]) {
    const store = postgresStore(database, { ...DEFAULT_NAMES, schema });
    await store.schema.migrate().finally(() => store.close());
  }
  await database.query(ROWS);

  const receiver = await services.receiver();
  const config = ordersTo(receiver, {
    database: { cells: CELLS.length },
    inbox: { pull: { enabled: true, auth: { token: "sesame" } } },
    sources: { pulled: { path: "/pulled", consumption: "pull", idempotencyKeyPath: "$.id" } } as ConfigTree,
  });
  const { process } = await services.launch({ database, config });
  expect((await process.exited).code).toBe(2);
  expect(process.stderr.join("\n")).toContain("no cell has the tables of database.url, and rows wait in them");

  const script = read("deploy/split-into-cells.sql");
  for (const [number, schema] of CELLS.entries()) {
    const values = { '"cell"': schema, "'cell'": `'${schema}'`, number: String(number), cells: String(CELLS.length) };
    await database.query(
      script.replaceAll(/(?<!:):("cell"|'cell'|number|cells)/g, (_, name: keyof typeof values) => values[name]),
    );
  }
  for (const table of ["inbox", "outbox", "outbox_history"])
    expect(await countOf(database, table, CELLS)).toBe(await countOf(database, table, ["public"]));
  for (const [number, schema] of CELLS.entries()) {
    const keys = await database.query<{ key: string }>(
      `SELECT DISTINCT key FROM ${schema}.outbox WHERE key IS NOT NULL`,
    );
    expect(keys.filter(({ key }) => cellOf(key, CELLS.length) !== number)).toEqual([]);
    expect(keys.length).toBeGreaterThan(0);
  }
  await database.query("TRUNCATE inbox, outbox, outbox_history, outbox_journal");

  const service = await services.start({ database, config });
  for (const name of CELLS)
    await service.process.waitForLine(new RegExp(`(?=.*"cell":"${name}").*the cell is open`), 30_000);
  const message = (n: number) => ({ id: `m-${n}`, key: `key-${n % 50}`, type: "created", n });
  for (const n of [1, 9999, 13_000, 17_000]) expect((await service.post(message(n))).status).toBe(200);
  for (let n = 18_001; n <= 18_050; n += 1) expect((await service.post(message(n))).status).toBe(202);
  await eventually(() => expect(receiver.requests).toHaveLength(8050), { timeoutMs: 60_000 });
  const arrived = receiver.requests.map(({ body }) => JSON.parse(body.toString()) as { key: string; n: number });
  expect(new Set(arrived.map(({ n }) => n)).size).toBe(8050);
  for (let key = 0; key < 50; key += 1) {
    const numbers = arrived.flatMap((each) => (each.key === `key-${key}` ? [each.n] : []));
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
  const pulled: string[] = [];
  const ask = async (operation: string, body: object) =>
    await service.post(body, { path: `/pull/pulled/${operation}`, headers: { authorization: "Bearer sesame" } });
  await eventually(async () => {
    const answer = await ask("claim", { maxMessages: 100 });
    const { claimToken, messages } = answer.json() as { claimToken: string; messages: { idempotencyKey: string }[] };
    pulled.push(...messages.map(({ idempotencyKey }) => idempotencyKey));
    if (messages.length > 0) expect((await ask("ack", { claimToken })).status).toBe(200);
    expect(new Set(pulled).size).toBe(500);
  });
  expect(pulled).toHaveLength(500);
  const waiting = CELLS.map((schema) => `SELECT * FROM ${schema}.outbox WHERE state <> 'sent'`).join(" UNION ALL ");
  expect(
    await database.query(`SELECT attempt, count(*)::int AS n FROM (${waiting}) w GROUP BY attempt ORDER BY attempt`),
  ).toEqual([
    { attempt: 0, n: 500 },
    { attempt: 5, n: 100 },
  ]);
}, 120_000);
