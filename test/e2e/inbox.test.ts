import { request as httpRequest } from "node:http";
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

const orders = { idempotencyKeyPath: "$.id", aggregateIdPath: "$.key", topic: "orders.{{ source }}" };
const sources = {
  guarded: { ...orders, path: "/guarded", auth: { type: "bearer", token: "open-sesame-1" } },
  filtered: { ...orders, path: "/filtered", filter: { require: [{ header: "X-Kind", equals: "order" }] } },
  headed: {
    path: "/headed",
    idempotencyKeyHeader: "X-Event-Id",
    eventTypeHeader: "X-Kind",
    aggregateIdHeader: "X-Account",
    topic: "orders.{{ eventType }}",
  },
  listed: {
    path: "/listed",
    idempotencyKeyPath: ["$.id", "$.event.id"],
    eventTypePath: ["$.type", "$.event.type"],
    aggregateIdPath: ["$.account", "$.event.account"],
    topic: "orders.{{ eventType }}",
  },
  limited: { ...orders, path: "/limited", rateLimit: { requestsPerMinute: 1 } },
};

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  service = await services.start({ database, config: ordersTo(receiver, { sources }) });
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

  test("202 for the same idempotency key at another source", async () => {
    const id = `both-${count}`;
    await service.post({ id, type: "created" });
    const headers = { authorization: "bearer open-sesame-1" };
    expect((await service.post({ id }, { path: "/inbox/guarded", headers })).status).toBe(202);
  });

  test("202 and 200 by the first path of each list that finds a value", async () => {
    const post = (body: object) => service.post(body, { path: "/inbox/listed" });
    const nested = { event: { id: "l-1", type: "paid", account: "a-l" } };
    expect([(await post(nested)).status, (await post({ id: "l-1", type: "other" })).status]).toEqual([202, 200]);
    expect((await post({ id: null })).json()).toMatchObject({
      error: expect.stringContaining("at $.id: found null; no idempotency key at $.event.id: found nothing"),
    });
    await eventually(async () =>
      expect(await database.query("SELECT topic, payload FROM outbox WHERE key = 'a-l'")).toEqual([
        { topic: "orders.paid", payload: JSON.stringify(nested) },
      ]),
    );
  });

  test("202 and 200 by the key in a header, with type and aggregate in others", async () => {
    const headers = { "x-event-id": "e-1", "x-kind": "paid", "x-account": "a-1" };
    const post = (body: object, more = {}) =>
      service.post(body, { path: "/inbox/headed", headers: { ...headers, ...more } });
    expect([(await post({ n: 1 })).status, (await post({ n: 2 })).status]).toEqual([202, 200]);
    expect((await post({ n: 3 }, { "x-event-id": "" })).json()).toMatchObject({
      error: expect.stringContaining("in header X-Event-Id: found an empty text"),
    });
    await eventually(async () =>
      expect(await database.query("SELECT topic, payload FROM outbox WHERE key = 'a-1'")).toEqual([
        { topic: "orders.paid", payload: '{"n":1}' },
      ]),
    );
  });

  test("202 filtered, without a row, for a message that the header filter drops", async () => {
    const before = await stored();
    const dropped = await service.post(
      { id: `f-${count}` },
      { path: "/inbox/filtered", headers: { "x-kind": "Order" } },
    );
    expect([dropped.status, dropped.json()]).toEqual([202, { status: "filtered" }]);
    expect(await stored()).toBe(before);
    const passed = await service.post(
      { id: `f-${count}` },
      { path: "/inbox/filtered", headers: { "x-kind": "order" } },
    );
    expect(passed.json()).toHaveProperty("messageId");
  });

  test("400 for a body that is not JSON", async () => {
    const answer = await service.post("{ id: 1 }", { headers: { "content-type": "application/json" } });
    expect([answer.status, answer.json()]).toEqual([400, { error: "Invalid JSON" }]);
  });

  test("400 with the reason when the idempotency key path finds nothing", async () => {
    const answer = await service.post({ type: "created" });
    expect(answer.status).toBe(400);
    expect((answer.json() as { error: string }).error).toMatch(/\$\.id/);
  });

  test("401 without a word about the credential when authentication fails, and stores nothing", async () => {
    const before = await stored();
    for (const authorization of [undefined, "Bearer wrong-sesame-2", "Basic open-sesame-1"]) {
      const headers = authorization === undefined ? {} : { authorization };
      const answer = await service.post({ id: `g-${count}` }, { path: "/inbox/guarded", headers });
      expect(answer.status).toBe(401);
      expect((answer.json() as { error: string }).error).not.toMatch(/sesame/);
    }
    expect(await stored()).toBe(before);
  });

  test("413 for a body above the cap, announced or counted as it comes", async () => {
    const body = Buffer.alloc(MAX_BODY_BYTES + 1, "x");
    const expected = [413, { error: `Request body exceeds ${MAX_BODY_BYTES} bytes` }];
    const announced = await service.post(body);
    expect([announced.status, announced.json()]).toEqual(expected);
    const counted = await postChunked(service.port, "/inbox/orders", body);
    expect([counted.status, JSON.parse(counted.text)]).toEqual(expected);
  });

  test("429 without a body, with Retry-After, over the source's rate", async () => {
    expect((await service.post({ id: "l-1" }, { path: "/inbox/limited" })).status).toBe(202);
    const answer = await service.post({ id: "l-2" }, { path: "/inbox/limited" });
    expect([answer.status, answer.text]).toEqual([429, ""]);
    expect(Number(answer.headers["retry-after"])).toBeGreaterThanOrEqual(1);
  });

  test("404 for a path that no source has, and 405 for another method", async () => {
    expect((await service.post({ id: "x" }, { path: "/inbox/nowhere" })).status).toBe(404);
    expect((await service.post({ id: "x" }, { path: "/inbox/orders/" })).status).toBe(404);
    expect((await service.get("/inbox/orders")).status).toBe(405);
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

/** Sends a body of unannounced length. */
function postChunked(port: number, path: string, body: Buffer): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ host: "127.0.0.1", port, path, method: "POST", agent: false });
    request.once("error", reject);
    request.once("response", async (response) => {
      let text = "";
      for await (const chunk of response) text += chunk;
      resolve({ status: response.statusCode ?? 0, text });
    });
    request.setHeader("transfer-encoding", "chunked");
    request.end(body);
  });
}
