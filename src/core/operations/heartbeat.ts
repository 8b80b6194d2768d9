import { errorText } from "../../model/errors.ts";
import type { OperationsStore, ProcessName } from "../../ports/operationsStore.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import type { Clock, Timer } from "../../time/clock.ts";
import { waitOrAbort } from "../../time/wait.ts";
import { figuresOf, type Report, type Tally } from "./tally.ts";

interface HeartbeatOptions {
  readonly store: Pick<OperationsStore, "beat" | "leave">;
  readonly process: Omit<ProcessName, "upMs">;
  readonly tally: Tally;
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
    const { store, process, tally, clock, log } = this.#options;
    const report = tally.take();
    if (report !== undefined) this.#reports.push(report);
    const now = clock.monotonic();
    this.#reports = this.#reports.filter(({ at }) => now - at < KEPT_MS);
    const sent = this.#reports;
    try {
      await store.beat({ ...process, upMs: now - this.#startedAt }, figuresOf(sent, now));
      this.#reports = [];
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed) log.warn({ reason: errorText(error) }, NOT_NOTED);
      this.#hasFailed = true;
    }
  }
}

const NOT_NOTED =
  "the heartbeat was not stored: svc status and the console do not show this process and its figures (docs/status.md). It is tried again every 20 s";
const INTERVAL_MS = 20_000;
const KEPT_MS = 600_000;
