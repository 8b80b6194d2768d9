import { bucketKeyOf, bucketOf } from "../../model/cells.ts";
import { errorText, StoreError } from "../../model/errors.ts";
import type { CellInsertResult, InsertResult, NewInboxRow } from "../../model/rows.ts";
import type { Clock } from "../../time/clock.ts";
import type { Place } from "../cells/places.ts";
import type { Journal } from "./journal.ts";
import type { Receipts } from "./receive.ts";

/** Which cell has a bucket, as far as this process knows. */
export interface Buckets {
  cellOf(bucket: number): Place;
  /** Reads again where buckets are, in a bounded time; calls at the same moment share it. Never rejects. */
  refresh(): Promise<void>;
}

/** The way into one cell. */
interface CellEntrance {
  readonly receipts: Receipts;
  /** Stores rows in one commit. */
  readonly insert: (rows: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>;
}

interface CellReceiptsOptions {
  /** By the name of the cell. */
  readonly cells: ReadonlyMap<string, CellEntrance>;
  readonly buckets: Buckets;
  readonly clock: Pick<Clock, "monotonic">;
  readonly wait: (ms: number) => Promise<void>;
}

/**
 * Sends each received row to the cell of its bucket. A cell refuses rows of a bucket that has left it, or is about to:
 * they follow it, or wait for the end of its move. So does a server that was started since its buckets were read: it may
 * have gone back to before a move. One cell's trouble is that of its own rows.
 */
export class CellReceipts implements Receipts {
  readonly #options: CellReceiptsOptions;

  constructor(options: CellReceiptsOptions) {
    this.#options = options;
  }

  /** As `ReceiptBatcher.add`. */
  async add(row: NewInboxRow): Promise<InsertResult> {
    const bucket = bucketOf(bucketKeyOf(row));
    const place = this.#options.buckets.cellOf(bucket);
    const placed = { ...row, bucket, bucketsOn: "cell" in place ? place.server : undefined };
    if ("cell" in place) {
      try {
        return await this.#entrance(place.cell).receipts.add(placed);
      } catch (error) {
        if (!isElsewhere(error)) throw error;
      }
    }
    const single: Storing = async ({ receipts }, group) => [await receipts.add(group[0] ?? placed)];
    const [outcome = LOST] = await this.#inCells([placed], single);
    if (outcome.kind === "unavailable") throw new StoreError("unavailable", outcome.reason);
    return outcome;
  }

  /**
   * As `ReceiptBatcher.addRequest`, in one commit in each cell.
   *
   * @param isAtomic refuses rows of several cells, which no commit has together
   */
  async addRequest(rows: readonly NewInboxRow[], isAtomic: boolean): Promise<readonly CellInsertResult[]> {
    const placed = rows.map(inBucket);
    if (isAtomic) return await this.#addTogether(placed);
    return await this.#inCells(placed, ({ receipts }, group) => receipts.addRequest(group, false));
  }

  /** As `InboxStore.insert`, in one commit in each cell. Rows whose cell is away are `unavailable`. */
  async insert(rows: readonly NewInboxRow[]): Promise<readonly CellInsertResult[]> {
    return await this.#inCells(rows.map(inBucket), ({ insert }, group) => insert(group));
  }

  /** Stores rows that are in one cell now together: so those of a bucket stay in their order. Never rejects. */
  async #inCells(rows: readonly PlacedRow[], store: Storing): Promise<readonly CellInsertResult[]> {
    const { buckets, clock } = this.#options;
    const outcomes = new Map<PlacedRow, CellInsertResult>();
    const endsAt = clock.monotonic() + LONGEST_WAIT_MS;
    for (let left = rows, tries = 0; ; tries += 1) {
      const groups = new Map<string, PlacedRow[]>();
      const servers = new Map<string, string | undefined>();
      const reasons = new Map<PlacedRow, string>();
      for (const row of left) {
        const place = buckets.cellOf(row.bucket);
        if ("reason" in place) {
          reasons.set(row, place.reason);
          continue;
        }
        const group = groups.get(place.cell) ?? [];
        group.push(row);
        groups.set(place.cell, group);
        servers.set(place.cell, place.server);
      }
      const storeGroup = async ([cell, group]: readonly [string, readonly PlacedRow[]]) => {
        try {
          const bucketsOn = servers.get(cell);
          const stored = await store(
            this.#entrance(cell),
            group.map((row) => ({ ...row, bucketsOn })),
          );
          for (const [n, row] of group.entries()) outcomes.set(row, stored[n] ?? LOST);
        } catch (error) {
          for (const row of group) {
            if (isElsewhere(error)) reasons.set(row, error.message);
            else outcomes.set(row, unavailable(error));
          }
        }
      };
      await Promise.all([...groups].map(storeGroup));
      left = left.filter((row) => !outcomes.has(row));
      if (left.length === 0) break;
      if (clock.monotonic() >= endsAt) {
        for (const row of left) outcomes.set(row, { kind: "unavailable", reason: reasons.get(row) ?? "" });
        break;
      }
      await this.#lookAgain(tries);
    }
    return rows.map((row) => outcomes.get(row) ?? LOST);
  }

