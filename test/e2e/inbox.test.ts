import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import type { Receiver } from "../support/receiver.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const MAX_BODY_BYTES = 1_048_576;

const services = useServices("block");
let database: TestDatabase;
let receiver: Receiver;
let service: Service;
let count = 0;

const headed = {
  path: "/headed",
  idempotencyKeyHeader: "X-Event-Id",
  eventTypeHeader: "X-Kind",
  aggregateIdHeader: "X-Account",
  topic: "orders.{{ eventType }}",
};

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  service = await services.start({ database, config: ordersTo(receiver, { sources: { headed } }) });
});

beforeEach(() => {
  count += 1;
});

const stored = async (): Promise<number> => Number((await database.query("SELECT count(*) AS n FROM inbox"))[0]?.n);

describe("POST to an HTTP source answers", () => {
  test("202 with the id of the new row", async () => {
    const answer = await service.post({ id: `new-${count}`, type: "created" });
    expect(answer.status).toBe(202);
    const { messageId, ...rest } = answer.json() as { messageId: string };
    expect(rest).toEqual({});
    const rows = await database.query("SELECT source, idempotency_key FROM inbox WHERE id = $1", [messageId]);
    expect(rows).toEqual([{ source: "orders", idempotency_key: `new-${count}` }]);
  });

  test("200 for an idempotency key that the source holds, and keeps the first body", async () => {
    const id = `twice-${count}`;
    await service.post({ id, type: "created", n: 1 });
    const answer = await service.post({ id, type: "created", n: 2 });
    expect([answer.status, answer.json()]).toEqual([200, { status: "duplicate" }]);
    const rows = await database.query("SELECT payload FROM inbox WHERE idempotency_key = $1", [id]);
    expect(rows).toEqual([{ payload: JSON.stringify({ id, type: "created", n: 1 }) }]);
  });

  test("202 and 200 by the key in a header, with type and aggregate in others", async () => {
    const headers = { "x-event-id": "e-1", "x-kind": "paid", "x-account": "a-1" };
    const post = (body: object, more = {}) =>
      service.post(body, { path: "/inbox/headed", headers: { ...headers, ...more } });
    expect([(await post({ n: 1 })).status, (await post({ n: 2 })).status]).toEqual([202, 200]);
    expect((await post({ n: 3 }, { "x-event-id": "" })).json()).toMatchObject({
      error: expect.stringContaining("no idempotency key in header X-Event-Id"),
    });
    await eventually(async () =>
      expect(await database.query("SELECT topic, payload FROM outbox WHERE key = 'a-1'")).toEqual([
        { topic: "orders.paid", payload: '{"n":1}' },
      ]),
    );
  });
});

test("POST answers 500 when the database does not take the message, and 202 when it does again", async () => {
  await database.query("ALTER TABLE inbox RENAME TO inbox_away");
  try {
    const answer = await service.post({ id: "kept-by-its-sender", type: "created" });
    expect([answer.status, answer.json()]).toEqual([500, { error: "Storage failed" }]);
  } finally {
    await database.query("ALTER TABLE inbox_away RENAME TO inbox");
  }
  expect((await service.post({ id: "kept-by-its-sender", type: "created" })).status).toBe(202);
  await eventually(() => expect(receivedIds()).toContain("kept-by-its-sender"), { timeoutMs: 20_000 });
});

const message = (fields: object) => JSON.stringify({ type: "created", ...fields });
const padded = (bytes: number) => {
  const frame = message({ id: `size-${bytes}`, pad: "" });
  return message({ id: `size-${bytes}`, pad: "x".repeat(bytes - frame.length) });
};
const nested = (depth: number) =>
  `{"id":"deep-${depth}","type":"created","v":${"[".repeat(depth)}${"]".repeat(depth)}}`;

