import { cellKeyOf, cellOf } from "../../model/cells.ts";
import { groupBy } from "../../model/collections.ts";
import { StoreError } from "../../model/errors.ts";
import type { CellInsertResult, ClaimedRow, InsertResult, NewInboxRow } from "../../model/rows.ts";
import { listOfMessage } from "../../model/topics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { InboxStore, ReceiptClaim, RelayRules } from "../../ports/store.ts";
import type { Journal } from "./journal.ts";
import { type Receipts, unavailable } from "./receive.ts";

const MIB = 1024 * 1024;
/** Most concurrent inserts, while the oldest takes longer than {@link STUCK_AFTER_MS}. */
const MAX_INSERTS = 4;
/** Age at which an insert counts as stuck and others stop waiting for it. */
const STUCK_AFTER_MS = 50;
const MAX_ROWS = 500;
/** Most bytes of one insert; a single larger row goes alone. */
const MAX_BYTES = 8 * MIB;
/** Most bytes waiting for an insert; beyond that a receipt is refused at once. */
const MAX_WAITING_BYTES = 64 * MIB;

/** Roughly what a row needs besides its payload: headers, attributes, object and promise. */
const ROW_OVERHEAD_BYTES = 1024;

interface Batch {
  /** The rows of one request, which share their insert with no others. Undefined if receipts come together. */
  readonly request?: { readonly isAtomic: boolean } | undefined;
  readonly rows: NewInboxRow[];
  readonly callers: Caller[];
  bytes: number;
}

const bytesOf = (row: NewInboxRow): number => Buffer.byteLength(row.payload) + ROW_OVERHEAD_BYTES;

type BatcherStore = Pick<InboxStore, "insert" | "insertAllOrNone">;

type Inserted = readonly InsertResult[] | { readonly error: unknown };

interface Caller {
  readonly resolve: (outcome: InsertResult) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Group commit: receipts that arrive during an insert share the next one. While no insert runs, a receipt is sent at
 * the end of the event loop's turn. A second insert starts before the first has ended only if the first is stuck.
 */
export class ReceiptBatcher {
  readonly #store: BatcherStore;
  readonly #log: Log;
  readonly #onStored: (rows: readonly NewInboxRow[], outcomes: readonly InsertResult[]) => void;
  /** Waiting batches, oldest first; only the last one grows. */
  readonly #waiting: Batch[] = [];
  #waitingBytes = 0;
  /** Start times of the running inserts, in ms of the process, oldest first. */
  readonly #running: number[] = [];
  #unanswered = 0;
  #flushScheduled = false;
  #closing: Promise<void> | undefined;
  #onDrained: (() => void) | undefined;
  #stuckTimer: NodeJS.Timeout | undefined;
  readonly #sendWaiting = (): void => {
    this.#flushScheduled = false;
    for (;;) {
      const [batch] = this.#waiting;
      if (batch === undefined || !this.#mayLeave()) return;
      clearTimeout(this.#stuckTimer);
      this.#stuckTimer = undefined;
      this.#waiting.shift();
      this.#waitingBytes -= batch.bytes;
      const startedAt = performance.now();
      this.#running.push(startedAt);
      void this.#insert(batch, startedAt);
    }
  };
  readonly #answer = ({ callers }: Batch, inserted: Inserted): void => {
    callers.forEach(({ resolve, reject }, n) => {
      if ("error" in inserted) reject(inserted.error);
      else resolve(inserted[n] as InsertResult);
    });
    this.#unanswered -= callers.length;
    if (this.#unanswered === 0) this.#onDrained?.();
  };

  /** @param onStored is given the rows of each insert after its commit, with an outcome for each */
  constructor(
    store: BatcherStore,
    log: Log,
    onStored: (rows: readonly NewInboxRow[], outcomes: readonly InsertResult[]) => void = () => {},
  ) {
    this.#store = store;
    this.#log = log;
    this.#onStored = onStored;
  }

  /** Stores a row. @throws StoreError if its insert failed; `unavailable` if too much is waiting, or after `close` */
  add(row: NewInboxRow): Promise<InsertResult> {
    const bytes = bytesOf(row);
    const refusal = this.#refusal(bytes);
    if (refusal !== undefined) return Promise.reject(refusal);
    return this.#join(this.#batchFor(bytes), row, bytes);
  }

  /** Stores the rows of one request in one insert. @param isAtomic all or none @throws StoreError as {@link add} */
  addRequest(rows: readonly NewInboxRow[], isAtomic: boolean): Promise<readonly InsertResult[]> {
    const sizes = rows.map(bytesOf);
    const refusal = this.#refusal(sizes.reduce((sum, bytes) => sum + bytes, 0));
    if (refusal !== undefined) return Promise.reject(refusal);
    const batch: Batch = { request: { isAtomic }, rows: [], callers: [], bytes: 0 };
    this.#waiting.push(batch);
    return Promise.all(rows.map((row, n) => this.#join(batch, row, sizes[n] ?? 0)));
  }

  #join(batch: Batch, row: NewInboxRow, bytes: number): Promise<InsertResult> {
    this.#waitingBytes += bytes;
    this.#unanswered++;
    batch.bytes += bytes;
    batch.rows.push(row);
    return new Promise((resolve, reject) => {
      batch.callers.push({ resolve, reject });
      this.#scheduleFlush();
    });
  }

  /** Why no receipt of that size is taken now. */
  #refusal(bytes: number): StoreError | undefined {
    if (this.#closing !== undefined) {
      return new StoreError("unavailable", "the service is stopping and takes no more receipts");
    }
    // Only what waits alone is accepted at any size: it would be refused for ever otherwise.
    if (this.#waitingBytes === 0 || this.#waitingBytes + bytes <= MAX_WAITING_BYTES) return undefined;
    return new StoreError("unavailable", `the database stores receipts too slowly: ${this.#waitingBytes} bytes wait`);
  }

  /** Accepts no more rows; resolves when every accepted row has its answer. Safe to call twice. */
  close(): Promise<void> {
    this.#closing ??= new Promise((resolve) => {
      this.#onDrained = resolve;
      if (this.#unanswered === 0) resolve();
    });
    return this.#closing;
  }

  #batchFor(bytes: number): Batch {
    const last = this.#waiting.at(-1);
    const takesMore = last !== undefined && last.request === undefined && last.rows.length < MAX_ROWS;
    if (takesMore && last.bytes + bytes <= MAX_BYTES) return last;
    const batch: Batch = { rows: [], callers: [], bytes: 0 };
    this.#waiting.push(batch);
    return batch;
  }

