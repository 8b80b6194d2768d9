import { createHash } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { BROKER_SOURCE_KINDS } from "../../../../src/adapters/kinds.ts";
import { brokerPlan } from "../../../../src/core/receipt/attributes.ts";
import { createIntake, type IntakeOptions } from "../../../../src/core/receipt/intake.ts";
import { StoppingError, StoreError } from "../../../../src/model/errors.ts";
import type { InsertResult, NewInboxRow } from "../../../../src/model/rows.ts";
import type { BrokerMessage } from "../../../../src/ports/source.ts";
import { MemoryInbox } from "../../../support/memoryInbox.ts";
import { ManualClock, recordingJournal, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const SETTINGS = {
  idempotencyKeyPath: "$.id",
  eventTypePath: "$.type",
  aggregateIdPath: "$.order",
  attributeHeaders: { idempotencyKey: "x-idempotency-key", eventType: "x-event-type", aggregateId: "x-aggregate-id" },
};

function setup(overrides: Partial<IntakeOptions> = {}) {
  const store = new MemoryInbox();
  const { metrics, calls } = recordingMetrics();
  const { log, lines } = recordingLog();
  const waits: number[] = [];
  const intake = createIntake({
    source: "events",
    settings: { consumption: "push" },
    attributes: brokerPlan(SETTINGS, BROKER_SOURCE_KINDS.kafka.attributes),
    insert: (rows) => store.insert(rows),
    async wait(ms, signal) {
      waits.push(ms);
      signal.throwIfAborted();
    },
    redact: (text) => text.replaceAll("hunter2", "***"),
    clock: new ManualClock(),
    random: () => 0,
    metrics,
    log,
    ...overrides,
  });
  const take = (...messages: readonly BrokerMessage[]) => intake.take(messages, new AbortController().signal);
  return { store, calls, lines, waits, intake, take };
}

const message = (body: string | Buffer | null, rest: Partial<BrokerMessage> = {}): BrokerMessage => ({
  body: body === null ? null : Buffer.from(body),
  headers: {},
  ...rest,
});

const POISON_IN_BASE64 = Buffer.from('{"id":2,"poison":1}').toString("base64");

/** The sha256 form in which a key is stored. */
const digest = (bytes: string | Buffer) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

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

  test("identifies a message without another key by its place in a stream", async () => {
    const { take, store } = setup({ attributes: brokerPlan(SETTINGS, BROKER_SOURCE_KINDS.nats.attributes) });
    await take(
      message("{}", { streamPlace: "S:1:9" }),
      message(null, { streamPlace: "S:2:9" }),
      message("{}", { headers: { "Nats-Msg-Id": "n" }, streamPlace: "S:3:9" }),
      message("{}"),
    );
    expect(store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["S:1:9", "S:2:9", "n", digest("{}")]);
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

  test("leave no row when the header filter drops them, and the others are stored", async () => {
    const filter = { exclude: [{ header: "X-Test", exists: true as const }] };
    const { take, store, calls } = setup({ settings: { consumption: "pull", filter } });
    await take(message('{"id":1}', { headers: { "x-test": "1" } }), message('{"id":2}'));
    expect(store.rows).toMatchObject([{ idempotencyKey: "2", consumption: "pull" }]);
    expect(calls).toEqual(["inboxFiltered()", "inboxMessages(new, 1)"]);
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

describe("a message that can never be accepted", () => {
  const text = "no JSON: hunter2";
  const bytes = Buffer.from([0xff, 0xfe, 0x00]);

  test.each<[string, Buffer, string, string]>([
    ["a body that is no JSON", Buffer.from(text), text, "the body is not a JSON document in UTF-8"],
    ["an empty body", Buffer.alloc(0), "", "the body is not a JSON document in UTF-8"],
    [
      "bytes that are no UTF-8",
      bytes,
      bytes.toString("base64"),
      "the body is not a JSON document in UTF-8; the payload is its bytes in base64",
    ],
    [
      "a NUL",
      Buffer.from("a\0"),
      "YQA=",
      "the body is not a JSON document in UTF-8; the payload is its bytes in base64",
    ],
  ])("for %s is stored dead with all there is", async (_, body, payload, lastError) => {
    const { take, store, calls, lines } = setup();
    await take(message(body, { headers: { "x-event-type": "t" } }), message('{"id":2}'));
    const [dead, next] = store.rows;
    expect(dead).toMatchObject({
      state: "dead",
      payload,
      lastError,
      idempotencyKey: digest(body),
      eventType: "t",
      headers: { "x-event-type": "t" },
    });
    expect(next?.state).toBe("pending");
    expect(calls).toEqual(["inboxRejection(extraction_failed)", "inboxMessages(new, 1)"]);
    expect(lines).toMatchObject([{ level: "warn", fields: { source: "events", id: dead?.id } }]);
    expect(JSON.stringify(lines)).not.toContain("hunter2");
  });

  test("because of its aggregate id is stored dead without it", async () => {
    const { take, store } = setup();
    await take(message('{"id":1}', { recordKey: "k".repeat(2000) }));
    expect(store.rows[0]).toMatchObject({ state: "dead", idempotencyKey: "1", aggregateId: null, payload: '{"id":1}' });
    expect(store.rows[0]?.lastError).toContain("2000 characters");
  });

  test("because its transform rejects it is stored dead with the body that came, and a clean reason", async () => {
    const { take, store, calls } = setup({
      stage: async () => ({ kind: "rejected", reason: "cannot use hunter2" }),
    });
    await take(message('{ "id":1 }'));
    expect(store.rows[0]).toMatchObject({ state: "dead", payload: '{ "id":1 }', lastError: "cannot use ***" });
    expect(calls).toEqual(["inboxRejection(transform_failed)"]);
  });

  test("because its transform rejects it, or its type is too long, keeps the attributes that were computed", async () => {
    const { take, store } = setup({
      expressions: async () => ({ kind: "computed", values: { idempotencyKey: "e-1", aggregateId: "a-1" } }),
      stage: async () => ({ kind: "rejected", reason: "no" }),
    });
    await take(message('{"id":1,"type":"t","order":"o"}'));
    expect(store.rows).toMatchObject([{ idempotencyKey: "e-1", eventType: "t", aggregateId: "a-1" }]);
    const unusable = setup({
      expressions: async () => ({
        kind: "computed",
        values: { idempotencyKey: "e-2", eventType: "t".repeat(1025), aggregateId: "a-2" },
      }),
    });
    await unusable.take(message('{"id":1,"type":"t"}'));
    expect(unusable.store.rows).toMatchObject([
      { state: "dead", idempotencyKey: "e-2", eventType: null, aggregateId: "a-2" },
    ]);
  });

  test("because the transform rejects a structured event keeps the attributes of the event", async () => {
    const { take, store } = setup({
      settings: { consumption: "push", cloudEvents: true },
      attributes: brokerPlan({ ...SETTINGS, cloudEvents: true }, BROKER_SOURCE_KINDS.kafka.attributes),
      stage: async () => ({ kind: "rejected", reason: "no" }),
    });
    const event = { specversion: "1.0", id: "e", source: "/s", type: "t", subject: "a", data: {} };
    const headers = { "content-type": "application/cloudevents+json" };
    await take(message(JSON.stringify(event), { headers }));
    expect(store.rows).toMatchObject([{ state: "dead", idempotencyKey: "e", eventType: "t", aggregateId: "a" }]);
  });

  test("is a duplicate when it comes again", async () => {
    const { take, store, calls } = setup();
    await take(message("x"));
    await take(message("x"));
    expect(store.rows).toHaveLength(1);
    expect(calls).toEqual(["inboxRejection(extraction_failed)", "inboxMessages(duplicate, 1)"]);
  });
});

describe("a message that the database refuses", () => {
  /** An insert that refuses the rows of which `refuses` says so. */
  const choosy =
    (store: MemoryInbox, refuses: (row: NewInboxRow) => boolean) => async (rows: readonly NewInboxRow[]) => {
      const taken = await store.insert(rows.filter((row) => !refuses(row)));
      let next = 0;
      return rows.map(
        (row): InsertResult =>
          refuses(row) ? { kind: "refused", reason: "value too long" } : (taken[next++] ?? { kind: "duplicate" }),
      );
    };

  test("is stored dead under the key that was computed for it", async () => {
    const store = new MemoryInbox();
    const { take } = setup({
      insert: choosy(store, (row) => row.state === "pending"),
      expressions: async () => ({ kind: "computed", values: { idempotencyKey: "e-1" } }),
    });
    await take(message('{"id":1,"type":"t"}'));
    expect(store.rows).toMatchObject([{ state: "dead", idempotencyKey: "e-1", eventType: "t" }]);
  });

  test("is stored dead, and its neighbours go their way", async () => {
    const store = new MemoryInbox();
    const { take, calls } = setup({
      insert: choosy(store, (row) => row.state === "pending" && row.idempotencyKey === "2"),
    });
    await take(message('{"id":1}'), message('{"id":2}'), message('{"id":3}'));
    expect(store.rows.map(({ idempotencyKey, state }) => [idempotencyKey, state])).toEqual([
      ["1", "pending"],
      ["3", "pending"],
      ["2", "dead"],
    ]);
    expect(store.rows[2]).toMatchObject({
      payload: '{"id":2}',
      lastError: "the database cannot hold this message: value too long",
    });
    expect(calls.at(-1)).toBe("inboxRejection(storage_failed)");
  });

  test("also as a dead row is stored as one that any table can hold", async () => {
    const store = new MemoryInbox();
    const { take } = setup({ insert: choosy(store, (row) => row.payload.startsWith("{") || row.eventType !== null) });
    await take(message('{"id":1}', { headers: { "x-event-type": "t" } }));
    expect(store.rows).toMatchObject([
      { state: "dead", payload: `"${Buffer.from('{"id":1}').toString("base64")}"`, headers: {}, eventType: null },
    ]);
  });

  test("also as a dead row keeps the key that was computed for it, where the table takes that", async () => {
    const isWhole = (row: NewInboxRow) => row.payload.startsWith("{");
    const expressions = async () => ({ kind: "computed", values: { idempotencyKey: "e-1" } }) as const;
    const store = new MemoryInbox();
    await setup({ insert: choosy(store, isWhole), expressions }).take(message('{"id":1}'));
    const payload = JSON.stringify(Buffer.from('{"id":1}').toString("base64"));
    expect(store.rows).toMatchObject([{ state: "dead", idempotencyKey: "e-1", payload }]);

    const narrow = new MemoryInbox();
    const refusesKey = choosy(narrow, (row) => isWhole(row) || row.idempotencyKey === "e-1");
    await setup({ insert: refusesKey, expressions }).take(message('{"id":1}'));
    expect(narrow.rows).toMatchObject([{ state: "dead", idempotencyKey: digest('{"id":1}'), payload }]);
  });

  test("whatever it becomes is returned, to stay with the broker, and holds up no others", async () => {
    const refused: number[] = [];
    const { take, store, lines, calls } = setup({
      async insert(rows) {
        const isPoison = (row: NewInboxRow) => row.payload.includes("poison") || row.payload.includes(POISON_IN_BASE64);
        refused.push(rows.filter(isPoison).length);
        const stored = await store.insert(rows.filter((row) => !isPoison(row)));
        return rows.map((row) =>
          isPoison(row) ? { kind: "refused", reason: "P0001 hunter2" } : (stored[0] as InsertResult),
        );
      },
    });
    const poison = message('{"id":2,"poison":1}');
    expect(await take(message('{"id":1}'), poison, message('{"id":3}'))).toEqual([poison]);
    expect(store.rows.map(({ payload }) => payload)).toEqual(['{"id":1}', '{"id":3}']);
    // As it is, as a dead row, as a plain row under its key, and as the plainest row.
    expect(refused).toEqual([1, 1, 1, 1]);
    expect(calls).toContain("inboxRejection(storage_failed)");
    expect(lines).toEqual([
      expect.objectContaining({ level: "error", fields: { source: "events", messages: 1, reason: "P0001 ***" } }),
    ]);
    expect(await take(poison)).toEqual([poison]);
  });
});

describe("a message of which a part cannot be read", () => {
  test("is stored as a dead row with its reason, its body and what its broker tells", async () => {
    const { take, store, calls } = setup();
    const origin = { "x-amqp-properties": "AQI=" };
    expect(await take(message('{"id":1}', { undecodable: "the AMQP properties cannot be read", origin }))).toEqual([]);
    expect(store.rows).toMatchObject([
      {
        state: "dead",
        payload: '{"id":1}',
        idempotencyKey: "1",
        headers: { "x-amqp-properties": "AQI=" },
        lastError: "the AMQP properties cannot be read",
      },
    ]);
    expect(calls).toEqual(["inboxRejection(extraction_failed)"]);
  });
});

describe("while the database is away", () => {
  test("messages wait, longer from one try to the next, and are stored when it is back", async () => {
    const store = new MemoryInbox();
    store.fault = { reject: new StoreError("unavailable", "inbox.insert: no connection") };
    const waits: number[] = [];
    const { take, lines, calls } = setup({
      insert: (rows) => store.insert(rows),
      async wait(ms) {
        waits.push(ms);
        if (waits.length === 9) store.fault = undefined;
      },
    });
    await take(message('{"id":1}'));
    expect(waits).toEqual([100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    expect(store.rows).toHaveLength(1);
    expect(lines[0]).toMatchObject({ level: "warn", fields: { reason: "inbox.insert: no connection" } });
    expect(calls).toEqual(["inboxMessages(new, 1)"]);
  });

  test("an insert that does not answer for each message is tried again", async () => {
    const store = new MemoryInbox();
    let inserts = 0;
    const { take, lines } = setup({
      insert: async (rows) => {
        const outcomes = await store.insert(rows);
        inserts += 1;
        return inserts === 1 ? outcomes.slice(1) : outcomes;
      },
    });
    await take(message('{"id":1}'), message('{"id":2}'));
    expect(inserts).toBe(2);
    expect(lines).toMatchObject([{ level: "warn", fields: { reason: "insert of 2 rows answered for 1" } }]);
  });

  test("a stop ends the waiting with its reason, and nothing was taken", async () => {
    const { intake, store } = setup();
    store.fault = { reject: new StoreError("unavailable", "gone") };
    const stopping = new AbortController();
    const reason = new StoppingError();
    const release = store.hold();
    const taken = intake.take([message('{"id":1}')], stopping.signal);
    stopping.abort(reason);
    release();
    await expect(taken).rejects.toBe(reason);
    expect(store.rows).toEqual([]);
  });

  test("an insert that runs when the stop comes still counts", async () => {
    const { intake, store } = setup();
    const release = store.hold();
    const stopping = new AbortController();
    const taken = intake.take([message('{"id":1}')], stopping.signal);
    stopping.abort(new StoppingError());
    release();
    await taken;
    expect(store.rows).toHaveLength(1);
  });

  test("an expression that cannot be run is waited for: its path would give another key", async () => {
    let attempts = 0;
    const { take, store, waits } = setup({
      expressions: async ({ text }) => {
        attempts += 1;
        if (attempts <= 2) return { kind: "unavailable", reason: "no worker" };
        return { kind: "computed", values: { idempotencyKey: `e-${JSON.parse(text).id}` } };
      },
    });
    await take(message('{"id":1}'), message('{"id":2}'));
    expect(waits).toHaveLength(1);
    expect(store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["e-1", "e-2"]);
  });

  test("a transform that cannot be run is waited for, and the order stays", async () => {
    const failed = new Set<string>();
    const { take, store, waits } = setup({
      async stage(body) {
        if (body.includes("1") && failed.size === 0) {
          failed.add(body);
          return { kind: "unavailable", reason: "no worker" };
        }
        return { kind: "unchanged" };
      },
    });
    await take(message('{"id":1}'), message('{"id":2}'));
    expect(waits).toHaveLength(1);
    expect(store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["1", "2"]);
    const ids = store.rows.map(({ id }) => id);
    expect(ids).toEqual([...ids].sort());
  });
});
