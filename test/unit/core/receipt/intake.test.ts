import { describe, expect, test } from "@jest/globals";
import { BROKER_SOURCE_KINDS } from "../../../../src/adapters/kinds.ts";
import { brokerPlan } from "../../../../src/core/receipt/attributes.ts";
import { recordingJournal } from "../../../support/recorders.ts";
import { message, SETTINGS, setup } from "./intakeSetup.ts";

describe("what a broker tells of a message", () => {
  const origin = { "x-kafka-topic": "orders", "x-kafka-key": null };

  test("is stored among its headers, and no sender can say it instead", async () => {
    const { take, store } = setup();
    const headers = { "X-Kafka-Topic": "forged", "x-kafka-KEY": "forged", "x-tenant": "blue" };
    await take(message('{"id":1}', { headers, origin }));
    expect(store.rows[0]?.headers).toEqual({ "x-tenant": "blue", "x-kafka-topic": "orders" });
  });

  test("can be filtered by, and gives attributes", async () => {
    const filter = { require: [], exclude: [{ header: "x-kafka-topic", equals: "noise" }] };
    const attributeHeaders = { ...SETTINGS.attributeHeaders, aggregateId: "x-kafka-topic" };
    const { take, store } = setup({
      settings: { consumption: "push", filter },
      attributes: brokerPlan({ ...SETTINGS, attributeHeaders }, BROKER_SOURCE_KINDS.kafka.attributes),
    });
    await take(message('{"id":1}', { origin: { "x-kafka-topic": "noise" } }), message('{"id":2}', { origin }));
    expect(store.rows).toMatchObject([{ idempotencyKey: "2", aggregateId: "orders" }]);
  });
});

describe("an initial delay", () => {
  test("is that of each row, but not of a dead one", async () => {
    const { take, store } = setup({ settings: { consumption: "push", initialDelay: 30_000 } });
    await take(message('{"id":1}'), message("no JSON"));
    expect(store.rows.map(({ state, schedule }) => [state, schedule?.delayMs])).toEqual([
      ["pending", 30_000],
      ["dead", undefined],
    ]);
  });
});

describe("messages that come together", () => {
  test("are stored in one insert, byte for byte, with ids in the order of their arrival", async () => {
    const { take, store, calls } = setup();
    const bodies = Array.from({ length: 50 }, (_, n) => `{ "id":${n}, "n":1.0 }`);
    await take(...bodies.map((body) => message(body)));

    expect(store.calls).toHaveLength(1);
    expect(store.rows.map(({ payload }) => payload)).toEqual(bodies);
    const ids = store.rows.map(({ id }) => id);
    expect(ids).toEqual([...ids].sort());
    expect(calls).toEqual(bodies.map(() => "inboxMessages(new, 1)"));
  });

  test("keep the order of their arrival when their transforms end in another one", async () => {
    const ends: (() => void)[] = [];
    const { take, store } = setup({
      stage: async () => {
        await new Promise<void>((resolve) => ends.push(resolve));
        return { kind: "unchanged" };
      },
    });
    const taken = take(message('{"id":1}'), message('{"id":2}'), message('{"id":3}'));
    for (const end of ends.toReversed()) end();
    await taken;

    expect(store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["1", "2", "3"]);
    const ids = store.rows.map(({ id }) => id);
    expect(ids).toEqual([...ids].sort());
  });

  test("are cut into inserts of at most 500 rows and 8 MiB, one after another", async () => {
    const many = setup();
    await many.take(...Array.from({ length: 1200 }, (_, n) => message(`{"id":${n}}`)));
    expect(many.store.calls.map((rows) => rows.length)).toEqual([500, 500, 200]);

    const large = setup();
    const body = JSON.stringify({ text: "x".repeat(3 * 1024 * 1024) });
    await large.take(...Array.from({ length: 5 }, (_, n) => message(body, { recordKey: String(n) })));
    expect(large.store.calls.map((rows) => rows.length)).toEqual([2, 2, 1]);
  });

  test("that are known already are counted as duplicates", async () => {
    const { take, calls } = setup();
    await take(message('{"id":1}'), message('{"id":1}'));
    expect(calls).toEqual(["inboxMessages(new, 1)", "inboxMessages(duplicate, 1)"]);
  });

  test("are noted in the journal when they are dropped, or known already", async () => {
    const { journal, noted } = recordingJournal();
    const filter = { exclude: [{ header: "X-Test", exists: true as const }] };
    const { take } = setup({ settings: { consumption: "push", filter }, journal });
    const test = { headers: { "x-test": "1", "x-correlation-id": "c-2" }, correlationId: "c-1" };
    const dropped = [
      message('{"id":1}', test),
      message('{"id":1}', { headers: { "x-test": "1" }, correlationId: "c-1" }),
      message("no JSON", { headers: { "x-test": "1" } }),
      message(JSON.stringify({ id: 1, text: "x".repeat(20_000) }), { headers: { "x-test": "1" } }),
    ];
    await take(
      ...dropped,
      message('{"id":2}', { correlationId: "c-3" }),
      message('{"id":2}', { correlationId: "c-4" }),
    );
    expect(noted).toEqual([
      { filtered: "events", idempotencyKey: "1", correlationId: "c-2" },
      { filtered: "events", idempotencyKey: "1", correlationId: "c-1" },
      { filtered: "events", idempotencyKey: null, correlationId: undefined },
      { filtered: "events", idempotencyKey: null, correlationId: undefined },
      { duplicate: "events", idempotencyKey: "2", correlationId: "c-4" },
    ]);
  });
});

describe("a message of a broker", () => {
  test("takes what the body lacks from its headers and properties", async () => {
    const { take, store } = setup();
    const headers = { "X-Event-Type": "order.paid", "X-Trace": "7" };
    await take(message("{}", { headers, recordKey: "order-1", correlationId: "c-1" }));
    expect(store.rows[0]).toMatchObject({
      source: "events",
      idempotencyKey: "order-1",
      aggregateId: "order-1",
      eventType: "order.paid",
      correlationId: "c-1",
      headers,
      state: "pending",
      lastError: null,
    });
  });

  test("has the correlation id of its header, which is not stored twice, else a new one", async () => {
    const { take, store } = setup();
    await take(
      message('{"id":1}', { headers: { "X-CORRELATION-ID": "h-1" }, correlationId: "c-1" }),
      message('{"id":2}'),
    );
    const [first, second] = store.rows;
    expect(first).toMatchObject({ correlationId: "h-1", headers: {} });
    expect(second?.correlationId).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("without a body is stored as null", async () => {
    const { take, store } = setup();
    await take(message(null, { recordKey: "order-1" }));
    expect(store.rows[0]).toMatchObject({ payload: "null", idempotencyKey: "order-1", state: "pending" });
  });

  test("keeps its way when a header holds what no database can", async () => {
    const { take, store } = setup();
    await take(message('{"id":1}', { headers: { "x\0y": "a\0b", "x-half": "\ud800" } }));
    expect(store.rows[0]).toMatchObject({ state: "pending", headers: { "x\ufffdy": "a\ufffdb", "x-half": "\ufffd" } });
  });
});