  #scheduleFlush(): void {
    // The timer sends it. An immediate per receipt is measurable under load.
    if (this.#flushScheduled || this.#stuckTimer !== undefined) return;
    if (this.#running.length >= MAX_INSERTS) return;
    this.#flushScheduled = true;
    setImmediate(this.#sendWaiting);
  }

  /** Whether the oldest batch starts now. Otherwise it starts when an insert ends, or when the oldest is stuck. */
  #mayLeave(): boolean {
    const [startedAt] = this.#running;
    if (startedAt === undefined) return true;
    if (this.#running.length >= MAX_INSERTS) return false;
    const leftMs = startedAt + STUCK_AFTER_MS - performance.now();
    if (leftMs <= 0) return true;
    this.#stuckTimer ??= setTimeout(() => {
      this.#stuckTimer = undefined;
      this.#sendWaiting();
    }, leftMs);
    return false;
  }

  /** Never rejects: callers get the error. */
  async #insert(batch: Batch, startedAt: number): Promise<void> {
    const inserted = await this.#inserted(batch);
    this.#running.splice(this.#running.indexOf(startedAt), 1);
    if (this.#waiting.length > 0) {
      // Start the next insert before answering for this one, so that the database keeps working.
      this.#sendWaiting();
      setImmediate(this.#answer, batch, inserted);
    } else {
      this.#answer(batch, inserted);
    }
  }

  /** Never rejects. */
  async #inserted(batch: Batch): Promise<Inserted> {
    try {
      const isAtomic = batch.request?.isAtomic === true;
      const outcomes = await (isAtomic ? this.#store.insertAllOrNone(batch.rows) : this.#store.insert(batch.rows));
      this.#onStored(batch.rows, outcomes);
      for (const outcome of outcomes) {
        // The sender can correct a row that no table can hold, and gets that answer; a rule of the table it cannot.
        if (outcome.kind !== "refused" || outcome.mayPassLater !== true) continue;
        this.#log.error({ reason: outcome.reason }, "the inbox table refuses a received message");
      }
      return outcomes;
    } catch (error) {
      const { reason } = unavailable(error);
      const code = error instanceof StoreError ? error.code : "unexpected";
      this.#log.error({ rows: batch.rows.length, code, reason }, "received messages could not be stored");
      return { error };
    }
  }
}

export interface ReceiptWork {
  /** Of the relay; undefined without one. */
  relay: RelayRules | undefined;
  /** A claim of at most this number of rows; undefined if the poller has no room, or there is none. */
  claim: (rows: number) => ReceiptClaim | undefined;
}

/**
 * Stores received rows. In a process that relays, the same statement relays the rows that wait for nothing, and claims
 * as many of them as its poller has room for.
 *
 * @returns the outcomes, in order, after the commit
 * @throws StoreError
 */
export async function storeReceived(
  inbox: Pick<InboxStore, "insert" | "insertRelayed">,
  { relay, claim }: ReceiptWork,
  rows: readonly NewInboxRow[],
): Promise<readonly InsertResult[]> {
  const { insertRelayed } = inbox;
  if (relay === undefined || insertRelayed === undefined) return await inbox.insert(rows);
  const claiming = claim(rows.reduce((sum, row) => sum + (listOfMessage(row, relay)?.length ?? 1), 0));
  let claimed: readonly ClaimedRow[] = [];
  try {
    const stored = await insertRelayed(rows, relay, claiming?.request);
    claimed = stored.claimed;
    return stored.outcomes;
  } finally {
    claiming?.end(claimed);
  }
}

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

/** Notes a duplicate in the journal of the cell of its key. @param journals in the order of the cells */
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

const APART: CellInsertResult = {
  kind: "refused",
  reason:
    "with batch.atomic a request cannot hold messages of several cells: send messages of one key, or set it to false",
};
