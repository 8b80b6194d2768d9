import { describe, expect, test } from "@jest/globals";
import { httpPlan } from "../../../../src/core/receipt/attributes.ts";
import { createReceiver, type ReceiverOptions, type SourceStage } from "../../../../src/core/receipt/receive.ts";
import type { InsertResult, NewInboxRow } from "../../../../src/model/rows.ts";
import { ManualClock, recordingJournal, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

type Batcher = ReceiverOptions["batcher"];

function setup({ add, ...overrides }: Partial<Omit<ReceiverOptions, "batcher"> & Pick<Batcher, "add">> = {}) {
  const rows: NewInboxRow[] = [];
  const { metrics, calls } = recordingMetrics();
  const receiver = createReceiver({
    source: "orders",
    settings: { consumption: "push" },
    attributes: httpPlan({
      idempotencyKeyPath: "$.id",
      eventTypePath: "$.type",
      aggregateIdPath: "$.order",
    }),
    batcher: {
      add:
        add ??
        (async (row) => {
          rows.push(row);
          return { kind: "stored" };
        }),
      addRequest: async (all) => {
        rows.push(...all);
        return all.map(() => ({ kind: "stored" }));
      },
    },
    clock: new ManualClock(),
    metrics,
    log: recordingLog().log,
    ...overrides,
  });
  const accept = (body: string | Buffer) =>
    receiver.accept({ body: Buffer.from(body), headers: { "X-Trace": "1" }, correlationId: "c-1" });
  return { receiver, rows, calls, accept };
}

describe("a received message", () => {
  test("is stored byte for byte with its attributes", async () => {
    const { accept, rows, calls } = setup();
    const body =
      ' {"id":"a", "n":12345678901234567890,"f":1.0,"u":"\\u0000\\ud800é","type":"order.created","order":7}\n';
    const outcome = await accept(body);
    expect(outcome).toEqual({ kind: "stored", id: expect.stringMatching(UUID_V7) });
    expect(rows).toEqual([
      {
        id: outcome.kind === "stored" && outcome.id,
        source: "orders",
        idempotencyKey: "a",
        aggregateId: "7",
        eventType: "order.created",
        payload: body,
        state: "pending",
        consumption: "push",
        correlationId: "c-1",
        headers: { "X-Trace": "1" },
        lastError: null,
      },
    ]);
    expect(calls).toEqual(["inboxMessages(new, 1)"]);
  });

  test("without a value for the configured aggregate id is counted", async () => {
    const withPath = setup({ settings: { consumption: "push", aggregateIdPath: ["$.order"] } });
    await withPath.accept('{"id":"a","order":7}');
    await withPath.accept('{"id":"b"}');
    await withPath.accept("{}");
    expect(withPath.calls.filter((call) => call.includes("Aggregate"))).toEqual(["inboxWithoutAggregateId(orders)"]);
    const without = setup();
    await without.accept('{"id":"b"}');
    expect(without.calls).toEqual(["inboxMessages(new, 1)"]);
  });

  test.each([
    ["no JSON", Buffer.from("{")],
    ["empty", Buffer.from("")],
    ["a byte order mark in the middle", Buffer.from('{"id":\ufeff1}')],
    ["a raw NUL", Buffer.from('{"id":"a\0"}')],
    ["bytes that are not UTF-8", Buffer.from([0x7b, 0x22, 0x69, 0x64, 0x22, 0x3a, 0x22, 0xff, 0x22, 0x7d])],
    ["a surrogate pair in six bytes", Buffer.from([0x22, 0xed, 0xa0, 0x80, 0xed, 0xb0, 0x80, 0x22])],
  ])("is rejected when its body has %s", async (_, body) => {
    const { accept, rows, calls } = setup();
    expect(await accept(body)).toMatchObject({ kind: "rejected", rejection: "invalid_json" });
    expect(rows).toEqual([]);
    expect(calls).toEqual(["inboxRejection(extraction_failed)"]);
  });

  test("a row that a rule of the table turns away is a failed storage: its sender may send it again", async () => {
    const refused: InsertResult = { kind: "refused", reason: "not this one", mayPassLater: true };
    const { accept, calls } = setup({ add: async () => refused });
    expect(await accept('{"id":1}')).toEqual({ kind: "unavailable", reason: "not this one" });
    expect(calls).toEqual(["inboxRejection(storage_failed)"]);
  });
});

describe("the header filter of a source", () => {
  test("counts what it drops", () => {
    const { receiver, calls } = setup({
      settings: { consumption: "push", filter: { require: [{ header: "x-kind", equals: "order" }] } },
    });
    expect(receiver.filter?.({ "X-Kind": "order" })).toBe(true);
    expect(receiver.filter?.({})).toBe(false);
    receiver.drop(() => {
      throw new Error("nobody needs the message without a journal");
    });
    expect(calls).toEqual(["inboxFiltered()"]);
  });

  test("notes what it drops in the journal, as duplicates are", async () => {
    const { journal, noted } = recordingJournal();
    const { receiver, accept } = setup({
      settings: { consumption: "push", filter: { require: [{ header: "x-kind", equals: "order" }] } },
      add: async () => ({ kind: "duplicate" }),
      journal,
    });
    receiver.drop(() => ({ body: Buffer.from('{"id":"a"}'), headers: {}, correlationId: "c" }));
    await accept('{"id":"b"}');
    expect(noted).toEqual([
      { filtered: "orders", idempotencyKey: "a", correlationId: "c" },
      { duplicate: "orders", idempotencyKey: "b", correlationId: "c-1" },
    ]);
  });
});

describe("the source transform", () => {
  test("sees the message and replaces what is stored", async () => {
    const seen: unknown[] = [];
    const stage: SourceStage = async (body, context) => {
      seen.push(body, context);
      return { kind: "replaced", payload: '{"b":2}' };
    };
    const { accept, rows } = setup({ stage });
    await accept('{"id":"a","type":"t"}');
    expect(rows[0]).toMatchObject({ payload: '{"b":2}', idempotencyKey: "a", eventType: "t" });
    expect(seen).toEqual([
      '{"id":"a","type":"t"}',
      {
        messageId: rows[0]?.id,
        source: "orders",
        eventType: "t",
        idempotencyKey: "a",
        timestamp: "2024-01-01T00:00:00.000Z",
        headers: { "X-Trace": "1" },
      },
    ]);
  });
});

describe("a request of more messages than are prepared at a time", () => {
  const requestOf = (count: number) =>
    Array.from({ length: count }, (_, id) => ({
      body: Buffer.from(JSON.stringify({ id })),
      headers: {},
      correlationId: null,
      position: id,
    }));

  test("is refused as busy with the first of them or not at all: the others wait for the evaluator", async () => {
    let evaluated = 0;
    let room = 64;
    const stage: SourceStage = async (_, __, refusable) => {
      if (refusable !== false && evaluated >= room) return { kind: "unavailable", reason: "busy too many wait" };
      evaluated += 1;
      return { kind: "unchanged" };
    };
    const { receiver, rows } = setup({ stage });
    const receipts = await receiver.acceptRequest(requestOf(200), false);
    expect(receipts.filter(({ kind }) => kind === "stored")).toHaveLength(200);
    expect(rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(
      requestOf(200).map(({ position }) => `${position}`),
    );

    [evaluated, room] = [0, 63];
    const refused = await receiver.acceptRequest(requestOf(200), false);
    expect(new Set(refused.map(({ kind }) => kind))).toEqual(new Set(["busy"]));
    expect([evaluated, rows.length]).toEqual([63, 200]);
  });

  test("is left to its sender when it waits longer than a request may take", async () => {
    const clock = new ManualClock();
    let evaluated = 0;
    const stage: SourceStage = async () => {
      evaluated += 1;
      clock.advance(1000);
      return { kind: "unchanged" };
    };
    const { receiver, rows } = setup({ stage, clock, requestTimeoutMs: 100_000 });
    const receipts = await receiver.acceptRequest(requestOf(300), false);
    expect(receipts).toHaveLength(300);
    expect(receipts[0]).toEqual({
      kind: "busy",
      reason: "its messages waited longer than 100000 ms for their transforms",
    });
    expect([evaluated, rows.length]).toEqual([128, 0]);
  });
});
