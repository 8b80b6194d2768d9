import { expect, test } from "@jest/globals";
import { sharedEnd } from "../support/brokerEnds/index.ts";
import { describeWith, START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

/** Attributes that no path alone can find. */
const EXPRESSIONS = {
  idempotencyKeyExpression: '$exists(order) ? order.shop & "-" & $string(order.number) : missing',
  eventTypeExpression: '$lowercase($split(kind, ".")[-1])',
  aggregateIdExpression: '$headers."x-tenant" & ":" & order.customer',
};

const messageOf = (number: number) => ({ kind: "Shop.PAID", order: { shop: "north", number, customer: "ada" } });

const INBOX = "SELECT idempotency_key, event_type, aggregate_id FROM inbox WHERE source = $1 ORDER BY idempotency_key";

const rowOf = (number: number) => ({
  idempotency_key: `north-${number}`,
  event_type: "paid",
  aggregate_id: "blue:ada",
});

test("a source over HTTP needs nothing but expressions, also for several messages in one request", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const computed = { path: "/computed", ...EXPRESSIONS, topic: "orders.{{ eventType }}" };
  const service = await services.start({ database, config: ordersTo(receiver, { sources: { computed } }) });
  expect(service.process.stdout.join("\n")).toContain('"msg":"evaluation workers are up"');
  const headers = { "x-tenant": "blue" };
  const post = (body: object | string, more = {}) =>
    service.post(body, { path: "/inbox/computed", headers: { ...headers, ...more } });

  expect([(await post(messageOf(1))).status, (await post({ ...messageOf(1), again: true })).status]).toEqual([
    202, 200,
  ]);
  const refused = await post({ kind: "Shop.PAID" });
  expect([refused.status, refused.json()]).toEqual([
    400,
    { error: expect.stringContaining("no idempotency key by idempotencyKeyExpression") },
  ]);
  const lines = [2, 1, 3].map((number) => JSON.stringify(messageOf(number))).join("\n");
  const batch = await post(lines, { "content-type": "application/x-ndjson" });
  expect(batch.json()).toMatchObject({ items: [{ status: 202 }, { status: 200 }, { status: 202 }] });

  expect(await database.query(INBOX, ["computed"])).toEqual([1, 2, 3].map(rowOf));
  await eventually(async () =>
    expect(await database.query("SELECT topic, key FROM outbox ORDER BY sequence")).toEqual(
      [1, 2, 3].map(() => ({ topic: "orders.paid", key: "blue:ada" })),
    ),
  );
});

describeWith(["kafka", "rabbitmq", "nats"], "a broker source with expressions", () => {
  test.each(["kafka", "rabbitmq", "nats"] as const)(
    "stores each message of %s once, under the key that is computed",
    async (kind) => {
      const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
      const end = await sharedEnd(kind);
      services.defer(() => end[Symbol.asyncDispose]());
      const source = { ...end.source, ...EXPRESSIONS, topic: "orders.{{ eventType }}" };
      await services.start({ database, config: ordersTo(receiver, { sources: { queue: source } }) });
      // The default path would give another key to each of them.
      const sent = [1, 2, 1, 3].map((number, id) => ({
        key: "k",
        headers: { "x-tenant": "blue" },
        body: JSON.stringify({ id, ...messageOf(number) }),
      }));
      await end.send(sent);
      await eventually(async () => expect(await database.query(INBOX, ["queue"])).toEqual([1, 2, 3].map(rowOf)));
    },
    START_TIMEOUT_MS,
  );
});
