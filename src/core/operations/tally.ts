import type { Metrics } from "../../ports/metrics.ts";
import { COUNTERS, type Counter, type Figures } from "../../ports/operationsStore.ts";
import type { Clock } from "../../time/clock.ts";

/** What a process counted about its sources and destinations since its last report. */
export class Tally {
  readonly #clock: Clock;
  #counts = new Map<string, Counted>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  count(kind: Figures["kind"], name: string, counter: Counter, count: number): void {
    const key = `${kind} ${name}`;
    let counted = this.#counts.get(key);
    if (counted === undefined) {
      counted = { kind, name, counts: { ...NONE } };
      this.#counts.set(key, counted);
    }
    counted.counts[counter] += count;
  }

  /** Takes what was counted since the last call; undefined for nothing. */
  take(): Report | undefined {
    if (this.#counts.size === 0) return undefined;
    const counted = [...this.#counts.values()];
    this.#counts = new Map();
    return { at: this.#clock.monotonic(), counted };
  }
}

interface Counted {
  readonly kind: Figures["kind"];
  readonly name: string;
  readonly counts: Record<Counter, number>;
}

export interface Report {
  /** Monotonic ms. */
  readonly at: number;
  readonly counted: readonly Counted[];
}

const NONE = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Record<Counter, number>;

/** @param now monotonic ms */
export function figuresOf(reports: readonly Report[], now: number): readonly Figures[] {
  return reports.flatMap(({ at, counted }) => {
    const minutesAgo = Math.floor(Math.max(0, now - at) / 60_000);
    return counted.map(({ kind, name, counts }) => ({ kind, name, minutesAgo, ...counts }));
  });
}

/** Metrics that are counted for operators too, by destination. */
export function tallyDestinations(metrics: Metrics, tally: Tally): Metrics {
  return {
    ...metrics,
    outboxDestinationMessage(destination, outcome) {
      metrics.outboxDestinationMessage(destination, outcome);
      tally.count("destination", destination, outcome, 1);
    },
  };
}

/**
 * Metrics of one source that are counted for operators too.
 *
 * @param keepsRefused whether refused messages become dead rows, as those of brokers
 */
export function tallySource(metrics: Metrics, tally: Tally, source: string, keepsRefused: boolean): Metrics {
  return {
    ...metrics,
    inboxMessages(status, count) {
      metrics.inboxMessages(status, count);
      if (status !== "forwarded") tally.count("source", source, status === "new" ? "received" : "duplicate", count);
    },
    inboxFiltered() {
      metrics.inboxFiltered();
      tally.count("source", source, "filtered", 1);
    },
    inboxRejection(reason) {
      metrics.inboxRejection(reason);
      if (keepsRefused && (reason === "extraction_failed" || reason === "transform_failed"))
        tally.count("source", source, "dead", 1);
    },
  };
}
