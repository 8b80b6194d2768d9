import { expect, test } from "@jest/globals";
import { EXPIRED } from "../../src/model/rows.ts";
import { eventually } from "../support/eventually.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
const TTL = { sources: { orders: { timeToLive: "1s", expiresAtHeader: "X-Expires" } } };
const ADMIN = { admin: { enabled: true, auth: { token: "t" } } };
const BEARER = { authorization: "Bearer t", "content-type": "application/json" };

test("what is not delivered in time is dead, and a replay delivers it after all", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const config = ordersTo(receiver, { ...TTL, ...ADMIN });
  const relay = await services.start({ database, config, roles: ["ingest", "relay"] });
  await relay.post({ id: "late", key: "k", type: "paid" });
  await relay.post({ id: "gone", key: "k", type: "paid" }, { headers: { "x-expires": "2001-01-01T00:00:00Z" } });
  expect((await relay.post({ id: "gone", key: "k", type: "paid" })).status).toBe(200);
  await eventually(async () => {
    const dead = await database.query("SELECT idempotency_key, last_error FROM inbox WHERE state = 'dead'");
    expect(dead).toEqual([{ idempotency_key: "gone", last_error: EXPIRED }]);
    expect(await database.query("SELECT id FROM outbox WHERE expires_at < now()")).toHaveLength(1);
  });
  // An application sets its own time.
  await database.query(
    `INSERT INTO outbox (topic, key, payload, expires_at) VALUES
       ('orders.own', 'k', '{"id":"own, expired"}', now() - interval '1 second'),
       ('orders.own', 'k', '{"id":"own"}', now() + interval '1 hour'),
       ('orders.own', 'k', '{"id":"for ever"}', 'infinity')`,
  );

  const service = await services.start({ database, config });
  await service.post({ id: "in time", key: "k", type: "paid" });
  const arrived = () => receiver.requests.map(({ body }) => (JSON.parse(body.toString()) as { id: string }).id);
  await eventually(async () => expect(arrived()).toEqual(["own", "for ever", "in time"]));
  const dead = await database.query(
    "SELECT id, attempt, last_error FROM outbox WHERE state = 'dead' ORDER BY sequence",
  );
  expect(dead).toMatchObject([
    { attempt: 0, last_error: EXPIRED },
    { attempt: 0, last_error: EXPIRED },
  ]);
  const ids = dead.map(({ id }) => id);
  const replay = await service.post({ ids }, { path: "/admin/replay", headers: BEARER });
  expect(replay.status).toBe(200);
  await eventually(async () => expect(arrived()).toEqual(["own", "for ever", "in time", "late", "own, expired"]));
  expect(await service.metric("svc_outbox_messages_total")).toBe(7);
}, 60_000);

test("tables without the column stop the start if a source needs it, and no other", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const first = await services.start({ database, config: ordersTo(receiver, TTL) });
  await first.stop();
  for (const table of ["inbox", "outbox"]) await database.query(`ALTER TABLE ${table} DROP COLUMN expires_at`);
  const own = { database: { migrate: false } };
  const refused = await services.launch({ database, config: ordersTo(receiver, { ...TTL, ...own }) });
  expect((await refused.process.exited).code).not.toBe(0);
  const printed = [...refused.process.stderr, ...refused.process.stdout].join("\n");
  expect(printed).toContain('ALTER TABLE "inbox" ADD COLUMN "expires_at" timestamptz;');
  expect(printed).toContain('ALTER TABLE "outbox" ADD COLUMN "expires_at" timestamptz;');

  const service = await services.start({ database, config: ordersTo(receiver, own) });
  await service.post({ id: "a", key: "k", type: "paid" });
  await eventually(async () => expect(receiver.requests).toHaveLength(1));
}, 60_000);
