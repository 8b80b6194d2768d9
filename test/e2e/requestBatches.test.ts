import { beforeAll, expect, test } from "@jest/globals";
import pg from "pg";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");
const NDJSON = { "content-type": "application/x-ndjson" };
/** Sources by their paths: what else each has. */
const SOURCES = {
  many: {},
  bad: {},
  whole: { batch: { atomic: true, path: "$.orders[*]" } },
  lines: { batch: { atomic: false } },
  atomicLines: { batch: { atomic: true } },
} as const satisfies Readonly<Record<string, ConfigTree>>;
type Source = keyof typeof SOURCES;

const orders = (count: number, from = 0) =>
  Array.from({ length: count }, (_, n) => ({ id: `o-${from + n}`, key: `k-${n % 7}`, type: "paid", n: from + n }));
const lines = (items: readonly unknown[]) => items.map((item) => `${JSON.stringify(item)}\n`).join("");
const statuses = (text: string) =>
  (JSON.parse(text) as { items: { status: number }[] }).items.map(({ status }) => status);

let database: TestDatabase;
let receiver: Receiver;
/** It takes the requests, and is killed and started again by the tests. */
let ingest: Service;
let start: (...roles: readonly string[]) => Promise<Service>;
let relayAndPoller: Promise<Service> | undefined;
/** Begins to deliver what is stored, unless another test has. */
const deliver = () => {
  relayAndPoller ??= start("relay", "poller");
  return relayAndPoller;
};

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const sources = Object.entries(SOURCES).map(([name, batch]) => [
    name,
    { path: `/${name}`, idempotencyKeyPath: "$.id", aggregateIdPath: "$.key", topic: name, ...batch },
  ]);
  const destinations = Object.keys(SOURCES).map((name) => [name, { baseUrl: receiver.url, path: `/${name}` }]);
  const config = {
    inbox: { maxBodyBytes: 16_777_216 },
    sources: Object.fromEntries(sources),
    destinations: Object.fromEntries(destinations),
    routes: Object.keys(SOURCES).map((name) => ({ topicPattern: name, destination: name })),
  };
  start = (...roles) => services.start({ database, config, roles });
  ingest = await start("ingest");
  // Relays change the rows, and what they show of their transaction.
  await database.query("CREATE TABLE inserted (source text, transaction xid8 DEFAULT pg_current_xact_id())");
  await trigger("note", "AFTER", "INSERT INTO inserted (source) VALUES (NEW.source)");
});

const post = (source: Source, body: string | object) =>
  ingest.post(body, { path: `/inbox/${source}`, headers: typeof body === "string" ? NDJSON : {} });
const arrived = (source: Source) => receiver.requests.filter(({ url }) => url === `/${source}`);
const stored = (source: Source) => database.query("SELECT id FROM inbox WHERE source = $1", [source]);
const transactions = (source: Source) =>
  database.query("SELECT DISTINCT transaction FROM inserted WHERE source = $1", [source]);

test("10,000 messages in one request are one commit, delivered in order per key", async () => {
  const sent = orders(10_000);
  const answer = await post("many", lines(sent));
  expect([answer.status, new Set(statuses(answer.text))]).toEqual([202, new Set([202])]);
  expect(await transactions("many")).toHaveLength(1);
  const again = await post("many", lines(sent));
  expect([again.status, new Set(statuses(again.text))]).toEqual([200, new Set([200])]);
  expect(await ingest.metric("svc_inbox_messages_total")).toBe(20_000);

  // One of five is enough to see their order.
  await database.query("DELETE FROM inbox WHERE (payload::jsonb ->> 'n')::int % 5 > 0");
  await deliver();
  await eventually(() => arrived("many").length === 2000, { timeoutMs: 60_000 });
  const numbered = arrived("many").map(({ body }) => JSON.parse(body.toString()) as { key: string; n: number });
  for (const key of new Set(numbered.map((each) => each.key))) {
    const numbers = numbered.filter((each) => each.key === key).map(({ n }) => n);
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
}, 120_000);

test("a bad line refuses itself alone, and a row that the table refuses too", async () => {
  await refuseRows("NEW.payload LIKE '%o-3%'");
  const body = `${lines(orders(3))}{"id":\n${lines(orders(2, 3))}`;
  const answer = await post("bad", body);
  expect([answer.status, statuses(answer.text)]).toEqual([500, [202, 202, 202, 400, 500, 202]]);
  await database.query("DROP TRIGGER refuse ON inbox");
  const again = await post("bad", body);
  expect([again.status, statuses(again.text)]).toEqual([207, [200, 200, 200, 400, 202, 200]]);
  await deliver();
  await eventually(() => expect(arrived("bad")).toHaveLength(5));
});

test("with atomic, a row that the table refuses keeps all of its request out", async () => {
  await refuseRows("NEW.payload LIKE '%o-1%'");
  const answer = await post("whole", { orders: orders(3) });
  expect([answer.status, statuses(answer.text)]).toEqual([500, [424, 500, 424]]);
  expect(await stored("whole")).toEqual([]);
  await database.query("DROP TRIGGER refuse ON inbox");
  expect((await post("whole", { orders: orders(3) })).status).toBe(202);
  expect(await transactions("whole")).toHaveLength(1);
  await deliver();
  await eventually(() => expect(arrived("whole")).toHaveLength(3));
});

test.each([
  [false, "lines"],
  [true, "atomicLines"],
] as const)(
  "a process killed in mid-insert, or a lost connection, leaves all of a request or none (atomic: %s)",
  async (_, source) => {
    const body = lines(orders(500));

    await whileLocked(async () => {
      const answer = post(source, body).catch(() => "gone");
      await waits();
      await ingest.kill();
      expect(await answer).toBe("gone");
    });
    ingest = await start("ingest");
    await eventually(async () => expect([0, 500]).toContain((await stored(source)).length));

    await whileLocked(async () => {
      const answer = post(source, body);
      await waits();
      await database.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE ${INSERTING}`,
      );
      expect((await answer).status).toBe(500);
    });
    const last = await post(source, body);
    expect([200, 202]).toContain(last.status);
    expect(await stored(source)).toHaveLength(500);
    await deliver();
    await eventually(() => expect(arrived(source)).toHaveLength(500));
  },
  60_000,
);

/** Nothing can be inserted into the inbox meanwhile. */
async function whileLocked(body: () => Promise<void>): Promise<void> {
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
async function waits(): Promise<void> {
  await eventually(async () => {
    expect(await database.query(`SELECT pid FROM pg_stat_activity WHERE ${INSERTING}`)).toHaveLength(1);
  });
}

async function refuseRows(condition: string): Promise<void> {
  await trigger("refuse", "BEFORE", `IF ${condition} THEN RAISE EXCEPTION 'not this one'; END IF`);
}

/** Runs a statement for each row that is inserted into the inbox. */
async function trigger(name: string, when: "BEFORE" | "AFTER", statement: string): Promise<void> {
  await database.query(
    `CREATE OR REPLACE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${statement}; RETURN NEW; END $$`,
  );
  await database.query(
    `CREATE OR REPLACE TRIGGER ${name} ${when} INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION ${name}()`,
  );
}
