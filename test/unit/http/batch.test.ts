import { describe, expect, test } from "@jest/globals";
import { httpPlan } from "../../../src/core/receipt/attributes.ts";
import type { SourceStage } from "../../../src/core/receipt/receive.ts";
import { StoreError } from "../../../src/model/errors.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { startHttp } from "./harness.ts";

failOnLeaks();

const NDJSON = { "Content-Type": "application/x-ndjson" };
const lines = (...items: readonly unknown[]) => items.map((item) => JSON.stringify(item)).join("\n");

interface Item {
  readonly status: number;
  readonly body: Readonly<Record<string, string>>;
}

/** The answer of a batch; `what` has the status and what is in the body of each item, without its id. */
async function answerOf(response: Response) {
  const { items, ...rest } = (await response.json()) as { readonly items?: readonly Item[] };
  const what = items?.map(({ status, body }) => [status, body.messageId === undefined ? body : "an id"]);
  return { status: response.status, ...rest, items: what };
}

describe("a request with several messages", () => {
  test.each(["application/x-ndjson", "application/ndjson", "Application/X-NDJSON; charset=utf-8"])(
    "in lines (%s) stores each in order, with the headers and the correlation id of the request",
    async (type) => {
      await using http = await startHttp();
      const headers = { "Content-Type": type, "X-Correlation-Id": "c-1", "X-Trace": "t" };
      const response = await http.post(`${lines({ id: "a", order: 1 }, { id: "b", order: 1 })}\n`, headers);
      expect(response.headers.get("x-correlation-id")).toBe("c-1");
      expect(await answerOf(response)).toEqual({
        status: 202,
        items: [
          [202, "an id"],
          [202, "an id"],
        ],
      });
      const rows = http.store.rows;
      expect(rows.map(({ payload }) => payload)).toEqual(['{"id":"a","order":1}', '{"id":"b","order":1}']);
      expect(rows[0] !== undefined && rows[1] !== undefined && rows[0].id < rows[1].id).toBe(true);
      expect(rows.map(({ correlationId }) => correlationId)).toEqual(["c-1", "c-1"]);
      expect(Object.entries(rows[0]?.headers ?? {}).map(([name]) => name.toLowerCase())).toContain("x-trace");
      expect(Object.entries(rows[0]?.headers ?? {}).map(([name]) => name.toLowerCase())).not.toContain("content-type");
      expect(http.store.calls).toHaveLength(1);
      expect(http.calls).toEqual(["inboxMessages(new, 1)", "inboxMessages(new, 1)"]);
    },
  );

  test("gives each message what it would have got alone", async () => {
    await using http = await startHttp({ stage: refusing("c") });
    await http.post('{"id":"a"}');
    const body = [lines({ id: "a" }, { id: "b" }, { id: "b" }), "{", lines({ no: "id" }, { id: "c" }), "é"].join("\n");
    expect(await answerOf(await http.post(Buffer.from(body, "latin1"), NDJSON))).toEqual({
      status: 207,
      items: [
        [200, { status: "duplicate" }],
        [202, "an id"],
        [200, { status: "duplicate" }],
        [400, { error: "Invalid JSON" }],
        [400, { error: expect.stringContaining("no idempotency key at $.id") }],
        [422, { error: "Transform failed: no" }],
        [400, { error: "Invalid JSON" }],
      ],
    });
    expect(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["a", "b"]);
  });

  test("that holds nothing new, or nothing at all, gets a 200, and one in which all is refused the first refusal", async () => {
    await using http = await startHttp();
    await http.post('{"id":"a"}');
    expect((await http.post('{"id":"a"}', NDJSON)).status).toBe(200);
    expect(await answerOf(await http.post("\n \r\n", NDJSON))).toEqual({ status: 200, items: [] });
    expect(await answerOf(await http.post("{\n[", NDJSON))).toEqual({
      status: 400,
      error: "item 0: Invalid JSON",
      items: [
        [400, { error: "Invalid JSON" }],
        [400, { error: "Invalid JSON" }],
      ],
    });
  });

  test("has more than may be taken", async () => {
    await using http = await startHttp({ route: { batch: { atomic: false, maxItems: 2 } } });
    const response = await http.post(lines({ id: 1 }, { id: 2 }, { id: 3 }), NDJSON);
    expect([response.status, await response.text()]).toEqual([
      413,
      '{"error":"The batch has more than 2 items; send several requests"}',
    ]);
    expect(http.store.rows).toEqual([]);
    expect(http.calls).toEqual(["inboxRejection(extraction_failed)"]);
  });

  test("must be sent again if the database fails or a transform cannot run", async () => {
    await using http = await startHttp();
    http.store.fault = { reject: new StoreError("other", "down") };
    expect(await answerOf(await http.post(`${lines({ id: 1 })}\n{`, NDJSON))).toEqual({
      status: 500,
      error: "Storage failed",
      items: [
        [500, { error: "Storage failed" }],
        [400, { error: "Invalid JSON" }],
      ],
    });
    await using busy = await startHttp({
      stage: async (body) => (body.includes("9") ? { kind: "unavailable", reason: "busy" } : { kind: "unchanged" }),
    });
    const response = await busy.post(lines(...Array.from({ length: 70 }, (_, id) => ({ id }))), NDJSON);
    expect([response.status, response.headers.get("retry-after")]).toEqual([503, "1"]);
    expect((await answerOf(response)).items).toHaveLength(70);
    expect(busy.store.rows).toEqual([]);
  });

  test("whose key is in a header gives it, with its position, to each message without a key of its own", async () => {
    const attributes = httpPlan({ idempotencyKeyHeader: "X-Key", idempotencyKeyPath: "$.id" });
    await using http = await startHttp({ attributes });
    await http.post(lines({ id: "own" }, { a: 1 }, { a: 2 }), { ...NDJSON, "X-Key": "k" });
    expect(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["own", "joined:k:1", "joined:k:2"]);
  });
});

