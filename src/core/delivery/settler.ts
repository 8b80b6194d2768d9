import { errorText } from "../../model/errors.ts";
import type { MessageId, Settlement } from "../../model/rows.ts";
import type { Log } from "../../ports/runtime.ts";
import type { OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { LaneRow } from "./keyQueues.ts";

/** How a claimed row ended. */
export interface Outcome {
  readonly entry: LaneRow;
  readonly settlement: Settlement;
  /** Monotonic ms until which nobody else may take the row, as known when it ended. */
  readonly heldUntil: number;
}

/**
 * What became of an outcome: `written`, by this try or by an earlier one whose answer was lost; `refused` by the fence, since the row is not under this
 * claim any more; `unknown` where either may be so: the answer of an earlier try was lost, and the lease ran out before the next one.
 */
export type Settled = "written" | "refused" | "unknown";

export interface SettlerOptions {
  readonly store: OutboxStore;
  /** Called for each outcome after the commit. */
  readonly onSettled: (outcome: Outcome, settled: Settled) => void;
  /** Called instead for an outcome that the database refuses for good: the claim stays, and ends with its lease. */
  readonly onRefused: (outcome: Outcome, reason: string) => void;
  /** Called when the database did not take a batch; it is kept and tried again. */
  readonly onError: (error: unknown) => void;
  readonly clock: Clock;
  readonly log: Log;
  /** Waits between tries and between small batches, in ms; a test passes its own. */
  readonly wait: (ms: number) => Promise<void>;
}

/**
 * Closes claims in batches: while one statement runs, and for as long again where they are few, outcomes gather for the next, so the batch grows with
 * the load and a single outcome waits for nobody. What the database does not take is kept and tried again: the fence makes a late settlement harmless,
 * and a settlement that is lost would be a second delivery.
 */
export class Settler {
  readonly #options: SettlerOptions;
  #gathered: Outcome[] = [];
  #running: Promise<void> | undefined;
  #givenUp = false;
  /** Outcomes that were sent to the database before, without an answer that says they are not written. */
  readonly #sentBefore = new WeakSet<Outcome>();
  /** Until then a batch that is not large waits for more; by the monotonic clock, in ms. */
  #restsUntil = Number.NEGATIVE_INFINITY;

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  add(outcome: Outcome): void {
    this.#gathered.push(outcome);
    // Started from a microtask, so that the outcomes of one turn of the event loop go together.
    this.#running ??= Promise.resolve().then(() => this.#run());
  }

  /** Resolves when everything added so far is committed or, after `giveUp`, dropped. */
  async flushed(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Tries no more: what is left is reclaimed by another replica when its lease ends, and delivered again. */
  giveUp(): void {
    this.#givenUp = true;
  }

  async #run(): Promise<void> {
    for (let failures = 0; this.#gathered.length > 0; ) {
      await this.#rest();
      const startedAt = this.#options.clock.monotonic();
      const batch = this.#gathered.splice(0, MAX_BATCH);
      try {
        const refused = new Map<MessageId, string>();
        const closed: ReadonlySet<MessageId> = await this.#options.store.settle(
          batch.map((outcome) => outcome.settlement),
          ({ id }, reason) => refused.set(id, reason),
        );
        failures = 0;
        const endedAt = this.#options.clock.monotonic();
        this.#restsUntil = endedAt + Math.min(endedAt - startedAt, MAX_REST_MS);
        for (const outcome of batch) {
          const { id } = outcome.settlement;
          const refusal = refused.get(id);
          if (refusal !== undefined) this.#options.onRefused(outcome, refusal);
          else this.#options.onSettled(outcome, closed.has(id) ? "written" : this.#unclosed(outcome, endedAt));
        }
      } catch (error) {
        for (const outcome of batch) this.#sentBefore.add(outcome);
        this.#gathered = [...batch, ...this.#gathered];
        this.#options.onError(error);
        if (this.#givenUp) {
          this.#options.log.warn(
            { rows: this.#gathered.length, reason: errorText(error) },
            "outcomes left to their leases",
          );
          this.#gathered = [];
        } else {
          await this.#options.wait(Math.min(50 * 2 ** failures, 2000));
          failures += 1;
        }
      }
    }
    this.#running = undefined;
  }

  /** Why the row was not found under its claim. Where its lease still holds, nobody but an earlier try can have closed it. */
  #unclosed(outcome: Outcome, now: number): Settled {
    if (!this.#sentBefore.has(outcome)) return "refused";
    return now < outcome.heldUntil ? "written" : "unknown";
  }

  async #rest(): Promise<void> {
    const ms = this.#restsUntil - this.#options.clock.monotonic();
    // A timer cannot be set for less.
    if (ms >= 1 && this.#gathered.length < LARGE_BATCH && !this.#givenUp) await this.#options.wait(ms);
  }
}

const MAX_BATCH = 1000;
/** A statement for twenty rows costs a third of one for a hundred; beyond this size there is little more to gain. */
const LARGE_BATCH = 250;
const MAX_REST_MS = 50;
