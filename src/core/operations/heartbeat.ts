import { errorText } from "../../model/errors.ts";
import type { Metrics } from "../../ports/metrics.ts";
import {
  COUNTERS,
  type Counter,
  type Figures,
  type OperationsStore,
  type OtherProcesses,
  type ProcessName,
} from "../../ports/operationsStore.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import type { Clock, Timer } from "../../time/clock.ts";
import { waitOrAbort } from "../../time/wait.ts";

/** What a process counted about its sources and destinations since its last report. */
export class Tally {
  readonly #clock: Clock;
  #counts = new Map<string, Counted>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  count(kind: Figures["kind"], name: string, counter: Counter, count: number): void {
    const key = `${kind} ${name}`;
    const counted = this.#counts.get(key) ?? { kind, name, counts: { ...NONE } };
    this.#counts.set(key, counted);
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

interface Report {
  /** Monotonic ms. */
  readonly at: number;
  readonly counted: readonly Counted[];
}

const NONE = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Record<Counter, number>;

/** @param now monotonic ms */
function figuresOf(reports: readonly Report[], now: number): readonly Figures[] {
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

/** A remark beside the refusals. */
export const WITHOUT_AGGREGATE_ID = "no_aggregate_id";

export function tallySource(metrics: Metrics, tally: Tally, source: string): Metrics {
  return {
    ...metrics,
    inboxMessages(status, count) {
      metrics.inboxMessages(status, count);
      if (status !== "forwarded") tally.count("source", source, status === "new" ? "received" : "duplicate", count);
    },
    inboxRefused(of, reason) {
      metrics.inboxRefused(of, reason);
      tally.count("remark", `${reason} ${source}`, "received", 1);
    },
    inboxWithoutAggregateId(of) {
      metrics.inboxWithoutAggregateId(of);
      tally.count("remark", `${WITHOUT_AGGREGATE_ID} ${source}`, "received", 1);
    },
    inboxFiltered() {
      metrics.inboxFiltered();
      tally.count("source", source, "filtered", 1);
    },
    inboxDead(reason) {
      metrics.inboxDead(reason);
      tally.count("source", source, "dead", 1);
    },
  };
}

interface HeartbeatOptions {
  readonly store: Pick<OperationsStore, "beat" | "leave">;
  readonly process: Omit<ProcessName, "upMs" | "clockAheadMs">;
  readonly tally: Tally;
  /** Called after each beat with what it has seen. */
  readonly onBeat: (others: OtherProcesses) => void;
  readonly clock: Clock;
  readonly timer: Timer;
  readonly log: Log;
}

/**
 * Notes every 20 s that this process is alive, with what it counted since. Trouble with the tables delays nothing else:
 * it is logged once until a beat succeeds, and the counts of the last ten minutes are added later. After a statement
 * without an answer they may be added twice.
 */
export class Heartbeat implements Service {
  readonly name = "heartbeat";
  readonly #options: HeartbeatOptions;
  readonly #startedAt: number;
  #reports: Report[] = [];
  #running: Promise<void> = Promise.resolve();
  #cancel: (() => void) | undefined;
  #isStopped = false;
  #hasFailed = false;
  #clockAheadMs = 0;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    this.#startedAt = options.clock.monotonic();
  }

  /** The first beat begins now; does not wait for it. */
  async start(): Promise<void> {
    if (!this.#isStopped) this.#next();
  }

  /** Writes what is left, and that the process has gone. */
  async stop(cutoff: AbortSignal): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#cancel?.();
    const { store, process } = this.#options;
    const end = async () => {
      await this.#running;
      await this.#beat();
      if (!this.#hasFailed) await store.leave(process.name);
    };
    await waitOrAbort(end(), cutoff, "the last heartbeat").catch(() => {});
  }

  #next(): void {
    this.#running = this.#beat().then(() => {
      if (this.#isStopped) return;
      this.#cancel = this.#options.timer(INTERVAL_MS, () => this.#next());
    });
  }

  async #beat(): Promise<void> {
    const { store, process, tally, onBeat, clock, log } = this.#options;
    const report = tally.take();
    if (report !== undefined) this.#reports.push(report);
    const now = clock.monotonic();
    this.#reports = this.#reports.filter(({ at }) => now - at < KEPT_MS);
    const sent = this.#reports;
    const sentAt = clock.now();
    try {
      const name = { ...process, clockAheadMs: this.#clockAheadMs, upMs: now - this.#startedAt };
      const others = await store.beat(name, figuresOf(sent, now));
      this.#clockAheadMs = aheadMs(sentAt, others.at?.getTime() ?? sentAt, clock.now());
      onBeat(others);
      this.#reports = [];
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed) log.warn({ reason: errorText(error) }, NOT_NOTED);
      this.#hasFailed = true;
    }
  }
}

/** How far our clock is ahead: the database read its own between two readings of ours. A small difference counts as none. */
function aheadMs(before: number, theirs: number, after: number): number {
  const ahead = theirs < before ? before - theirs : theirs > after ? after - theirs : 0;
  return Math.abs(ahead) < LEAST_AHEAD_MS ? 0 : ahead;
}

const LEAST_AHEAD_MS = 2000;
const NOT_NOTED =
  "the heartbeat was not stored: svc status and the console do not show this process and its figures (docs/status.md). It is tried again every 20 s";
const INTERVAL_MS = 20_000;
const KEPT_MS = 600_000;
