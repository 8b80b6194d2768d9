import type { DestinationStore } from "./destinationStore.ts";
import type { ReplayStore } from "./finishedRows.ts";
import type { HistoryStore } from "./historyStore.ts";
import type { JournalStore } from "./journalStore.ts";
import type { MessageStore } from "./messageStore.ts";
import type { OperationsStore } from "./operationsStore.ts";
import type { PullStore } from "./pullStore.ts";
import type { OutboxStore, ParkedStore, SchemaStore, Store } from "./store.ts";

/**
 * What operators and pull clients need: of one database, whose `Store` is one of these, or of the several cells of an
 * installation as if they were one.
 *
 * With cells, reads leave out a cell that does not answer within about two seconds, and `cells` names it. A change is
 * made in every cell that it concerns; if some fail it rejects with `CellError`, which says what was done in the
 * others. Processes, figures, audit log and the state of destinations are in the control store, that of `database.url`:
 * while it is away, they reject with a `CellError` that names `control`.
 */
export interface OperatorStore extends Pick<Store, "histories" | "announceOutbox" | "waitUntilReady" | "close"> {
  readonly messages: MessageStore;
  readonly operations: Omit<OperationsStore, "beat" | "leave" | "partlyDead">;
  readonly parked: ParkedStore;
  readonly replay: ReplayStore;
  readonly history: Pick<HistoryStore, "of">;
  readonly journal: Pick<JournalStore, "duplicatesOf" | "find">;
  readonly destinations: Pick<DestinationStore, "isAvailable" | "states" | "pause" | "resume">;
  readonly pull: PullStore;
  readonly outbox: Pick<OutboxStore, "backlog">;
  readonly schema: Pick<SchemaStore, "migrate" | "checkColumns">;
  /** Undefined without cells. */
  readonly cells?: Cells | undefined;
}

export interface Cells {
  /** In the order of the configuration. */
  readonly names: readonly string[];
  /**
   * Call it before the reads of an answer.
   *
   * @returns gives the cells that were left out since, also for a moment, or are now, `control` among them
   */
  watch(): () => readonly MissingCell[];
}

export interface MissingCell {
  readonly name: string;
  readonly reason: string;
  /** Since when, by this process's clock. */
  readonly since: Date;
}
