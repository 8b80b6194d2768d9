import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { merged, ordersTo, useServices } from "../support/service.ts";
import { allDelivered, record, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

test("a change of routes in a rolling restart under traffic: each row goes by the old or the new ones, none is lost", async () => {
  const [database, before, after] = await Promise.all([services.database(), services.receiver(), services.receiver()]);
  const history = new History();
  for (const receiver of [before, after]) record(receiver, history);
  const both = merged(ordersTo(before), {
    outbox: { retryBaseDelayMs: 100 },
    destinations: { after: { baseUrl: after.url, path: "/hook" } },
  });
  const start = (destination: string) =>
    services.start({ database, config: merged(both, { routes: [{ topicPattern: "**", destination }] }) });
  /** As an application does. */
  const insert = async (name: string) => {
    const ids = Array.from({ length: 200 }, (_, n) => `${name}-${n}`);
    for (const [n, id] of ids.entries()) history.sent(id, `${name}-${n % 5}`);
    await database.query(
      `INSERT INTO outbox (topic, key, payload)
       SELECT 'orders.inserted', $2 || '-' || (n - 1) % 5, json_build_object('id', id)::text FROM unnest($1::text[]) WITH ORDINALITY AS i(id, n) ORDER BY n`,
      [ids, name],
    );
    for (const id of ids) history.acknowledged(id);
  };
  const first = await start("receiver");
  await sendTraffic({ history, to: [first], keys: 5, messagesPerKey: 20 });
  await insert("early");

  // Both versions receive and deliver for a while.
  const second = await start("after");
  const rolled = (async () => {
    await insert("late");
    await eventually(() => expect(after.requests.length).toBeGreaterThan(50));
    expect((await first.stop()).code).toBe(0);
  })();
  await sendTraffic({ history, to: [first, second], keys: 5, messagesPerKey: 50, prefix: "rolled", until: rolled });
  await rolled;
  await allDelivered(history, 30_000);
  await eventually(async () =>
    expect(await database.query("SELECT DISTINCT state FROM outbox")).toEqual([{ state: "sent" }]),
  );
  expect(history.violations()).toEqual([]);

  const idsOf = (receiver: Receiver) =>
    receiver.requests.map(({ body }) => (JSON.parse(String(body)) as { id: string }).id);
  const [old, present] = [new Set(idsOf(before)), new Set(idsOf(after))];
  const rows = await database.query<{ id: string }>("SELECT payload::json ->> 'id' AS id FROM outbox");
  expect(rows.filter(({ id }) => !old.has(id) && !present.has(id))).toEqual([]);
  expect(rows.filter(({ id }) => old.has(id) && present.has(id))).toEqual([]);
  expect(history.repeated).toEqual([]);
}, 120_000);

test("rows that the former routes have sent to a failing destination follow the new ones; pinned rows do not", async () => {
  const [database, before, after] = await Promise.all([services.database(), services.receiver(), services.receiver()]);
  before.answer = { status: 503 };
  const both = merged(ordersTo(before), {
    outbox: { maxAttempts: 200 },
    destinations: {
      receiver: { retry: { schedule: ["1s"] } },
      after: { baseUrl: after.url, path: "/hook" },
    },
  });
  const start = (destination: string) =>
    services.start({ database, config: merged(both, { routes: [{ topicPattern: "**", destination }] }) });
  const first = await start("receiver");
  for (let n = 0; n < 3; n += 1) await first.post({ id: `m-${n}`, key: `k${n}`, type: "made" });
  await database.query(
    `INSERT INTO outbox (topic, payload, max_attempts, destination) VALUES ('orders.pinned', '{"id":"pinned"}', 200, 'receiver')`,
  );
  const waiting = () =>
    database.query<{ n: number }>("SELECT count(*)::int AS n FROM outbox WHERE attempt > 0 AND state <> 'sent'");
  await eventually(async () => expect(await waiting()).toEqual([{ n: 4 }]));

  const second = await start("after");
  expect((await first.stop()).code).toBe(0);
  await after.received(3);
  await eventually(async () => expect(await waiting()).toEqual([{ n: 1 }]));
  expect(after.requests.map(({ body }) => (JSON.parse(String(body)) as { id: string }).id).toSorted()).toEqual([
    "m-0",
    "m-1",
    "m-2",
  ]);
  before.answer = { status: 200 };
  await eventually(async () => expect(await waiting()).toEqual([{ n: 0 }]));

  await database.query("INSERT INTO outbox (topic, payload, destination) VALUES ('orders.lost', '{}', 'gone')");
  const lost =
    "SELECT state, last_error LIKE '%pinned to the destination \"gone\"%' AS says_why FROM outbox WHERE topic = 'orders.lost'";
  await eventually(async () => expect(await database.query(lost)).toEqual([{ state: "dead", says_why: true }]));
  expect((await second.stop()).code).toBe(0);
}, 120_000);
