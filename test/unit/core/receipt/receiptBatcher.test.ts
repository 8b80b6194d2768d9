import { describe, expect, test } from "@jest/globals";
import { ReceiptBatcher, type ReceiptBatcherLimits } from "../../../../src/core/receipt/receiptBatcher.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { MessageId, NewInboxRow } from "../../../../src/model/rows.ts";
import { eventually } from "../../../support/eventually.ts";
import { settle } from "../../../support/manualTime.ts";
import { MemoryInbox } from "../../../support/memoryInbox.ts";
import { recordingLog } from "../../../support/recorders.ts";

function row(key: string, payload = "{}"): NewInboxRow {
  return {
    id: key as MessageId,
    source: "orders",
    idempotencyKey: key,
    aggregateId: null,
    eventType: null,
    payload,
    state: "pending",
    consumption: "push",
    correlationId: null,
    headers: {},
    lastError: null,
  };
}

function setup(limits: Partial<ReceiptBatcherLimits> = {}) {
  const store = new MemoryInbox();
  const { log, lines } = recordingLog();
  return { store, lines, batcher: new ReceiptBatcher(store, log, limits) };
}

const sizes = (store: MemoryInbox) => store.calls.map((rows) => rows.length);
const keys = (count: number) => Array.from({ length: count }, (_, i) => `k${i}`);

describe("the receipt batcher", () => {
  test("stores the rows of one turn of the event loop in one insert and answers each", async () => {
    const { store, batcher } = setup();
    const outcomes = await Promise.all([batcher.add(row("a")), batcher.add(row("b")), batcher.add(row("a"))]);
    expect(outcomes).toEqual([{ kind: "stored" }, { kind: "stored" }, { kind: "duplicate" }]);
    expect(sizes(store)).toEqual([3]);
  });

  test("gathers what comes during an insert, and sends it when that is done", async () => {
    const { store, batcher } = setup({ stuckAfterMs: 60_000 });
    const release = store.hold();
    const first = batcher.add(row("first"));
    await eventually(() => expect(sizes(store)).toEqual([1]));
    const rest = Promise.all(keys(10).map((key) => batcher.add(row(key))));
    release();
    await Promise.all([first, rest]);
    expect(sizes(store)).toEqual([1, 10]);
  });

  test("sends the next insert before it answers for the last one", async () => {
    const { store, batcher } = setup({ stuckAfterMs: 60_000 });
    const release = store.hold();
    const sizesAtAnswer: number[][] = [];
    const first = batcher.add(row("first")).then(() => sizesAtAnswer.push(sizes(store)));
    await eventually(() => expect(sizes(store)).toEqual([1]));
    const rest = batcher.add(row("second"));
    release();
    await Promise.all([first, rest]);
    expect(sizesAtAnswer).toEqual([[1, 1]]);
  });

  test("few rows do not wait for ever for inserts that hang, and no more than the given number hang", async () => {
    const { store, batcher } = setup({ maxInFlightWhenStuck: 3, stuckAfterMs: 20 });
    const release = store.hold();
    const all: Promise<unknown>[] = [];
    for (const expected of [[1], [1, 1], [1, 1, 1]]) {
      all.push(batcher.add(row(`k${expected.length}`)));
      await eventually(() => expect(sizes(store)).toEqual(expected));
    }
    all.push(batcher.add(row("late")), batcher.add(row("later")));
    await settle();
    expect(sizes(store)).toEqual([1, 1, 1]);
    release();
    await Promise.all(all);
    expect(sizes(store)).toEqual([1, 1, 1, 2]);
  });

  test("what waits for inserts that end in time leaves with the end of one, not with the time", async () => {
    const { store, batcher } = setup({ stuckAfterMs: 60_000 });
    const release = store.hold();
    const first = batcher.add(row("first"));
    await eventually(() => expect(sizes(store)).toEqual([1]));
    const second = batcher.add(row("second"));
    await settle();
    expect(sizes(store)).toEqual([1]);
    release();
    await Promise.all([first, second]);
  });

  test("keeps to the byte limit of an insert, and lets a single larger row go alone", async () => {
    const { store, batcher } = setup({ maxBytes: 5000 });
    const lengths = [1500, 1400, 9000, 100, 2000];
    await Promise.all(lengths.map((length, i) => batcher.add(row(`k${i}`, "x".repeat(length)))));
    expect(store.calls.map((rows) => rows.map(({ payload }) => payload.length))).toEqual([
      [1500, 1400],
      [9000],
      [100, 2000],
    ]);
  });

  test("refuses at once what would wait beyond the byte budget, and takes rows again when the queue is sent", async () => {
    const { store, batcher } = setup({ maxWaitingBytes: 10_000, stuckAfterMs: 60_000 });
    const release = store.hold();
    const running = batcher.add(row("running"));
    await eventually(() => expect(store.calls).toHaveLength(1));
    const payload = "x".repeat(5000);
    const waiting = batcher.add(row("waiting", payload));
    await expect(batcher.add(row("too much", payload))).rejects.toMatchObject({
      name: "StoreError",
      code: "unavailable",
    });
    release();
    await Promise.all([running, waiting]);
    await expect(batcher.add(row("again", payload))).resolves.toEqual({ kind: "stored" });
  });

  test("gives a failed insert's error to every caller of the batch, logs it once, and goes on", async () => {
    const { store, batcher, lines } = setup();
    const driverError = new Error('invalid input: "PAYLOAD-TEXT"');
    store.fault = { reject: new StoreError("unavailable", "inbox.insert: connection lost", { cause: driverError }) };
    const results = await Promise.allSettled(keys(3).map((key) => batcher.add(row(key))));
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
    expect(lines).toEqual([
      {
        level: "error",
        message: "received messages could not be stored",
        fields: { rows: 3, code: "unavailable", reason: "inbox.insert: connection lost" },
      },
    ]);
    store.fault = undefined;
    await expect(batcher.add(row("later"))).resolves.toEqual({ kind: "stored" });
  });

  test("tells of the rows of an insert after its commit, and of none that failed", async () => {
    const store = new MemoryInbox();
    const stored: string[][] = [];
    const batcher = new ReceiptBatcher(store, recordingLog().log, {
      onStored: (rows) => stored.push(rows.map(({ idempotencyKey }) => idempotencyKey)),
    });
    store.fault = { reject: new Error("no database") };
    await batcher.add(row("failed")).catch(() => {});
    store.fault = undefined;
    await Promise.all([batcher.add(row("a")), batcher.add(row("b"))]);
    expect(stored).toEqual([["a", "b"]]);
  });
});

