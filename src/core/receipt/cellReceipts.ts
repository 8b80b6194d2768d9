import { cellKeyOf, cellOf } from "../../model/cells.ts";
import { errorText, StoreError } from "../../model/errors.ts";
import { groupBy } from "../../model/groups.ts";
import type { CellInsertResult, InsertResult, NewInboxRow } from "../../model/rows.ts";
import type { Journal } from "./journal.ts";
import type { Receipts } from "./receive.ts";

/** The way into one cell. */
interface CellEntrance {
  /** False until the database has shown that it is this cell, as while it has been away since the start. */
  readonly isOpen: () => boolean;
  readonly receipts: Receipts;
  /** Stores rows in one commit. */
  readonly insert: (rows: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>;
}

interface CellReceipts extends Receipts {
  /** As `InboxStore.insert`, in one commit in each cell. Rows whose cell is away are `unavailable`. */
  insert(rows: readonly NewInboxRow[]): Promise<readonly CellInsertResult[]>;
}

/**
 * Sends each received row to the cell of its key. One cell's trouble is that of its own rows. A request has one commit in
 * each cell; rows of several cells, which no commit has together, are refused when they are stored all or none.
 *
 * @param cells in the order of the configuration
 */
export function cellReceipts(cells: readonly CellEntrance[]): CellReceipts {
  const entranceOf = (row: NewInboxRow) => cells[cellOf(cellKeyOf(row), cells.length)] as CellEntrance;
  /** Never rejects. */
  const inCells = async (
    rows: readonly NewInboxRow[],
    store: (cell: CellEntrance, group: readonly NewInboxRow[]) => Promise<readonly CellInsertResult[]>,
  ): Promise<readonly CellInsertResult[]> => {
    const outcomes = new Map<NewInboxRow, CellInsertResult | undefined>();
    const storeIn = async (cell: CellEntrance, group: readonly NewInboxRow[]) => await store(opened(cell), group);
    await Promise.all(
      Array.from(groupBy(rows, entranceOf), async ([cell, group]) => {
        const stored = await storeIn(cell, group).catch((error: unknown) => group.map(() => unavailable(error)));
        for (const [n, row] of group.entries()) outcomes.set(row, stored[n]);
      }),
    );
    return rows.map((row) => outcomes.get(row) as CellInsertResult);
  };
  return {
    add: async (row) => await opened(entranceOf(row)).receipts.add(row),
    insert: (rows) => inCells(rows, (cell, group) => cell.insert(group)),

    async addRequest(rows, isAtomic) {
      if (!isAtomic) return await inCells(rows, ({ receipts }, group) => receipts.addRequest(group, false));
      const [cell, ...others] = new Set(rows.map(entranceOf));
      if (cell === undefined || others.length > 0) return rows.map(() => APART);
      return await opened(cell).receipts.addRequest(rows, true);
    },
  };
}

/**
 * Notes a duplicate in the journal of the cell that has its first message.
 *
 * @param journals in the order of the cells; the first one takes what belongs to none
 */
export function cellJournal(journals: readonly (Journal | undefined)[]): Journal {
  return {
    filtered: (...given) => journals[0]?.filtered(...given),
    duplicate: (row) => journals[cellOf(cellKeyOf(row), journals.length)]?.duplicate(row),
  };
}

/** @throws StoreError while the cell is not open */
function opened(cell: CellEntrance): CellEntrance {
  if (!cell.isOpen()) throw new StoreError("unavailable", "the cell has not been opened yet");
  return cell;
}

const unavailable = (error: unknown): CellInsertResult => ({
  kind: "unavailable",
  reason: error instanceof StoreError ? error.message : errorText(error),
});

const APART: CellInsertResult = {
  kind: "refused",
  reason:
    "messages of several cells cannot be stored together or not at all: send those of one key, or without that condition",
};
