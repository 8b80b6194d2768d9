import { expect, test } from "@jest/globals";
import pg from "pg";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, merged, ordersTo, useServices } from "../support/service.ts";
import { allDelivered, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

const TOPIC = "orders.replayed";

/**
 * Dead rows number `from` up to `to`, over `keys` keys in turn; each with its id in the payload. The history knows them as sent and
 * acknowledged, in their order.
 */
async function insertDead(
  database: TestDatabase,
  history: History,
  from: number,
  to: number,
  keys: number,
): Promise<void> {
  await database.query(
    `INSERT INTO outbox (topic, key, payload, state, attempt, last_error)
     SELECT $1, 'key-' || (n % $3), json_build_object('id', 'replayed-' || n, 'key', 'key-' || (n % $3)), 'dead', 5, 'status 500'
     FROM generate_series($2, $4 - 1) n`,
    [TOPIC, from, keys, to],
  );
  for (let n = from; n < to; n += 1) {
    history.sent(`replayed-${n}`, `key-${n % keys}`);
    history.acknowledged(`replayed-${n}`);
  }
}

/** Writes down what is accepted; refuses each message in twenty the first time it comes, and the message `blocked` always. */
function recordWithFailures(receiver: Receiver, historyOf: (id: string) => History): void {
  const seen = new Set<string>();
  receiver.answer = ({ body }, response) => {
    const { id } = JSON.parse(body.toString("utf8")) as { id: string };
    const refused = id === "blocked" || (!seen.has(id) && seen.size % 20 === 0);
    seen.add(id);
    if (!refused) historyOf(id).received(id);
    response.writeHead(refused ? 500 : 200).end();
  };
}

async function migrated(): Promise<TestDatabase> {
  const database = await services.database();
  const store = postgresStore(database);
  await store.schema.migrate().finally(() => store.close());
  return database;
}

function replay(database: TestDatabase, config: ConfigTree) {
  const { jdbcUrl: url, user: username, password } = database;
  const file = services.configFile(merged(config, { database: { url, username, password } }));
  return services.processes.svc(["replay", "--config", file, "--topic", TOPIC]);
}

test("a replay of thousands of dead rows beside traffic on the same keys keeps the order of each key and holds no fresh message up", async () => {
  const [database, receiver] = await Promise.all([migrated(), services.receiver()]);
  const [rows, keys] = [8000, 60];
  const [replayed, fresh] = [new History(), new History()];
  await insertDead(database, replayed, 0, 500, keys);
  // In the middle of the replay's first batch lies a row that is never finished: the pollers take it for the lowest one there is.
  await database.query(
    `INSERT INTO outbox (topic, key, payload, max_attempts) VALUES ('orders.live', 'blocked', '{"id":"blocked"}', 1000)`,
  );
  await insertDead(database, replayed, 500, rows, keys);
  recordWithFailures(receiver, (id) => (id.startsWith("replayed") ? replayed : fresh));
  const config = ordersTo(receiver, { outbox: { retryBaseDelayMs: 50 } });
  const to = await Promise.all([services.start({ database, config }), services.start({ database, config })]);

  const child = replay(database, config);
  let running = true;
  const ended = child.exited.finally(() => {
    running = false;
  });
  await eventually(() => replayed.missing.length < rows, { timeoutMs: 15_000, label: "the first replayed message" });
  let rounds = 0;
  for (; running; rounds += 1) {
    await sendTraffic({ history: fresh, to, keys: 20, messagesPerKey: 2, prefix: `fresh-${rounds}` });
    await allDelivered(fresh, 30_000);
  }

  expect([(await ended).code, child.stdout.at(-1)]).toEqual([0, `${rows} rows moved to pending`]);
  // Had they waited for the replay, the first round would have been the last.
  expect(rounds).toBeGreaterThan(2);
  await allDelivered(replayed, 60_000);
  const unfinished = () => database.query("SELECT id FROM outbox WHERE state <> 'sent' AND key <> 'blocked' LIMIT 1");
  await eventually(async () => expect(await unfinished()).toEqual([]), { timeoutMs: 20_000 });
  expect(replayed.violations()).toEqual([]);
  expect(fresh.violations()).toEqual([]);
}, 120_000);

test("a replay that is killed in the middle of a batch leaves each row moved or unchanged, and the next one moves the rest", async () => {
  const [database, receiver] = await Promise.all([migrated(), services.receiver()]);
  const rows = 3500;
  const history = new History();
  await insertDead(database, history, 0, rows, 50);
  const config = ordersTo(receiver, { outbox: { retryBaseDelayMs: 50 } });
  const blocker = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await blocker.connect();
  services.defer(() => blocker.end());
  await blocker.query("BEGIN");
  await blocker.query("SELECT id FROM outbox WHERE sequence = 1500 FOR UPDATE");

  const doomed = replay(database, config);
  const sessions = (state: string) =>
    database.query(
      `SELECT pid FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'svc' AND coalesce(wait_event_type, '') LIKE $1`,
      [state],
    );
  // It is the second batch that meets the lock.
  await eventually(async () => expect(await sessions("Lock")).toHaveLength(1), { timeoutMs: 20_000 });
  doomed.kill("SIGKILL");
  expect((await doomed.exited).signal).toBe("SIGKILL");
  await blocker.query("ROLLBACK");
  await eventually(async () => expect(await sessions("%")).toEqual([]), { timeoutMs: 10_000 });

  const states = await database.query<{
    state: string;
    rows: number;
    first: number;
    attempt: number;
    error: string | null;
  }>(
    `SELECT state, count(*)::int AS rows, min(sequence)::int AS first, max(attempt) AS attempt, max(last_error) AS error
     FROM outbox GROUP BY state ORDER BY first`,
  );
  const moved = states[0]?.rows ?? 0;
  // The server may have had the whole of the second batch when the client died.
  expect([1000, 2000]).toContain(moved);
  expect(states).toEqual([
    { state: "pending", rows: moved, first: 1, attempt: 0, error: null },
    { state: "dead", rows: rows - moved, first: moved + 1, attempt: 5, error: "status 500" },
  ]);

  const second = replay(database, config);
  expect([(await second.exited).code, second.stdout.at(-1)]).toEqual([0, `${rows - moved} rows moved to pending`]);
  recordWithFailures(receiver, () => history);
  await services.start({ database, config, roles: ["poller"] });
  await allDelivered(history, 60_000);
  expect(history.violations()).toEqual([]);
}, 120_000);