test("an item of a batch is not taken for a message whose key is that of the batch and a number", async () => {
  await using http = await startHttp({ attributes: httpPlan({ idempotencyKeyHeader: "X-Key" }) });
  const single = (key: string) => http.post('{"n":0}', { "X-Key": key });
  for (const key of ["order:1", "joined:order:1"]) expect((await single(key)).status).toBe(202);
  const batch = await http.post(lines({ n: 1 }, { n: 2 }), { ...NDJSON, "X-Key": "order" });
  expect((await answerOf(batch)).items).toEqual([
    [202, "an id"],
    [202, "an id"],
  ]);
  expect(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual([
    "order:1",
    expect.stringMatching(/^sha256:/),
    "joined:order:0",
    "joined:order:1",
  ]);
  expect(await (await single("joined:order:1")).json()).toEqual({ status: "duplicate" });
});

describe("a list in a JSON document", () => {
  const route = { batch: { path: "$.events[*]", atomic: false, maxItems: 10 } };

  test("is split if the source says so, whatever the content type", async () => {
    await using http = await startHttp({ route });
    const response = await http.post('{"sent":"now","events":[{"id":1.50},{"id":2}]}', {
      "Content-Type": "text/plain",
    });
    expect((await answerOf(response)).status).toBe(202);
    expect(http.store.rows.map(({ payload }) => payload)).toEqual(['{"id":1.50}', '{"id":2}']);
  });

  test.each([
    ["{", "Invalid JSON"],
    ['{"id":1}', "no list of messages at $.events"],
  ])("is missing in %s", async (body, error) => {
    await using http = await startHttp({ route });
    const response = await http.post(body);
    expect([response.status, await response.json()]).toEqual([400, { error }]);
  });
});

describe("a batch of CloudEvents", () => {
  const BATCH = { "Content-Type": "application/cloudevents-batch+json; charset=utf-8" };
  const event = (id: string, data: unknown) => ({ specversion: "1.0", id, source: "/s", type: "t", data });

  test("becomes a message each of their data", async () => {
    const route = { cloudEvents: true };
    await using http = await startHttp({ route, attributes: httpPlan({ cloudEvents: true }) });
    const response = await http.post(JSON.stringify([event("a", { n: 1 }), { id: "b" }, event("a", 2)]), BATCH);
    expect(await answerOf(response)).toEqual({
      status: 207,
      items: [
        [202, "an id"],
        [400, { error: expect.stringContaining("not a CloudEvent") }],
        [200, { status: "duplicate" }],
      ],
    });
    expect(http.store.rows).toMatchObject([{ payload: '{"n":1}', idempotencyKey: "a", eventType: "t" }]);
  });
});

describe("with atomic", () => {
  const route = { batch: { atomic: true, maxItems: 10 } };

  test("one refused message keeps all of its request out", async () => {
    await using http = await startHttp({ route });
    expect(await answerOf(await http.post(`${lines({ id: 1 })}\n{\n${lines({ id: 2 })}`, NDJSON))).toEqual({
      status: 400,
      error: "item 1: Invalid JSON",
      items: [
        [424, { error: "not stored: another item of this batch was refused" }],
        [400, { error: "Invalid JSON" }],
        [424, { error: "not stored: another item of this batch was refused" }],
      ],
    });
    expect(http.store.calls).toEqual([]);
    expect(http.calls).toEqual(["inboxRejection(extraction_failed)"]);
  });

  test("a duplicate does not", async () => {
    await using http = await startHttp({ route });
    await http.post('{"id":1}');
    expect((await http.post(lines({ id: 1 }, { id: 2 }), NDJSON)).status).toBe(202);
    expect(http.store.rows).toHaveLength(2);
  });
});

/** Refuses the messages that hold a text. */
const refusing =
  (text: string): SourceStage =>
  async (body) =>
    body.includes(`"${text}"`) ? { kind: "rejected", reason: "no" } : { kind: "unchanged" };
