import { errorText } from "../../model/errors.ts";
import type { Job, JobState, JobStore } from "../../ports/jobStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Redact } from "../redaction/redact.ts";
import type { Audit } from "./audit.ts";
import { inGroup } from "./reasons.ts";
import { loggedFilter, othersText, type Replay } from "./replay.ts";
import type { ReplayPreview, ReplayRequest } from "./replayRequest.ts";

interface ReplayJobsOptions {
  readonly store: JobStore;
  readonly replay: Pick<Replay, "begin" | "moves" | "persistently" | "preview">;
  /** Makes a UUID. */
  readonly newId: () => string;
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

/** A run of a job by this process. */
export interface JobRun {
  readonly id: string;
  readonly token: string;
}

/**
 * Replays that show how far they are, can be cancelled, and resumed behind their position. After each batch the run notes
 * its position, and ends if the job was cancelled or resumed elsewhere.
 */
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
   * Adds a job. Execute its run with {@link execute}.
   *
   * @param perSecond most rows in a second; null for no cap
   * @throws StoreError, or the signal's reason
   */
  async start(given: ReplayRequest, by: string, perSecond: number | null, signal: AbortSignal): Promise<JobRun> {
    const { store, replay, newId, audit, redact } = this.#options;
    const request = inGroup(given, redact);
    const { count, isExact } = await this.preview(request, 0, signal);
    const run = { id: newId(), token: newId() };
    const scope = await replay.begin(signal);
    const job = { id: run.id, by, filter: JSON.stringify(request), perSecond, total: isExact ? count : null, scope };
    await store.add(job, run.token);
    const cap = perSecond === null ? "" : `, at most ${perSecond} a second`;
    const detail = `${JSON.stringify(loggedFilter(request))}${cap}`;
    await audit.add({ actor: by, action: "replay", target: run.id, detail });
    return run;
  }

  /**
   * Begins another run of a job that was interrupted, failed, or whose process is gone. A run that continues elsewhere
   * ends after its batch.
   *
   * @returns undefined when the job is done or cancelled, or does not exist
   * @throws StoreError
   */
  async resume(id: string, by: string): Promise<JobRun | undefined> {
    const { store, newId, audit } = this.#options;
    const token = newId();
    if (!(await store.resume(id, token))) return undefined;
    await audit.add({ actor: by, action: "replay.resume", target: id, detail: null });
    return { id, token };
  }

  /**
   * Executes a run to the end of its job, or until that is cancelled or resumed elsewhere.
   *
   * @param signal interrupts it between two batches
   * @param onProgress called after each batch with the number of rows moved, and of rows that matched at the start
   * @returns the job then
   * @throws StoreError; then the job is failed
   */
  async execute(
    { id, token }: JobRun,
    signal: AbortSignal,
    onProgress: (moved: number, total: number | null) => void = () => {},
  ): Promise<JobShown | undefined> {
    const { store, replay, redact, log } = this.#options;
    const job = await store.get(id);
    if (job === undefined) return undefined;
    const { by, perSecond, scope } = job;
    let { moved, position } = job;
    let refusal: string | undefined;
    const note = (state: Exclude<JobState, "cancelled">, reason?: string) => {
      const others = refusal === undefined ? job.lastError : othersText(refusal);
      const lastError = [reason, others].filter(Boolean).join("; ") || null;
      return store.note(id, token, { state, moved, position, lastError });
    };
    try {
      const request = JSON.parse(job.filter) as ReplayRequest;
      for await (const batch of replay.moves(request, by, { scope, after: position, perSecond }, signal)) {
        moved += batch.moved;
        refusal ??= batch.refusal && redact(batch.refusal);
        position = batch.position ?? position;
        const state = await replay.persistently(() => note("running"), signal);
        if (state !== "running") {
          log.warn({ job: id, moved, state }, "replay ended: it was cancelled or resumed elsewhere");
          return await this.get(id);
        }
        onProgress(moved, job.total);
      }
      await replay.persistently(() => note("done"), signal);
      log.info({ job: id, moved, refusal, filter: loggedFilter(request), by }, "replay");
    } catch (error) {
      const reason = redact(errorText(error));
      log.warn({ job: id, moved, refusal, by, reason }, "replay ended early");
      await (signal.aborted ? note("interrupted") : note("failed", reason)).catch(() => {});
      if (!signal.aborted) throw error;
    }
    return await this.get(id);
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
}

function shownJob({ scope: _scope, position: _position, filter, ...job }: Job): JobShown {
  return { ...job, filter: JSON.parse(filter) };
}

const COUNTED_MS = 300;
