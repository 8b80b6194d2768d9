import { errorText, StoppingError, StoreError } from "../../model/errors.ts";
import type { ClaimToken } from "../../model/rows.ts";
import type { Job, JobStore } from "../../ports/jobStore.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import { systemTimer, type Timer } from "../../time/clock.ts";
import { linked, sharedController, waitOrAbort } from "../../time/wait.ts";
import type { Audit } from "../operations/audit.ts";
import type { Redact } from "../redaction/redact.ts";
import { LeftRows } from "./leftRows.ts";
import { loggedFilter, type Replay } from "./replay.ts";
import { parseReplayRequest, type ReplayPreview, type ReplayRequest } from "./requests.ts";

interface ReplayJobsOptions {
  readonly store: JobStore;
  readonly replay: Pick<Replay, "begin" | "moves" | "persistently" | "preview">;
  readonly newId: () => string;
  readonly newToken: () => ClaimToken;
  /** Monotonic ms. */
  readonly now: () => number;
  readonly audit: Audit;
  readonly redact: Redact;
  readonly log: Log;
}

/** What people and programs see of a job. */
export interface JobShown extends Omit<Job, "filter" | "scope" | "position"> {
  readonly filter: unknown;
}

/** Replays that show how far they are, can be cancelled, and go on where they were interrupted. */
export class ReplayJobs {
  readonly #options: ReplayJobsOptions;

  constructor(options: ReplayJobsOptions) {
    this.#options = options;
  }

  /**
   * What a replay would move now, counted for a third of a second at most; changes nothing.
   *
   * @throws StoreError, or the signal's reason
   */
  preview(request: ReplayRequest, sampleSize: number, signal: AbortSignal): Promise<ReplayPreview> {
    const { replay, now } = this.#options;
    const until = now() + COUNTED_MS;
    return replay.preview(request, sampleSize, signal, () => now() >= until);
  }

  /**
   * Adds a job. Execute it with {@link execute}.
   *
   * @param perSecond most rows in a second; null for no cap
   * @throws StoreError, or the signal's reason
   */
  async start(request: ReplayRequest, by: string, perSecond: number | null, signal: AbortSignal): Promise<HeldJob> {
    const { store, replay, newId, newToken, audit } = this.#options;
    const { count, isExact } = await this.preview(request, 0, signal);
    const [id, token] = [newId(), newToken()];
    const scope = await replay.begin(signal);
    const job = { id, by, filter: JSON.stringify(request), perSecond, total: isExact ? count : null, scope };
    await store.add(job, { token, leaseMs: LEASE_MS });
    if ((await store.get(id)) === undefined) {
      throw new StoreError("refused", "the new job is not in the table of jobs: a trigger of yours left it out");
    }
    const cap = perSecond === null ? "" : `, at most ${perSecond} a second`;
    const detail = `${JSON.stringify(loggedFilter(request))}${cap}`;
    await audit.add({ actor: by, action: "replay", target: id, detail });
    return { id, token };
  }

  /** @returns undefined where another process executes it, or it has ended. @throws StoreError */
  async take(id: string): Promise<HeldJob | undefined> {
    const { store, newToken } = this.#options;
    const token = newToken();
    return (await store.take(id, { token, leaseMs: LEASE_MS })) ? { id, token } : undefined;
  }

  /** The ids of running jobs that no process executes. @throws StoreError */
  abandoned(): Promise<readonly string[]> {
    return this.#options.store.abandoned(MOST_TAKEN);
  }

