import { createHash } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { BROKER_SOURCE_KINDS } from "../../../../src/adapters/kinds.ts";
import {
  type AttributeInput,
  type BrokerAttributeSettings,
  brokerPlan,
  httpPlan,
  storedKey,
} from "../../../../src/core/receipt/attributes.ts";
import { JsonDocument } from "../../../../src/core/receipt/jsonDocument.ts";
import type { AttributePlace } from "../../../../src/ports/kinds.ts";
import { extractAttributes } from "../../../support/extraction.ts";

const sha256 = (bytes: string | Buffer) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

function input(text: string, extra: Partial<AttributeInput> = {}): AttributeInput {
  return { body: Buffer.from(text), document: new JsonDocument(text), headers: {}, ...extra };
}

const orderPlan = httpPlan({
  idempotencyKeyPath: "$.id",
  eventTypePath: "$.type",
  aggregateIdPath: "$.order",
});

function keyOf(text: string): string {
  const extraction = extractAttributes(orderPlan, input(text));
  if (extraction.kind === "failed") throw new Error(extraction.reason);
  return extraction.attributes.idempotencyKey;
}

function reasonOf(text: string): string {
  const extraction = extractAttributes(orderPlan, input(text));
  return extraction.kind === "failed" ? extraction.reason : "";
}

test.each(["{}", '{"id":null}', '{"id":""}', '{"id":{"a":1}}', '{"id":["a"]}', "[]", '"text"'])(
  "an HTTP message has no idempotency key in %s",
  (text) => {
    expect(reasonOf(text)).toBe("no idempotency key at $.id: a non-empty string, a number or a boolean is expected");
  },
);

describe("several paths", () => {
  const lists = {
    idempotencyKeyPath: ["$.id", "$.event.id"],
    eventTypePath: ["$.type", "$.event.type"],
    aggregateIdPath: ["$.order", "$.event.order"],
  };

  test("are tried in order; a value that cannot be used counts as none", () => {
    const plan = httpPlan(lists);
    const event = '"event":{"id":2,"type":"b","order":true}';
    const first = `{"id":1,"type":"a","order":"o",${event}}`;
    expect(extractAttributes(plan, input(first))).toMatchObject({
      attributes: { idempotencyKey: "1", eventType: "a", aggregateId: "o" },
    });
    const second = `{"id":{},"type":"","order":null,${event}}`;
    expect(extractAttributes(plan, input(second))).toMatchObject({
      attributes: { idempotencyKey: "2", eventType: "b", aggregateId: "true" },
    });
  });

  test("are all named when none has the key", () => {
    expect(extractAttributes(httpPlan(lists), input('{"id":null}'))).toEqual({
      kind: "failed",
      reason: "no idempotency key at $.id or at $.event.id: a non-empty string, a number or a boolean is expected",
    });
  });
});

describe("configured headers", () => {
  const settings = { idempotencyKeyHeader: "X-Event-Id", eventTypeHeader: "x-kind", aggregateIdHeader: "X-Account" };
  const paths = { idempotencyKeyPath: "$.id", eventTypePath: "$.type", aggregateIdPath: "$.order" };
  const headers = { "x-event-id": "h1", "X-KIND": "h2", "x-account": "h3" };
  const body = '{"id":"b1","type":"b2","order":"b3"}';
  const fromHeaders = { idempotencyKey: "h1", eventType: "h2", aggregateId: "h3" };

  test("win over the body, which counts if they are missing or empty", () => {
    const plan = httpPlan({ ...settings, ...paths });
    expect(extractAttributes(plan, input(body, { headers }))).toMatchObject({ attributes: fromHeaders });
    const some = { headers: { "x-event-id": "", "x-kind": "h2" } };
    expect(extractAttributes(plan, input(body, some))).toMatchObject({
      attributes: { idempotencyKey: "b1", eventType: "h2", aggregateId: "b3" },
    });
  });

  test("win over a provider's place, which stays the next one", () => {
    const plan = httpPlan(settings, { idempotencyKey: [{ path: "$.id" }], eventType: [{ path: "$.type" }] });
    expect(extractAttributes(plan, input(body, { headers }))).toMatchObject({ attributes: fromHeaders });
    expect(extractAttributes(plan, input(body))).toMatchObject({
      attributes: { idempotencyKey: "b1", eventType: "b2" },
    });
  });
});

