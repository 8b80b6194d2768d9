import type { InsertResult, NewInboxRow } from "../../src/model/rows.ts";
import type { InboxStore } from "../../src/ports/store.ts";

/** What an `insert` of {@link MemoryInbox} does instead of storing. */
export type InsertFault = { readonly reject: Error } | { readonly refuse: string };

/**
 * The insert of an inbox, in memory: unique by `(source, idempotencyKey)`, with the faults and delays a test asks for. It
 * runs the inserts of the shared suite.
 */
export class MemoryInbox implements Pick<InboxStore, "insert" | "insertAllOrNone"> {
  readonly #rows = new Map<string, NewInboxRow>();
  /** The rows of each call, in the order of the calls. */
  readonly calls: (readonly NewInboxRow[])[] = [];
  fault: InsertFault | undefined;
  #held: Promise<void> | undefined;

  /** The stored rows in the order in which they came. */
  get rows(): readonly NewInboxRow[] {
    return [...this.#rows.values()];
  }

  /** Makes inserts wait until the returned function is called. */
  hold(): () => void {
    let release = (): void => {};
    this.#held = new Promise((resolve) => {
      release = resolve;
    });
    return () => {
      this.#held = undefined;
      release();
    };
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    this.calls.push(rows);
    await this.#held;
    const { fault } = this;
    if (fault !== undefined && "reject" in fault) throw fault.reject;
    return rows.map((row) => (fault === undefined ? this.#store(row) : { kind: "refused", reason: fault.refuse }));
  }

  /** A fault refuses every row. */
  async insertAllOrNone(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    return await this.insert(rows);
  }

  #store(row: NewInboxRow): InsertResult {
    const key = JSON.stringify([row.source, row.idempotencyKey]);
    if (this.#rows.has(key)) return { kind: "duplicate" };
    this.#rows.set(key, row);
    return { kind: "stored" };
  }
}
