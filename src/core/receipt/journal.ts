import { errorText, StoreError } from "../../model/errors.ts";
import type { NewInboxRow } from "../../model/rows.ts";
import type { JournalStore, NewJournalEntry } from "../../ports/journalStore.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { waitOrAbort } from "../../time/wait.ts";
import { correlationId } from "./attributes.ts";

/** Takes note of received messages that leave no row. Never throws, and never waits. */
export interface Journal {
  /** @param read what identifies the message; called after the sender has its answer */
  filtered(source: string, read: () => DroppedMessage): void;
  duplicate(row: Pick<NewInboxRow, "source" | "idempotencyKey" | "correlationId" | "aggregateId">): void;
}

interface DroppedMessage {
  readonly idempotencyKey: string | null;
  /** As the sender gave it. */
  readonly correlationId: string | undefined;
}

interface ReceiptJournalOptions {
  readonly store: Pick<JournalStore, "add" | "deleteOld">;
  readonly replica: string;
  /** What makes the table usable. */
  readonly remedy: string;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "journalDropped">;
  readonly log: Log;
}

interface NotedEntry extends Omit<NewJournalEntry, "ageMs"> {
  readonly notedAt: number;
}

/**
 * The journal of this process: writes about once a second, in one statement, while there is something to write. Best
 * effort: entries beyond a hundred a second, and entries that the database does not take, are counted and dropped.
 */
export class ReceiptJournal implements Journal, Service {
  readonly name = "journal";
  readonly #options: ReceiptJournalOptions;
  #entries: NotedEntry[] = [];
  /** Entries whose key is still to be read. */
  #reading = 0;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #isWriting = false;
  #isStopped = false;
  /** Monotonic ms until which nothing is noted, since a write failed. */
  #pausedUntil = Number.NEGATIVE_INFINITY;
  #deletedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ReceiptJournalOptions) {
    this.#options = options;
  }

  filtered(source: string, read: () => DroppedMessage): void {
    if (!this.#hasRoom()) return;
    const notedAt = this.#options.clock.monotonic();
    this.#reading += 1;
    setImmediate(() => {
      this.#reading -= 1;
      try {
        const { idempotencyKey, correlationId: given } = read();
        // An id that the service would make is known to nobody.
        const correlation = given === undefined || given === "" ? null : correlationId(given);
        this.#note(notedAt, { source, outcome: "filtered", idempotencyKey, correlationId: correlation });
      } catch {
        // Outside of any request: an error would end the process.
        this.#options.metrics.journalDropped(1);
      }
    });
  }

  duplicate({
    source,
    idempotencyKey,
    correlationId,
  }: Pick<NewInboxRow, "source" | "idempotencyKey" | "correlationId">) {
    if (!this.#hasRoom()) return;
    this.#note(this.#options.clock.monotonic(), { source, outcome: "duplicate", idempotencyKey, correlationId });
  }

  async start(): Promise<void> {}

  async stop(cutoff: AbortSignal): Promise<void> {
    // Keys that are being read are noted in the turn of the event loop after this one.
    if (this.#reading > 0) await new Promise((resolve) => setImmediate(resolve));
    this.#isStopped = true;
    clearTimeout(this.#timer);
    const written = this.#writing.then(() => this.#write());
    await waitOrAbort(written, cutoff, "the journal").catch(() => {});
  }

  #hasRoom(): boolean {
    const { clock, metrics } = this.#options;
    const isFull = this.#entries.length + this.#reading >= MOST_ENTRIES;
    if (!isFull && !this.#isStopped && clock.monotonic() >= this.#pausedUntil) return true;
    metrics.journalDropped(1);
    return false;
  }

  #note(notedAt: number, entry: Omit<NotedEntry, "notedAt" | "replica">): void {
    this.#entries.push({ ...entry, replica: this.#options.replica, notedAt });
    if (this.#isWriting || this.#isStopped) return;
    this.#timer ??= setTimeout(() => this.#writeNow(), INTERVAL_MS);
  }

  #writeNow(): void {
    this.#timer = undefined;
    this.#isWriting = true;
    this.#writing = this.#write().then(() => {
      this.#isWriting = false;
      if (this.#entries.length > 0 && !this.#isStopped) this.#timer = setTimeout(() => this.#writeNow(), INTERVAL_MS);
    });
  }

  /** Never rejects. */
  async #write(): Promise<void> {
    const { store, clock } = this.#options;
    const noted = this.#entries.splice(0);
    if (noted.length === 0) return;
    const now = clock.monotonic();
    let lost = noted.length;
    try {
      await store.add(noted.map(({ notedAt, ...entry }) => ({ ...entry, ageMs: Math.max(0, now - notedAt) })));
      lost = 0;
      // As many as a process adds in the meantime, and more.
      if (this.#isStopped || now - this.#deletedAt < DELETE_INTERVAL_MS) return;
      this.#deletedAt = (await store.deleteOld(MOST_DELETED)) < MOST_DELETED ? now : Number.NEGATIVE_INFINITY;
    } catch (error) {
      this.#failed(error, lost);
    }
  }

  #failed(error: unknown, lost: number): void {
    const { clock, metrics, remedy, log } = this.#options;
    metrics.journalDropped(lost);
    const reason = errorText(error);
    if (error instanceof StoreError && error.code === "schema") {
      this.#pausedUntil = Number.POSITIVE_INFINITY;
      log.warn(
        { reason, remedy },
        "the journal cannot be used: filtered messages and duplicates are not kept until you apply the remedy and restart, or set outbox.history: off",
      );
      return;
    }
    this.#pausedUntil = clock.monotonic() + PAUSE_MS;
    log.warn(
      { reason, seconds: PAUSE_MS / 1000 },
      "the journal cannot be written: filtered messages and duplicates of the next `seconds` are not kept",
    );
  }
}

/** Entries of a second. */
const MOST_ENTRIES = 100;
const INTERVAL_MS = 1000;
const MOST_DELETED = 1000;
const DELETE_INTERVAL_MS = 10_000;
const PAUSE_MS = 60_000;