describe("a number as idempotency key", () => {
  test.each([
    ["17", "17"],
    ["17.0", "17"],
    ["1.7e1", "17"],
    ["-0", "0"],
    ["0.000001", "0.000001"],
    ["9007199254740991", "9007199254740991"],
  ])("%s is %s, whatever else stands in the document", (text, key) => {
    expect(keyOf(`{"id":${text}}`)).toBe(key);
    expect(keyOf(`{"trace":"0af7651916cd43dd8448eb211c80319c","n":[1e5,12345678901234567890],"id":${text}}`)).toBe(key);
  });

  test("is exact beside a value that is nested 100,000 deep", () => {
    const deep = `${"[".repeat(100_000)}1e5${"]".repeat(100_000)}`;
    expect(keyOf(`{"deep":${deep},"id":12345678901234567891}`)).toBe("12345678901234567891");
  });
});

describe("the stored form of an idempotency key", () => {
  test("is a digest if the key begins as derived ones do, or ends in a space", () => {
    for (const key of [sha256("{}"), "sha256:", "joined:a:1", "key ", "key  "])
      expect(storedKey(key)).toBe(sha256(key));
    for (const key of ["sha256", "joined", "x-joined:a", "Joined:a", " key", "a:1"]) expect(storedKey(key)).toBe(key);
  });

  test("of a key that a sender gives is never that of a body without one", () => {
    const plan = httpPlan({}, { idempotencyKey: [{ header: "X-Key" }, { digest: "body" }] });
    const keyWith = (headers = {}) => extractAttributes(plan, input("{}", { headers }));
    expect(keyWith()).toMatchObject({ attributes: { idempotencyKey: sha256("{}") } });
    expect(keyWith({ "X-Key": sha256("{}") })).toMatchObject({ attributes: { idempotencyKey: sha256(sha256("{}")) } });
  });
});

describe("attributes of a broker message", () => {
  const settings: BrokerAttributeSettings = {
    idempotencyKeyPath: "$.id",
    eventTypePath: "$.type",
    aggregateIdPath: "$.order",
    attributeHeaders: {
      idempotencyKey: "x-idempotency-key",
      eventType: "x-event-type",
      aggregateId: "x-aggregate-id",
    },
  };
  const headers = { "X-Idempotency-Key": "h1", "X-Event-Type": "h2", "X-Aggregate-Id": "h3", "nats-msg-id": "n1" };
  const properties = { messageId: "m1", recordKey: "r1" };
  const keyFrom = (kind: "rabbitmq" | "kafka" | "nats", text: string, extra: Partial<AttributeInput>) => {
    const extraction = extractAttributes(
      brokerPlan(settings, BROKER_SOURCE_KINDS[kind].attributes),
      input(text, extra),
    );
    return extraction.kind === "extracted" ? extraction.attributes : extraction.reason;
  };

  test.each(["rabbitmq", "kafka", "nats"] as const)(
    "of %s take the key header before the body, the rest after",
    (kind) => {
      expect(keyFrom(kind, '{"id":"b1","type":"b2","order":"b3"}', { headers, properties })).toEqual({
        idempotencyKey: "h1",
        eventType: "b2",
        aggregateId: "b3",
      });
      expect(keyFrom(kind, '{"id":"b1"}', { headers, properties })).toEqual({
        idempotencyKey: "h1",
        eventType: "h2",
        aggregateId: "h3",
      });
    },
  );

  test.each([
    ["rabbitmq", "m1"],
    ["kafka", "r1"],
    ["nats", "n1"],
  ] as const)("of %s fall back to the broker's own id, then to a digest of the body", (kind, ownId) => {
    const extra = { headers: { "nats-msg-id": "n1", "x-idempotency-key": "" }, properties };
    expect(keyFrom(kind, '{"id":"b1"}', extra)).toMatchObject({ idempotencyKey: "b1" });
    expect(keyFrom(kind, "{}", extra)).toMatchObject({ idempotencyKey: ownId });
    expect(keyFrom(kind, "{}", {})).toMatchObject({ idempotencyKey: sha256("{}") });
  });

  test("of kafka take the record key as aggregate id last", () => {
    expect(keyFrom("kafka", "{}", { properties })).toMatchObject({ aggregateId: "r1" });
    expect(keyFrom("rabbitmq", "{}", { properties })).toMatchObject({ aggregateId: null });
  });
});

