import { expect, test } from "@jest/globals";
import pg from "pg";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices();
const NDJSON = { "content-type": "application/x-ndjson" };

const orders = (count: number, from = 0) =>
  Array.from({ length: count }, (_, n) => ({ id: `o-${from + n}`, key: `k-${n % 7}`, type: "paid", n: from + n }));
const lines = (items: readonly unknown[]) => items.map((item) => `${JSON.stringify(item)}\n`).join("");
const statuses = (text: string) =>
  (JSON.parse(text) as { items: { status: number }[] }).items.map(({ status }) => status);
const transactions = (database: TestDatabase) => database.query("SELECT DISTINCT xmin FROM inbox");

test("10,000 messages in one request are one commit, delivered in order per key", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const config = ordersTo(receiver, { inbox: { maxBodyBytes: 16_777_216 }, outbox: { concurrency: 32 } });
  const ingest = await services.start({ database, config, roles: ["ingest"] });
  const sent = orders(10_000);
  const answer = await ingest.post(lines(sent), { headers: NDJSON });
  expect([answer.status, new Set(statuses(answer.text))]).toEqual([202, new Set([202])]);
  expect(await transactions(database)).toHaveLength(1);
  const again = await ingest.post(lines(sent), { headers: NDJSON });
  expect([again.status, new Set(statuses(again.text))]).toEqual([200, new Set([200])]);
  expect(await ingest.metric("svc_inbox_messages_total")).toBe(20_000);

  await services.start({ database, config, roles: ["relay", "poller"] });
  await eventually(async () => expect(receiver.requests.length).toBe(10_000), { timeoutMs: 60_000 });
  const arrived = receiver.requests.map(({ body }) => JSON.parse(body.toString()) as { key: string; n: number });
  for (const key of new Set(arrived.map((each) => each.key))) {
    const numbers = arrived.filter((each) => each.key === key).map(({ n }) => n);
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
}, 120_000);

test("a bad line refuses itself alone, and a row that the table refuses too", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const service = await services.start({ database, config: ordersTo(receiver) });
  await refuseRows(database, "NEW.payload LIKE '%o-3%'");
  const body = `${lines(orders(3))}{"id":\n${lines(orders(2, 3))}`;
  const answer = await service.post(body, { headers: NDJSON });
  expect([answer.status, statuses(answer.text)]).toEqual([500, [202, 202, 202, 400, 500, 202]]);
  await database.query("DROP TRIGGER refuse ON inbox");
  const again = await service.post(body, { headers: NDJSON });
  expect([again.status, statuses(again.text)]).toEqual([207, [200, 200, 200, 400, 202, 200]]);
  await eventually(async () => expect(receiver.requests.length).toBe(5));
});

test("with atomic, a row that the table refuses keeps all of its request out", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const source = { batch: { atomic: true, path: "$.orders[*]" } };
  const service = await services.start({ database, config: ordersTo(receiver, { sources: { orders: source } }) });
  await refuseRows(database, "NEW.payload LIKE '%o-1%'");
  const answer = await service.post({ orders: orders(3) });
  expect([answer.status, statuses(answer.text)]).toEqual([500, [424, 500, 424]]);
  expect(await database.query("SELECT id FROM inbox")).toEqual([]);
  await database.query("DROP TRIGGER refuse ON inbox");
  expect((await service.post({ orders: orders(3) })).status).toBe(202);
  expect(await transactions(database)).toHaveLength(1);
  await eventually(async () => expect(receiver.requests.length).toBe(3));
});

test.each([false, true])(
  "a process killed in mid-insert, or a lost connection, leaves all of a request or none (atomic: %s)",
  async (atomic) => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, { sources: { orders: { batch: { atomic } } } });
    const body = lines(orders(500));

    const killed = await services.start({ database, config });
    await whileLocked(database, async () => {
      const answer = killed.post(body, { headers: NDJSON }).catch(() => "gone");
      await waits(database);
      await killed.kill();
      expect(await answer).toBe("gone");
    });
    const service: Service = await services.start({ database, config });
    await eventually(async () => expect([0, 500]).toContain(await count(database)));

    await whileLocked(database, async () => {
      const answer = service.post(body, { headers: NDJSON });
      await waits(database);
      await database.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE ${INSERTING}`,
      );
      expect((await answer).status).toBe(500);
    });
    const last = await service.post(body, { headers: NDJSON });
    expect([200, 202]).toContain(last.status);
    expect(await count(database)).toBe(500);
    await eventually(async () => expect(receiver.requests.length).toBe(500));
  },
  60_000,
);

const count = async (database: TestDatabase) => Number((await database.query("SELECT id FROM inbox")).length);

/** Nothing can be inserted into the inbox meanwhile. */
async function whileLocked(database: TestDatabase, body: () => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query("BEGIN");
    await client.query("LOCK TABLE inbox IN SHARE MODE");
    await body();
  } finally {
    await client.query("ROLLBACK");
    await client.end();
  }
}

/** Relay passes wait for the same lock. */
const INSERTING =
  "datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%received AS MATERIALIZED%'";

/** Resolves when an insert waits for the lock. */
async function waits(database: TestDatabase): Promise<void> {
  await eventually(async () => {
    expect(await database.query(`SELECT pid FROM pg_stat_activity WHERE ${INSERTING}`)).toHaveLength(1);
  });
}

async function refuseRows(database: TestDatabase, condition: string): Promise<void> {
  await database.query(
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN IF ${condition} THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$`,
  );
  await database.query("CREATE TRIGGER refuse BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION refuse()");
}
