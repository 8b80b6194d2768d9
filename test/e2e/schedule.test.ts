import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
const HELD = {
  path: "/held",
  idempotencyKeyPath: "$.id",
  aggregateIdPath: "$.key",
  topic: "orders.held",
  initialDelay: "3s",
  scheduledAtHeader: "X-Published",
  scheduledAtPath: "$.published",
  deliverAtPath: "$.deliverAt",
};

test("an aggregate's messages leave in the order of their publication, whichever replica received them when", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const config = ordersTo(receiver, { sources: { held: HELD } });
  const replicas = [await services.start({ database, config }), await services.start({ database, config })];
  const begun = Date.now() - 1000;
  const ids = Array.from({ length: 20 }, (_, n) => `m-${String(n).padStart(2, "0")}`);
  for (const [n, id] of [...ids.entries()].reverse()) {
    const published = begun + n;
    const body = { id, key: "k", ...(n % 3 === 0 ? {} : { published: new Date(published).toISOString() }) };
    const options = { path: "/inbox/held", ...(n % 3 === 0 ? { headers: { "x-published": String(published) } } : {}) };
    expect((await replicas[n % 2]?.post(body, options))?.status).toBe(202);
  }
  const later = { id: "later", key: "k", published: begun - 60_000, deliverAt: (begun + 8000) / 1000 };
  expect((await replicas[0]?.post(later, { path: "/inbox/held" }))?.status).toBe(202);
  expect(
    (await replicas[1]?.post({ id: "overdue", key: "k", published: "1999-01-01" }, { path: "/inbox/held" }))?.status,
  ).toBe(202);

  const arrived = () => receiver.requests.map(({ body }) => (JSON.parse(body.toString()) as { id: string }).id);
  await eventually(() => arrived().length === 22, { timeoutMs: 30_000 });
  expect(arrived()).toEqual(["overdue", ...ids, "later"]);
  const early = await database.query(
    "SELECT id FROM inbox WHERE processed_at < scheduled_at OR (idempotency_key = 'later' AND scheduled_at < to_timestamp($1))",
    [Math.floor((begun + 8000) / 1000)],
  );
  expect(early).toEqual([]);
}, 60_000);