describe("attributes of a webhook", () => {
  const own = {
    idempotencyKey: [
      { joined: [{ header: "X-Topic" }, { header: "X-Event" }] },
      { each: ["id", "at"] },
      { digest: "body" },
    ] satisfies AttributePlace[],
    eventType: [{ path: "$.type" }, { header: "X-Topic" }] satisfies AttributePlace[],
  };
  const read = (text: string, headers = {}, settings = {}) => {
    const extraction = extractAttributes(httpPlan(settings, own), input(text, { headers }));
    return extraction.kind === "extracted" ? extraction.attributes : extraction.reason;
  };

  test("are in the provider's places, the first that has one", () => {
    const headers = { "x-topic": "paid", "X-Event": "e-1" };
    expect(read("{}", headers)).toMatchObject({ idempotencyKey: "joined:paid:e-1", eventType: "paid" });
    expect(read('{"type":"t"}', { "x-topic": "paid" })).toMatchObject({
      idempotencyKey: sha256('{"type":"t"}'),
      eventType: "t",
    });
  });

  test("put together keep their ends: other values have another key, however long", () => {
    const keyWith = (topic: string, event: string) =>
      (read("{}", { "x-topic": topic, "x-event": event }) as { readonly idempotencyKey: string }).idempotencyKey;
    expect(keyWith("a:b", "c")).toBe("joined:a%3Ab:c");
    const keys = [
      ["a:b", "c"],
      ["a", "b:c"],
      ["a%3Ab", "c"],
      ["a", "b%3Ac"],
      ["a", "b c"],
    ] as const;
    expect(new Set(keys.map(([topic, event]) => keyWith(topic, event))).size).toBe(keys.length);
    const long = `joined:a:${"x".repeat(255)}`;
    expect(keyWith("a", "x".repeat(255))).toBe(sha256(Buffer.concat([Buffer.of(0xfe), Buffer.from(long)])));
    expect(storedKey(long)).toBe(sha256(long));
  });

  test("a configured path counts instead of them", () => {
    const headers = { "x-topic": "paid", "x-event": "e-1" };
    const settings = { idempotencyKeyPath: "$.id", eventTypePath: "$.kind" };
    expect(read('{"id":1}', headers, settings)).toMatchObject({ idempotencyKey: "1", eventType: null });
    expect(read("{}", headers, settings)).toContain("no idempotency key at $.id");
  });

  test("a batch has the key of its items, whatever else is in it, to the digit and in their order", () => {
    const batch = (...ids: readonly (number | string)[]) => `[${ids.map((id) => `{"id":${id},"at":"x"}`).join()}]`;
    const keyOfBatch = (text: string) => (read(text) as { readonly idempotencyKey: string }).idempotencyKey;
    expect(keyOfBatch(batch(1))).toBe("joined:1:x");
    expect(keyOfBatch('[{"id":1,"at":"x","attempt":2}]')).toBe("joined:1:x");
    const keys = [batch(1, 2), batch(2, 1), batch(1), batch(1, 2, 3), batch('"1"', 2)].map(keyOfBatch);
    expect(new Set(keys).size).toBe(keys.length);
    expect(keyOfBatch(batch("12345678901234567890", 1))).not.toBe(keyOfBatch(batch("12345678901234567891", 1)));
    // Without a key of every item, the body alone tells batches apart.
    for (const text of ['[{"id":1,"at":"x"},{"id":2}]', "[]", '[{"id":{},"at":"x"}]', "[1]"]) {
      expect(keyOfBatch(text)).toBe(sha256(text));
    }
  });
});
