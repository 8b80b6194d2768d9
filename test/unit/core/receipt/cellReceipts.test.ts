import { describe, expect, test } from "@jest/globals";
import { type Buckets, CellJournal, CellReceipts } from "../../../../src/core/receipt/cellReceipts.ts";
import type { Journal } from "../../../../src/core/receipt/journal.ts";
import { bucketOf } from "../../../../src/model/cells.ts";
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

/** A cell that stores nothing of a bucket that is not open in it. */
class Cell {
  readonly calls: string[][] = [];
  readonly open: (bucket: number) => boolean;
  fault: StoreError | undefined;

  constructor(open: (bucket: number) => boolean) {
    this.open = open;
  }

  #store(rows: readonly NewInboxRow[]): readonly InsertResult[] {
    if (this.fault !== undefined) throw this.fault;
    if (!rows.every(({ bucket }) => bucket !== undefined && this.open(bucket)))
      throw new StoreError("elsewhere", "a bucket is not open here");
    this.calls.push(rows.map(({ id }) => id));
    return rows.map(() => STORED);
  }

  readonly receipts = {
    add: async (each: NewInboxRow): Promise<InsertResult> => this.#store([each])[0] ?? STORED,
    addRequest: async (rows: readonly NewInboxRow[], isAtomic: boolean) => {
      this.atomic.push(isAtomic);
      return this.#store(rows);
    },
  };
  readonly atomic: boolean[] = [];
  readonly insert = async (rows: readonly NewInboxRow[]) => this.#store(rows);
}

/** Two cells: `a` has the even buckets, `b` the odd ones, until a test moves them. */
function setup() {
  const owner = new Map<number, string | undefined>();
  const ownerOf = (bucket: number) => (owner.has(bucket) ? owner.get(bucket) : bucket % 2 === 0 ? "a" : "b");
  const cells = { a: new Cell((bucket) => ownerOf(bucket) === "a"), b: new Cell((bucket) => ownerOf(bucket) === "b") };
  /** As the process knows it: what was so at the last refresh. */
  let known = new Map<number, string | undefined>();
  const time = { now: 0 };
  const waits: number[] = [];
  const refreshes: (() => void)[] = [];
  const buckets: Buckets = {
    cellOf(bucket) {
      const cell = known.has(bucket) ? known.get(bucket) : bucket % 2 === 0 ? "a" : "b";
      return cell === undefined ? { reason: `bucket ${bucket} moves` } : { cell };
    },
    async refresh() {
      refreshes.shift()?.();
      known = new Map(owner);
    },
  };
  const receipts = new CellReceipts({
    cells: new Map(Object.entries(cells)),
    buckets,
    clock: { monotonic: () => time.now },
    async wait(ms) {
      waits.push(ms);
      time.now += ms;
    },
  });
  const move = (key: string, to: string | undefined) => owner.set(bucketOf(key), to);
  return { receipts, cells, move, waits, refreshes };
}

// Found once; they are stable.
const IN_A = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"].filter((key) => bucketOf(key) % 2 === 0);
const IN_B = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"].filter((key) => bucketOf(key) % 2 === 1);
const [A1 = "", A2 = ""] = IN_A;
const [B1 = "", B2 = ""] = IN_B;

describe("the bucket of a key", () => {
  // Computed by another program: the bucket of a key must never change.
  test.each([
    ["", 66],
    ["order-4711", 475],
    ["größe", 615],
  ])("%j", (key, bucket) => expect(bucketOf(key)).toBe(bucket));
});