  /**
   * Executes a job to its end, or until it is cancelled or taken over.
   *
   * @param signal stops it between two batches
   * @param whenStopped its state then: `running` for whoever takes it next, `interrupted` until it is resumed
   * @param onProgress called after each batch
   * @returns the job as it is then
   * @throws StoreError; then the job is failed, or its lease ends and another process goes on
   */
  async execute(
    { id, token }: HeldJob,
    signal: AbortSignal,
    whenStopped: "running" | "interrupted",
    onProgress: (moved: number) => void = () => {},
  ): Promise<JobShown | undefined> {
    const { store, replay, now, redact, log } = this.#options;
    const job = await store.get(id);
    if (job === undefined) return undefined;
    const { by, perSecond, scope, position: after } = job;
    const lease = { token, leaseMs: LEASE_MS };
    const rows = new LeftRows(redact);
    // A running job has no other error than the rows that were left before it was interrupted.
    const left = () => [job.lastError, rows.text].filter(Boolean).join("; ") || null;
    let progress = { moved: job.moved, position: after, left: left() };
    let notedAt = now();
    // A batch may wait for the pollers for longer than a lease; a cancelled job waits no more.
    using stopped = linked(signal);
    let isTaken = false;
    const onTaken = () => {
      isTaken = true;
      stopped.abort();
    };
    const renewing = setInterval(() => {
      store.advance(id, lease, progress).then(
        (isHeld) => isHeld || onTaken(),
        () => {},
      );
    }, RENEWED_EVERY_MS);
    try {
      const request = parseReplayRequest(JSON.parse(job.filter));
      for await (const batch of replay.moves(request, by, { scope, after, perSecond }, stopped.signal)) {
        rows.add(batch.left);
        const { moved, position } = batch;
        progress = { moved: progress.moved + moved, position: position ?? progress.position, left: left() };
        // A long way without a match is noted now and then.
        if (moved === 0 && now() - notedAt < RENEWED_EVERY_MS) continue;
        const isHeld = await replay.persistently(() => store.advance(id, lease, progress), stopped.signal);
        if (!isHeld) return await this.#letGo(id, progress.moved);
        notedAt = now();
        onProgress(progress.moved);
      }
      await replay.persistently(() => store.end(id, token, "done", left()), stopped.signal);
      log.info({ job: id, moved: progress.moved, left: rows.text, filter: loggedFilter(request), by }, "replay");
    } catch (error) {
      // The batch that ran meanwhile.
      await store.advance(id, lease, progress).catch(() => {});
      if (isTaken && !signal.aborted) return await this.#letGo(id, progress.moved);
      const isStopped = signal.aborted;
      const reason = redact(errorText(error));
      log.warn({ job: id, moved: progress.moved, left: rows.text, by, reason }, "replay ended early");
      const failure = [reason, left()].filter(Boolean).join("; ");
      await store.end(id, token, isStopped ? whenStopped : "failed", isStopped ? left() : failure).catch(() => {});
      if (!isStopped) throw error;
    } finally {
      clearInterval(renewing);
    }
    return await this.get(id);
  }

  /** Ends a job that this process no longer holds. @returns it as it is then @throws StoreError */
  async #letGo(id: string, moved: number): Promise<JobShown | undefined> {
    const job = await this.get(id);
    const fields = { job: id, moved, state: job?.state };
    this.#options.log.warn(
      fields,
      "replay ended: its job was cancelled or taken over, or a trigger of yours kept it as it was",
    );
    return job;
  }

  /** @throws StoreError */
  async get(id: string): Promise<JobShown | undefined> {
    const job = await this.#options.store.get(id);
    return job && shownJob(job);
  }

  /** Newest first. @throws StoreError */
  async list(limit: number): Promise<readonly JobShown[]> {
    return (await this.#options.store.list(limit)).map(shownJob);
  }

  /** A cancelled job never goes on; what it moved stays moved. @returns false when it had ended. @throws StoreError */
  async cancel(id: string, by: string): Promise<boolean> {
    const cancelled = await this.#options.store.cancel(id);
    if (cancelled) await this.#options.audit.add({ actor: by, action: "replay.cancel", target: id, detail: null });
    return cancelled;
  }

  /**
   * An interrupted or failed job may be taken again.
   *
   * @returns false when it was in another state.
   * @throws StoreError
   */
  async resume(id: string, by: string): Promise<boolean> {
    const resumed = await this.#options.store.resume(id);
    if (resumed) await this.#options.audit.add({ actor: by, action: "replay.resume", target: id, detail: null });
    return resumed;
  }
}

/** A job that this process executes. */
export interface HeldJob {
  readonly id: string;
  readonly token: ClaimToken;
}

function shownJob({ scope: _scope, position: _position, filter, ...job }: Job): JobShown {
  return { ...job, filter: JSON.parse(filter) };
}

const COUNTED_MS = 300;
const LEASE_MS = 60_000;
const RENEWED_EVERY_MS = 5000;
const MOST_TAKEN = 10;

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
