import { setTimeout as sleep } from "node:timers/promises";
import type { Database } from "./database.ts";

/** More than the senders send in the longest fault. */
const MOST_WAITING = 10_000;
const READ_EVERY_MS = 500;
const LOOK_EVERY_MS = 100;

export interface BacklogOptions {
  readonly database: Pick<Database, "query">;
  /** In ms from now; nobody waits for longer. */
  readonly durationMs: number;
  readonly signal: AbortSignal;
}

/** How many rows wait for their delivery. Senders wait for room, so that a run on a slow machine is about its faults and not about its speed. */
export class Backlog {
  readonly #end: number;
  readonly #signal: AbortSignal;
  #waiting = 0;

  constructor({ database, durationMs, signal }: BacklogOptions) {
    this.#end = performance.now() + durationMs;
    this.#signal = signal;
    this.#read(database).catch(() => {}); // It ends with the signal.
  }

  async #read(database: BacklogOptions["database"]): Promise<void> {
    while (performance.now() < this.#end) {
      try {
        const [row] = await database.query<{ waiting: number }>(
          `SELECT ((SELECT count(*) FROM outbox WHERE state = 'pending')
            + (SELECT count(*) FROM inbox WHERE state = 'pending'))::int AS waiting`,
        );
        this.#waiting = row?.waiting ?? 0;
      } catch {
        // The database is away: what was read last may still hold.
      }
      await sleep(READ_EVERY_MS, undefined, { signal: this.#signal });
    }
  }

  /** Resolves when there is room for another message, or the run is over. @throws AbortError when the run has failed */
  async room(): Promise<void> {
    while (this.#waiting > MOST_WAITING && performance.now() < this.#end) {
      await sleep(LOOK_EVERY_MS, undefined, { signal: this.#signal });
    }
  }
}