describe("receipts of several cells", () => {
  test("go to the cell of the aggregate, else of the idempotency key", async () => {
    const { receipts, cells } = setup();
    await receipts.add(row(A1));
    await receipts.add(row(B1));
    await receipts.add(row("any", A2));
    await receipts.add(row("other", B2));
    expect(cells.a.calls).toEqual([[A1], ["any"]]);
    expect(cells.b.calls).toEqual([[B1], ["other"]]);
  });

  test("follow a bucket that has moved", async () => {
    const { receipts, cells, move } = setup();
    move(A1, "b");
    expect(await receipts.add(row(A1))).toEqual(STORED);
    expect(await receipts.insert([row(A1), row(A2)])).toEqual([STORED, STORED]);
    expect([cells.a.calls, cells.b.calls]).toEqual([[[A2]], [[A1], [A1]]]);
  });

  test("wait for the end of a move", async () => {
    const { receipts, cells, move, refreshes, waits } = setup();
    move(A1, undefined);
    refreshes.push(
      () => {},
      () => {},
      () => move(A1, "b"),
    );
    expect(await receipts.add(row(A1))).toEqual(STORED);
    expect(cells.b.calls).toEqual([[A1]]);
    expect(waits).toEqual([100, 100]);
  });

  test("are unavailable when the move takes longer than ten seconds", async () => {
    const { receipts, move, waits } = setup();
    move(A1, undefined);
    await expect(receipts.add(row(A1))).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("moves"),
    });
    expect(waits.reduce((sum, ms) => sum + ms, 0)).toBe(10_000);
  });

  test("keep their order within a bucket, and the answers that of the rows", async () => {
    const { receipts, cells } = setup();
    const rows = [row("1", A1), row("2", B1), row("3", A1), row("4", B1)];
    expect(await receipts.insert(rows)).toEqual([STORED, STORED, STORED, STORED]);
    expect([cells.a.calls, cells.b.calls]).toEqual([[["1", "3"]], [["2", "4"]]]);
  });

  test("of a cell that is away fail alone", async () => {
    const { receipts, cells } = setup();
    cells.b.fault = new StoreError("unavailable", "no connection");
    const outcomes = await receipts.addRequest([row(A1), row(B1)], false);
    expect(outcomes).toEqual([STORED, { kind: "unavailable", reason: "no connection" }]);
    await expect(receipts.add(row(B1))).rejects.toThrow("no connection");
    expect(await receipts.add(row(A2))).toEqual(STORED);
  });

  test("that are stored together or not at all must be of one cell", async () => {
    const { receipts, cells, move } = setup();
    expect(await receipts.addRequest([row(A1), row(A2)], true)).toEqual([STORED, STORED]);
    expect(cells.a.atomic).toEqual([true]);
    const apart = await receipts.addRequest([row(A1), row(B1)], true);
    expect(apart).toMatchObject([{ kind: "refused" }, { kind: "refused" }]);
    expect(cells.b.calls).toEqual([]);
    move(A1, "b");
    move(A2, "b");
    expect(await receipts.addRequest([row(A1), row(A2)], true)).toEqual([STORED, STORED]);
    expect(cells.b.calls).toEqual([[A1, A2]]);
  });

  test("with an answer for fewer rows count as not stored", async () => {
    const { receipts, cells } = setup();
    cells.a.receipts.addRequest = async () => [STORED];
    expect(await receipts.addRequest([row(A1), row(A2)], false)).toMatchObject([STORED, { kind: "unavailable" }]);
  });
});

describe("the journals of several cells", () => {
  test("note a duplicate where its first message is, and what was filtered in the first one", () => {
    const noted: string[] = [];
    const journal = (name: string): Journal => ({
      duplicate: ({ idempotencyKey }) => void noted.push(`${name} duplicate ${idempotencyKey}`),
      filtered: (source) => void noted.push(`${name} filtered ${source}`),
    });
    const cellOf: Buckets["cellOf"] = (bucket) =>
      bucket === bucketOf("lost") ? { reason: "it moves" } : { cell: bucket % 2 === 0 ? "a" : "b" };
    const both = new CellJournal(
      new Map([
        ["a", journal("a")],
        ["b", journal("b")],
      ]),
      { cellOf },
    );
    both.duplicate(row(A1));
    both.duplicate(row("x", B1));
    both.duplicate(row("lost"));
    both.filtered("orders", () => ({ idempotencyKey: null, correlationId: undefined }));
    expect(noted).toEqual([`a duplicate ${A1}`, "b duplicate x", "a filtered orders"]);
  });
});