/** What may come in, and what becomes of it: a stored row that is delivered, or a refusal. */
const ODD_INPUT: readonly (readonly [what: string, body: string | Buffer, status: number])[] = [
  ["an empty body", "", 400],
  ["a body that is not JSON", "<order id='1'/>", 400],
  ["half a body", '{"id":"half","ty', 400],
  ["a scalar", '"id"', 400],
  ["null", "null", 400],
  ["a NUL byte between tokens", Buffer.from('{"id":\0"nul-1"}'), 400],
  ["a NUL byte inside a string", Buffer.from('{"id":"nul-2","v":"\0"}'), 400],
  ["an escaped NUL in a value", '{"id":"nul-3","type":"created","v":"\\u0000"}', 202],
  ["an escaped NUL in the idempotency key", '{"id":"nul-4\\u0000","type":"created"}', 202],
  ["an escaped NUL in the aggregate id", '{"id":"nul-5","key":"k\\u0000","type":"created"}', 400],
  ["an escaped NUL in the event type", '{"id":"nul-6","type":"t\\u0000"}', 400],
  [
    "bytes that are no UTF-8",
    Buffer.concat([Buffer.from('{"id":"utf-1","v":"'), Buffer.of(0xc3, 0x28), Buffer.from('"}')]),
    400,
  ],
  [
    "an encoded surrogate",
    Buffer.concat([Buffer.from('{"id":"utf-2","v":"'), Buffer.of(0xed, 0xa0, 0x80), Buffer.from('"}')]),
    400,
  ],
  ["a byte order mark between tokens", `{"id":\ufeff"bom"}`, 400],
  ["a lone surrogate in a value", '{"id":"lone-1","type":"created","v":"\\ud800"}', 202],
  ["a lone surrogate in the idempotency key", '{"id":"lone-2\\udc00","type":"created"}', 202],
  ["an idempotency key of 10 kB", message({ id: "k".repeat(10_240) }), 202],
  ["an idempotency key that is an object", message({ id: { a: 1 } }), 400],
  ["an aggregate id of 10 kB", message({ id: "aggregate", key: "k".repeat(10_240) }), 400],
  ["an event type of 10 kB", message({ id: "event", type: "t".repeat(10_240) }), 400],
  ["a number that no double holds", '{"id":123456789012345678901234567890,"type":"created"}', 202],
  ["a __proto__ key", '{"__proto__":{"id":"x"},"id":"proto","type":"created"}', 202],
  ["exactly the largest body", padded(MAX_BODY_BYTES), 202],
  ["one byte more", padded(MAX_BODY_BYTES + 1), 413],
  ["nesting 10,000 deep", nested(10_000), 202],
  ["nesting 100,000 deep", nested(100_000), 202],
];

const receivedIds = () =>
  receiver.requests.filter(({ body }) => body.length < 200).map(({ headers }) => String(headers["x-idempotency-key"]));

describe("input that nobody meant to send ends as a delivered row or a clean refusal, and harms nobody behind it:", () => {
  test.each(ODD_INPUT)("%s", async (_what, body, status) => {
    const before = await stored();
    const answer = await service.post(body);
    expect([answer.status, answer.text.length < 1000 && answer.json()]).toEqual([status, expect.any(Object)]);
    expect(await stored()).toBe(before + (status === 202 ? 1 : 0));
    const next = `next-${count}`;
    expect((await service.post({ id: next, type: "created" })).status).toBe(202);
    await eventually(() => expect(receivedIds()).toContain(next));
    if (status === 202) {
      const sent = Buffer.from(body);
      await eventually(() => expect(receiver.requests.some((request) => request.body.equals(sent))).toBe(true));
    }
  });

  test("nothing of it is dead or left behind", async () => {
    await eventually(async () => {
      expect(await database.query("SELECT state, count(*)::int FROM inbox GROUP BY 1")).toEqual([
        { state: "processed", count: await stored() },
      ]);
      expect(await database.query("SELECT state, count(*)::int FROM outbox GROUP BY 1")).toEqual([
        { state: "sent", count: await stored() },
      ]);
    });
    expect((await service.readiness()).verdict).toBe("healthy");
  });
});
