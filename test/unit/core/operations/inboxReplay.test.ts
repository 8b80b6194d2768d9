import { describe, expect, test } from "@jest/globals";
import { BROKER_SOURCE_KINDS } from "../../../../src/adapters/kinds.ts";
import { InboxReplay } from "../../../../src/core/operations/inboxReplay.ts";
import type { ReplayRequest } from "../../../../src/core/operations/replayRequest.ts";
import { brokerPlan } from "../../../../src/core/receipt/attributes.ts";
import type { SourceOptions } from "../../../../src/core/receipt/receive.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { MessageId, NewInboxRow } from "../../../../src/model/rows.ts";
import type { InboxMessage } from "../../../../src/ports/messageStore.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";
import { SETTINGS } from "../receipt/intakeSetup.ts";

const idOf = (n: number): MessageId => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}` as MessageId;

/** A dead row, received at second n. */
const deadRow = (n: number, rest: Partial<InboxMessage> = {}): InboxMessage => ({
  id: idOf(n),
  source: "events",
  idempotencyKey: `key-${n}`,
  aggregateId: null,
  eventType: null,
  state: "dead",
  consumption: "push",
  correlationId: "c",
  processedAt: null,
  attempt: 0,
  createdAt: new Date(n * 1000),
  scheduledAt: null,
  claimedAt: null,
  leaseUntil: null,
  isClaimed: false,
  lastError: "the source transform failed",
  headers: {},
  payload: `{"id":${n}}`,
  ...rest,
});

function setup(rows: readonly InboxMessage[], source: Partial<SourceOptions> = {}) {
  const written: (NewInboxRow & { readonly cell?: string | undefined })[] = [];
  const pages: (string | null)[] = [];
  const failures = new Map<MessageId, StoreError>();
  const replay = new InboxReplay({
    messages: {
      async get(id) {
        const inbox = rows.find((row) => row.id === id);
        return { now: new Date(0), inbox, outbox: undefined, deliveries: [], cell: "b" };
      },
      async inboxPage({ source }, before, limit) {
        pages.push(before);
        const found = rows.filter((row) => source === undefined || row.source === source).toReversed();
        const from = before === null || before.includes("T") ? 0 : Number(before);
        const page = found.slice(from, from + limit);
        return {
          rows: page.map((row) => ({
            ...row,
            table: "inbox",
            ...{ position: "", destination: null, expandedTo: null, messageId: null },
            topic: row.eventType,
            key: row.aggregateId,
          })),
          next: from + limit < found.length ? String(from + limit) : null,
        };
      },
    },
    store: {
      async receiveAgain(row) {
        const failure = failures.get(row.id);
        if (failure !== undefined) throw failure;
        written.push(row);
        return true;
      },
    },
    sources: () => [
      {
        source: "events",
        settings: { consumption: "push" },
        attributes: brokerPlan(SETTINGS, BROKER_SOURCE_KINDS.kafka.attributes),
        keepsRefused: true,
        clock: new ManualClock(),
        metrics: recordingMetrics().metrics,
        log: recordingLog().log,
        ...source,
      },
    ],
    redact: (text) => text.replaceAll("hunter2", "***"),
  });
  const run = async (request: ReplayRequest = { source: "events" }) => {
    const left: string[] = [];
    let moved = 0;
    for await (const batch of replay.moves(request, (statement) => statement())) {
      moved += batch.changed;
      if (batch.refusal !== undefined) left.push(batch.refusal);
    }
    return { moved, left };
  };
  return { replay, run, written, pages, failures };
}

const transform: SourceOptions["stage"] = async (text) => ({ kind: "replaced", payload: `[${text}]` });

const REFUSED = "its source refuses it again: see its last_error";

describe("a dead inbox row is received again", () => {
  test("under its stored key, with what its source reads and makes of it now", async () => {
    const row = deadRow(1, { payload: '{"id":"other","type":"t","order":7}' });
    const { run, written } = setup([row], { stage: transform });
    expect(await run()).toEqual({ moved: 1, left: [] });
    expect(written).toMatchObject([
      {
        id: row.id,
        cell: "b",
        state: "pending",
        lastError: null,
        idempotencyKey: "key-1",
        eventType: "t",
        aggregateId: "7",
        payload: '[{"id":"other","type":"t","order":7}]',
      },
    ]);
  });

  test("with its stored type and aggregate if the message alone does not have them, as the key of a Kafka record", async () => {
    const { run, written } = setup([deadRow(1, { aggregateId: "record-key", eventType: "stored" })]);
    await run();
    expect(written).toMatchObject([{ aggregateId: "record-key", eventType: "stored", payload: '{"id":1}' }]);
  });

  test.each([
    ["in base64", Buffer.from('{"id":1}').toString("base64"), ""],
    ["in base64, in a JSON string", `"${Buffer.from('{"id":1}').toString("base64")}"`, ", the headers are left out"],
  ])("%s from its bytes", async (_, payload, end) => {
    const lastError = `the database cannot hold this message: no; the payload is its bytes in base64${end}`;
    const { run, written } = setup([deadRow(1, { payload, lastError })]);
    expect(await run()).toEqual({ moved: 1, left: [] });
    expect(written).toMatchObject([{ payload: '{"id":1}', state: "pending" }]);
  });

  test("and stays dead with the new reason if it is refused again; its payload is still known to be in base64", async () => {
    const base64 = { payload: "/w==", lastError: "bad; the payload is its bytes in base64" };
    const { run, written } = setup([deadRow(1), deadRow(2, base64)], {
      stage: async () => ({ kind: "rejected", reason: "no hunter2" }),
    });
    const notJson = "the body is not a JSON document in UTF-8; the payload is its bytes in base64";
    expect(await run()).toEqual({
      moved: 0,
      left: [`${idOf(1)}: ${REFUSED}`, `${idOf(2)}: ${REFUSED}`],
    });
    expect(written).toMatchObject([
      { state: "dead", payload: '{"id":1}', lastError: "no ***" },
      { state: "dead", payload: "/w==", lastError: notJson },
    ]);
  });

  test.each([
    ["its topic rendered empty", { lastError: "the topic template renders empty" }, {}],
    ["it expired", { lastError: "expired: it was not delivered in time" }, {}],
    ["the outbox refused it", { lastError: "the outbox table refuses this message: no" }, {}],
    ["pull clients gave it up", { attempt: 5, lastError: "no" }, {}],
    ["it came over HTTP, which keeps nothing refused", { lastError: "source removed" }, { keepsRefused: false }],
  ])("without a second transform if it had been accepted: %s", async (_, row, source) => {
    const { run, written } = setup([deadRow(1, row)], { stage: transform, ...source });
    expect(await run()).toEqual({ moved: 1, left: [] });
    expect(written).toMatchObject([{ payload: '{"id":1}', state: "pending", lastError: null }]);
  });

  test("reads attributes of an accepted row if no transform may have changed it", async () => {
    const row = deadRow(1, { lastError: "the topic template renders empty", payload: '{"id":1,"type":"t"}' });
    const { run, written } = setup([row]);
    await run();
    expect(written).toMatchObject([{ eventType: "t" }]);
  });
});

describe("a dead inbox row is left, and named", () => {
  test("if the filter of its source excludes it, or there is no such source", async () => {
    const filter = { exclude: [{ header: "x-test", exists: true }] };
    const rows = [deadRow(1, { headers: { "X-Test": "1" } }), deadRow(2, { source: "gone" }), deadRow(3)];
    const { run, written } = setup(rows, { settings: { consumption: "push", filter } });
    expect(await run({ state: "dead" })).toEqual({
      moved: 1,
      left: [
        `${idOf(1)}: the filter of its source excludes it`,
        `${idOf(2)}: the configuration lacks its source "gone"`,
      ],
    });
    expect(written.map(({ id }) => id)).toEqual([idOf(3)]);
  });

  test("with the later ones of its key if it may be written later; others are written", async () => {
    const inKey = { aggregateId: "a" };
    const { run, failures, written } = setup([deadRow(1, inKey), deadRow(2, { aggregateId: "b" }), deadRow(3, inKey)]);
    failures.set(idOf(1), new StoreError("contention", "locked"));
    expect(await run()).toEqual({
      moved: 1,
      left: [`${idOf(1)}: locked`, `${idOf(3)}: an earlier row of its key could not be replayed: repeat the replay`],
    });
    expect(written.map(({ id }) => id)).toEqual([idOf(2)]);
  });

  test("alone if the table refuses it for good", async () => {
    const { run, failures } = setup([deadRow(1, { aggregateId: "a" }), deadRow(2, { aggregateId: "a" })]);
    failures.set(idOf(1), new StoreError("refused", "no"));
    expect(await run()).toEqual({ moved: 1, left: [`${idOf(1)}: no`] });
  });
});

describe("dead inbox rows are found", () => {
  test("in pages from the newest one on, and replayed in the order of their receipt", async () => {
    const rows = Array.from({ length: 2500 }, (_, n) => deadRow(n));
    const { run, replay, pages, written } = setup(rows);
    const { count, sample, isExact } = await replay.preview({ source: "events" }, 2);
    expect([count, isExact, sample.map(({ id }) => id)]).toEqual([2500, true, [idOf(0), idOf(1)]]);
    expect(written).toEqual([]);
    expect(pages).toEqual([null, "1000", "2000"]);
    expect((await run()).moved).toBe(2500);
    expect(written.map(({ id }) => id)).toEqual(rows.map(({ id }) => id));
  });

  test("from the instant on before which they are to be received", async () => {
    const { run, pages } = setup([deadRow(1)]);
    await run({ createdBefore: "2026-01-05T08:30:00.000000Z" });
    expect(pages).toEqual(["2026-01-05T08:30:00.000000Z 00000000-0000-0000-0000-000000000000"]);
  });

  test("by id, once each and in the order of their receipt, if the other filters match", async () => {
    const rows = [1, 2, 3, 4].map((n) => deadRow(n, n === 4 ? { state: "pending" } : {}));
    const { run, replay, written, pages } = setup(rows);
    const ids = [4, 3, 2, 1, 3, 9].map(idOf);
    expect(await run({ ids, createdAfter: new Date(1000).toISOString() })).toEqual({ moved: 2, left: [] });
    expect(written.map(({ id }) => id)).toEqual([idOf(2), idOf(3)]);
    expect((await run({ ids, createdBefore: new Date(2000).toISOString() })).moved).toBe(1);
    expect(await run({ ids, source: "other" })).toEqual({ moved: 0, left: [] });
    // Nothing of the message itself.
    expect(Object.keys((await replay.preview({ ids }, 1)).sample[0] ?? {}).toSorted()).toEqual(
      "attempt cell createdAt destination id isPinned key lastError sequence state topic".split(" "),
    );
    expect(pages).toEqual([]);
  });
});
