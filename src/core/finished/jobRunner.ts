import { errorText, StoppingError, StoreError } from "../../model/errors.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import { systemTimer, type Timer } from "../../time/clock.ts";
import { sharedController, waitOrAbort } from "../../time/wait.ts";
import type { HeldJob, ReplayJobs } from "./replayJobs.ts";

interface JobRunnerOptions {
  readonly jobs: Pick<ReplayJobs, "abandoned" | "take" | "execute">;
  readonly log: Log;
  /** Default: that of the system. */
  readonly timer?: Timer;
}

/** Executes replay jobs: its own, and those of processes that have gone. A stop releases them between two batches. */
export class JobRunner implements Service {
  readonly name = "replay jobs";
  readonly #options: JobRunnerOptions;
  readonly #stopping = sharedController();
  readonly #running = new Set<Promise<unknown>>();
  #cancel: (() => void) | undefined;
  #looking: Promise<void> = Promise.resolve();

  constructor(options: JobRunnerOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    this.look();
  }

  /** Executes a job in the background. */
  execute(held: HeldJob): void {
    const { jobs, log } = this.#options;
    const running = jobs
      .execute(held, this.#stopping.signal, "running")
      .catch((error: unknown) => log.error({ job: held.id, reason: errorText(error) }, "replay job failed"))
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Looks now for jobs that nobody executes, and then every ten seconds. */
  look(): void {
    this.#cancel?.();
    if (this.#stopping.signal.aborted) return;
    this.#looking = this.#takeAbandoned().then(() => {
      if (!this.#stopping.signal.aborted)
        this.#cancel = (this.#options.timer ?? systemTimer)(INTERVAL_MS, () => this.look());
    });
  }

  async stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping.abort(new StoppingError());
    this.#cancel?.();
    const ended = this.#looking.then(() => Promise.allSettled(this.#running));
    await waitOrAbort(ended, cutoff, "the end of the replay jobs").catch(() => {});
    this.#cancel?.();
  }

  async #takeAbandoned(): Promise<void> {
    const { jobs, log } = this.#options;
    try {
      for (const id of await jobs.abandoned()) {
        const held = await jobs.take(id);
        if (held === undefined) continue;
        if (this.#stopping.signal.aborted) return;
        this.execute(held);
      }
    } catch (error) {
      // Without the table there are no jobs.
      if (error instanceof StoreError && error.code === "schema") return;
      log.warn({ reason: errorText(error) }, "abandoned replay jobs cannot be taken now");
    }
  }
}

const INTERVAL_MS = 10_000;
