import { describe, expect, test } from "@jest/globals";
import type { Journal } from "../../../../src/core/receipt/journal.ts";
import { cellJournal, cellReceipts } from "../../../../src/core/receipt/receiptBatcher.ts";
import { cellOf } from "../../../../src/model/cells.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { InsertResult, MessageId, NewInboxRow } from "../../../../src/model/rows.ts";

const STORED: InsertResult = { kind: "stored" };

function row(key: string, aggregateId: string | null = null): NewInboxRow {
  return {
    id: key as MessageId,
    source: "orders",
    idempotencyKey: key,
    aggregateId,
    eventType: null,
    payload: "{}",
    state: "pending",
    consumption: "push",
    correlationId: null,
    headers: {},
    lastError: null,
  };
}

class Cell {
  readonly calls: string[][] = [];
  readonly atomic: boolean[] = [];
  fault: StoreError | undefined;
  open = true;

  #store(rows: readonly NewInboxRow[]): readonly InsertResult[] {
    if (this.fault !== undefined) throw this.fault;
    this.calls.push(rows.map(({ id }) => id));
    return rows.map(() => STORED);
  }

  readonly isOpen = () => this.open;
  readonly receipts = {
    add: async (each: NewInboxRow): Promise<InsertResult> => this.#store([each])[0] ?? STORED,
    addRequest: async (rows: readonly NewInboxRow[], isAtomic: boolean) => {
      this.atomic.push(isAtomic);
      return this.#store(rows);
    },
  };
  insert = async (rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> => this.#store(rows);
}

function setup() {
  const [a, b] = [new Cell(), new Cell()];
  return { receipts: cellReceipts([a, b]), a, b };
}

/** Of two cells. */
const [A1, A2] = ["k0", "k4"] as const;
const [B1, B2] = ["k1", "k2"] as const;

describe("the cell of a key", () => {
  // Computed by Python and OpenSSL: the cell of a key must never change.
  test.each([
    ["", { 2: 0, 4: 2, 7: 1 }],
    ["order-4711", { 2: 1, 4: 3, 7: 3 }],
    ["größe", { 2: 1, 4: 3, 7: 1 }],
    ["key-0", { 2: 1, 4: 1, 7: 5 }],
    ["😀", { 2: 0, 4: 0, 7: 2 }],
  ])("%j", (key, expected) => {
    expect(Object.fromEntries([2, 4, 7].map((cells) => [cells, cellOf(key, cells)]))).toEqual(expected);
  });
});

describe("receipts of several cells", () => {
  test("go to the cell of the aggregate, else of the idempotency key", async () => {
    const { receipts, a, b } = setup();
    for (const each of [row(A1), row(B1), row("any", A2), row("other", B2)]) await receipts.add(each);
    expect(a.calls).toEqual([[A1], ["any"]]);
    expect(b.calls).toEqual([[B1], ["other"]]);
  });

  test("keep their order within a cell, and the answers that of the rows", async () => {
    const { receipts, a, b } = setup();
    b.insert = async (rows) => rows.map((): InsertResult => ({ kind: "duplicate" }));
    const answers = await receipts.insert([row("1", A1), row("2", B1), row("3", A2), row("4", B2)]);
    expect(answers.map(({ kind }) => kind)).toEqual(["stored", "duplicate", "stored", "duplicate"]);
    expect(a.calls).toEqual([["1", "3"]]);
  });

  test("of a cell that is away, or not opened yet, fail alone", async () => {
    const { receipts, b } = setup();
    b.fault = new StoreError("unavailable", "no connection");
    const away = await receipts.addRequest([row(A1), row(B1)], false);
    expect(away).toEqual([STORED, { kind: "unavailable", reason: "no connection" }]);
    await expect(receipts.add(row(B1))).rejects.toThrow("no connection");

    b.fault = undefined;
    b.open = false;
    const reason = "the cell has not been opened yet";
    expect(await receipts.insert([row(A1), row(B1)])).toEqual([STORED, { kind: "unavailable", reason }]);
    await expect(receipts.add(row(B1))).rejects.toMatchObject({ code: "unavailable", message: reason });
    await expect(receipts.addRequest([row(B1)], true)).rejects.toThrow(reason);
    expect(b.calls).toEqual([]);
    expect(await receipts.add(row(A2))).toEqual(STORED);
  });

  test("that are stored together or not at all must be of one cell", async () => {
    const { receipts, a, b } = setup();
    expect(await receipts.addRequest([row(A1), row(A2)], true)).toEqual([STORED, STORED]);
    expect(a.atomic).toEqual([true]);
    const apart = await receipts.addRequest([row(A1), row(B1)], true);
    expect(apart).toMatchObject([{ kind: "refused" }, { kind: "refused" }]);
    expect([a.calls, b.calls]).toEqual([[[A1, A2]], []]);
  });
});

test("the journals of several cells note a duplicate in the cell of its key, and what was filtered in the first one", () => {
  const noted: string[] = [];
  const journal = (name: string): Journal => ({
    duplicate: ({ idempotencyKey }) => void noted.push(`${name} duplicate ${idempotencyKey}`),
    filtered: (source) => void noted.push(`${name} filtered ${source}`),
  });
  const both = cellJournal([journal("a"), journal("b")]);
  both.duplicate(row(A1));
  both.duplicate(row("x", B1));
  both.filtered("orders", () => ({ idempotencyKey: null, correlationId: undefined }));
  expect(noted).toEqual([`a duplicate ${A1}`, "b duplicate x", "a filtered orders"]);
});
