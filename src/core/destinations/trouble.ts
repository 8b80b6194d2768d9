import { StoreError } from "../../model/errors.ts";
import type { Log } from "../../ports/runtime.ts";
import type { SchemaStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";

export interface DestinationTroubleOptions {
  readonly schema: Pick<SchemaStore, "destinationFault">;
  readonly clock: Clock;
  readonly log: Log;
}

/** Tells the log, once a minute at most, that what replicas share about destinations cannot be read, and how to mend that. */
export class DestinationTrouble {
  readonly #options: DestinationTroubleOptions;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(options: DestinationTroubleOptions) {
    this.#options = options;
  }

  /** A read has failed. Never rejects. @param failures how many in a row */
  async failed(error: unknown, failures: number): Promise<void> {
    const { clock, log } = this.#options;
    if (clock.monotonic() - this.#toldAt < TOLD_EVERY_MS) return;
    this.#toldAt = clock.monotonic();
    const fault = error instanceof StoreError && error.code === "schema" ? await this.#fault() : undefined;
    const fields = fault === undefined ? {} : { problem: fault.what, remedy: fault.remedy };
    log.error(
      { err: error, failures, ...fields },
      "pauses and circuit breakers not read: the last known ones hold, and rows with a rate limit wait",
    );
  }

  async #fault() {
    // Who may not read the table may not look at it either, or the database has gone meanwhile: the error itself tells.
    return await this.#options.schema.destinationFault().catch(() => undefined);
  }
}

const TOLD_EVERY_MS = 60_000;