describe("the rows of one request", () => {
  test("are one insert, whatever its size and whatever else waits", async () => {
    const { store, batcher } = setup({ maxInFlightWhenStuck: 1, maxRows: 2, maxBytes: 10 });
    const release = store.hold();
    const before = batcher.add(row("before"));
    await eventually(() => expect(store.calls).toHaveLength(1));
    const waiting = batcher.add(row("waiting"));
    const request = batcher.addRequest(
      keys(5).map((key) => row(key)),
      false,
    );
    const after = batcher.add(row("after"));
    release();
    expect(await request).toEqual(keys(5).map(() => ({ kind: "stored" })));
    await Promise.all([before, waiting, after]);
    const stored = store.calls.map((rows) => rows.map(({ idempotencyKey }) => idempotencyKey));
    expect(stored).toEqual([["before"], ["waiting"], keys(5), ["after"]]);
  });

  test("are refused together where too much waits, and while nothing does are taken at any size", async () => {
    const { store, batcher } = setup({ maxInFlightWhenStuck: 1, maxWaitingBytes: 3000 });
    const release = store.hold();
    const first = batcher.addRequest(
      keys(5).map((key) => row(key)),
      false,
    );
    await expect(batcher.addRequest([row("more")], false)).rejects.toMatchObject({ code: "unavailable" });
    release();
    expect(await first).toHaveLength(5);
  });

  test("are inserted all or none where the source says so, and fail together", async () => {
    const { log } = recordingLog();
    const fail = () => Promise.reject(new StoreError("other", "down"));
    const refuse = async () => [{ kind: "stored" }, { kind: "refused", reason: "no" }] as const;
    const batcher = new ReceiptBatcher({ insert: fail, insertAllOrNone: refuse }, log);
    const rows = [row("a"), row("b")];
    expect(await batcher.addRequest(rows, true)).toEqual(await refuse());
    await expect(batcher.addRequest(rows, false)).rejects.toThrow("down");
  });
});

describe("closing the receipt batcher", () => {
  test("logs what a rule of the table refuses, which is answered with a failure of the storage", async () => {
    const { log, lines } = recordingLog();
    const insert = async () => [{ kind: "refused", reason: "not this one", mayPassLater: true }] as const;
    const batcher = new ReceiptBatcher({ insert, insertAllOrNone: insert }, log);
    await batcher.add(row("a"));
    expect(lines).toMatchObject([{ level: "error", fields: { reason: "not this one" } }]);
  });

  test("waits for everything that was taken and refuses the rest", async () => {
    const { store, batcher } = setup({ maxRows: 1, stuckAfterMs: 60_000 });
    const release = store.hold();
    const taken = Promise.all(keys(3).map((key) => batcher.add(row(key))));
    let closed = false;
    const closing = batcher.close().then(() => {
      closed = true;
    });
    await expect(batcher.add(row("late"))).rejects.toMatchObject({ code: "unavailable" });
    await eventually(() => expect(store.calls).toHaveLength(1));
    expect(closed).toBe(false);
    release();
    await closing;
    expect(store.rows).toHaveLength(3);
    await taken;
    await batcher.close();
  });
});
