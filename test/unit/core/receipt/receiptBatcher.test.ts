import { describe, expect, test } from "@jest/globals";
import { ReceiptBatcher } from "../../../../src/core/receipt/receiptBatcher.ts";
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

function setup() {
  const store = new MemoryInbox();
  const { log, lines } = recordingLog();
  const stored: string[][] = [];
  const onStored = (rows: readonly NewInboxRow[]) => stored.push(rows.map(({ idempotencyKey }) => idempotencyKey));
  return { store, lines, stored, batcher: new ReceiptBatcher(store, log, onStored) };
}

const MIB = 1024 * 1024;
const sizes = (store: MemoryInbox) => store.calls.map((rows) => rows.length);
const keys = (count: number) => Array.from({ length: count }, (_, i) => `k${i}`);
const request = (count: number) => keys(count).map((key) => row(key));

describe("the receipt batcher", () => {
  test("stores the rows of one turn of the event loop in one insert, answers each, and tells of them", async () => {
    const { store, stored, batcher } = setup();
    const outcomes = await Promise.all([batcher.add(row("a")), batcher.add(row("b")), batcher.add(row("a"))]);
    expect(outcomes).toEqual([{ kind: "stored" }, { kind: "stored" }, { kind: "duplicate" }]);
    expect(sizes(store)).toEqual([3]);
    expect(stored).toEqual([["a", "b", "a"]]);
  });

  test("gathers what comes during an insert, and sends it before it answers for that insert", async () => {
    const { store, batcher } = setup();
    const release = store.hold();
    const sizesAtAnswer: number[][] = [];
    const first = batcher.add(row("first")).then(() => sizesAtAnswer.push(sizes(store)));
    await eventually(() => expect(sizes(store)).toEqual([1]));
    const rest = Promise.all(keys(10).map((key) => batcher.add(row(key))));
    release();
    await Promise.all([first, rest]);
    expect(sizesAtAnswer).toEqual([[1, 10]]);
  });

  test("few rows do not wait for ever for inserts that hang, and no more than four hang", async () => {
    const { store, batcher } = setup();
    const release = store.hold();
    const all: Promise<unknown>[] = [];
    for (const expected of [[1], [1, 1], [1, 1, 1], [1, 1, 1, 1]]) {
      all.push(batcher.add(row(`k${expected.length}`)));
      await eventually(() => expect(sizes(store)).toEqual(expected));
    }
    all.push(batcher.add(row("late")), batcher.add(row("later")));
    await settle();
    expect(sizes(store)).toEqual([1, 1, 1, 1]);
    release();
    await Promise.all(all);
    expect(sizes(store)).toEqual([1, 1, 1, 1, 2]);
  });

  test("keeps to the limits of an insert, and lets a single larger row go alone", async () => {
    const { store, batcher } = setup();
    const lengths = [3 * MIB, 4 * MIB, 9 * MIB, 100, 2000];
    await Promise.all(lengths.map((length, i) => batcher.add(row(`k${i}`, "x".repeat(length)))));
    expect(store.calls.map((rows) => rows.map(({ payload }) => payload.length))).toEqual([
      [3 * MIB, 4 * MIB],
      [9 * MIB],
      [100, 2000],
    ]);
    await Promise.all(keys(501).map((key) => batcher.add(row(`n${key}`))));
    expect(sizes(store).slice(3)).toEqual([500, 1]);
  });

  test("refuses at once what would wait beyond the byte budget, and takes rows again when the queue is sent", async () => {
    const { store, batcher } = setup();
    const release = store.hold();
    const payload = "x".repeat(40 * MIB);
    const waiting = batcher.addRequest([row("a", payload), row("b", payload)], false);
    for (const more of [batcher.add(row("more")), batcher.addRequest([row("more")], false)]) {
      await expect(more).rejects.toMatchObject({ name: "StoreError", code: "unavailable" });
    }
    release();
    expect(await waiting).toHaveLength(2);
    await expect(batcher.add(row("again"))).resolves.toEqual({ kind: "stored" });
  });

  test("gives a failed insert's error to every caller of the batch, logs it once, and continues", async () => {
    const { store, stored, batcher, lines } = setup();
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
    expect(stored).toEqual([["later"]]);
  });

  test("logs what a rule of the table refuses, which is answered with a failure of the storage", async () => {
    const { log, lines } = recordingLog();
    const insert = async () => [{ kind: "refused", reason: "not this one", mayPassLater: true }] as const;
    const batcher = new ReceiptBatcher({ insert, insertAllOrNone: insert }, log);
    await batcher.add(row("a"));
    expect(lines).toMatchObject([{ level: "error", fields: { reason: "not this one" } }]);
  });
});

describe("the rows of one request", () => {
  test("are one insert, whatever its size and whatever else waits", async () => {
    const { store, batcher } = setup();
    const release = store.hold();
    const before = batcher.add(row("before"));
    await eventually(() => expect(store.calls).toHaveLength(1));
    const all = [batcher.add(row("waiting")), batcher.addRequest(request(600), false), batcher.add(row("after"))];
    release();
    await Promise.all([before, ...all]);
    expect(sizes(store)).toEqual([1, 1, 600, 1]);
  });

  test("are inserted all or none if the source says so, and fail together", async () => {
    const { log } = recordingLog();
    const fail = () => Promise.reject(new StoreError("other", "down"));
    const refuse = async () => [{ kind: "stored" }, { kind: "refused", reason: "no" }] as const;
    const batcher = new ReceiptBatcher({ insert: fail, insertAllOrNone: refuse }, log);
    expect(await batcher.addRequest(request(2), true)).toEqual(await refuse());
    await expect(batcher.addRequest(request(2), false)).rejects.toThrow("down");
  });
});

test("closing the receipt batcher waits for everything that was taken and refuses the rest", async () => {
  const { store, batcher } = setup();
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