  /** Stores all rows or none. @throws StoreError */
  async #addTogether(rows: readonly PlacedRow[]): Promise<readonly CellInsertResult[]> {
    const endsAt = this.#options.clock.monotonic() + LONGEST_WAIT_MS;
    for (let tries = 0; ; tries += 1) {
      const places = rows.map(({ bucket }) => this.#options.buckets.cellOf(bucket));
      const found = places.flatMap((place) => ("cell" in place ? [place] : []));
      const cells = new Set(found.map((place) => place.cell));
      const server = found[0]?.server;
      let reason = places.flatMap((place) => ("reason" in place ? [place.reason] : []))[0];
      if (cells.size > 1) return rows.map(() => APART);
      try {
        const [cell] = cells;
        if (reason === undefined && cell !== undefined)
          return await this.#entrance(cell).receipts.addRequest(
            rows.map((row) => ({ ...row, bucketsOn: server })),
            true,
          );
      } catch (error) {
        if (!isElsewhere(error)) throw error;
        reason = error.message;
      }
      if (this.#options.clock.monotonic() >= endsAt) throw new StoreError("unavailable", reason ?? "");
      await this.#lookAgain(tries);
    }
  }

  async #lookAgain(tries: number): Promise<void> {
    if (tries > 0) await this.#options.wait(LOOK_AGAIN_MS);
    await this.#options.buckets.refresh();
  }

  #entrance(cell: string): CellEntrance {
    const entrance = this.#options.cells.get(cell);
    if (entrance === undefined) throw new StoreError("unavailable", `this process has no way into the cell ${cell}`);
    return entrance;
  }
}

/** The journals of several cells: a duplicate is noted where its first message is. */
export class CellJournal implements Journal {
  readonly #journals: ReadonlyMap<string, Journal | undefined>;
  readonly #buckets: Pick<Buckets, "cellOf">;

  /** @param journals by the name of the cell; the first one takes what belongs to none */
  constructor(journals: ReadonlyMap<string, Journal | undefined>, buckets: Pick<Buckets, "cellOf">) {
    this.#journals = journals;
    this.#buckets = buckets;
  }

  filtered(...given: Parameters<Journal["filtered"]>): void {
    [...this.#journals.values()][0]?.filtered(...given);
  }

  duplicate(row: Parameters<Journal["duplicate"]>[0]): void {
    const place = this.#buckets.cellOf(bucketOf(bucketKeyOf(row)));
    if ("cell" in place) this.#journals.get(place.cell)?.duplicate(row);
  }
}

type PlacedRow = NewInboxRow & { readonly bucket: number };

/** How rows of one cell are stored. */
type Storing = (cell: CellEntrance, rows: readonly PlacedRow[]) => Promise<readonly CellInsertResult[]>;

const inBucket = (row: NewInboxRow): PlacedRow => ({ ...row, bucket: bucketOf(bucketKeyOf(row)) });

const isElsewhere = (error: unknown): error is StoreError => error instanceof StoreError && error.code === "elsewhere";

const unavailable = (error: unknown): CellInsertResult => ({
  kind: "unavailable",
  reason: error instanceof StoreError ? error.message : errorText(error),
});

const LOST: CellInsertResult = { kind: "unavailable", reason: "the cell did not answer for this row" };

const APART: CellInsertResult = {
  kind: "refused",
  reason:
    "messages of several cells cannot be stored together or not at all: send those of one key, or without that condition",
};

/** A bucket that moves is closed for a few seconds at most. In ms. */
const LONGEST_WAIT_MS = 10_000;
const LOOK_AGAIN_MS = 100;
