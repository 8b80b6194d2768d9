import { errorText, TransformError } from "../../model/errors.ts";
import type { Evaluation, Evaluator } from "../../ports/evaluator.ts";
import type { Log } from "../../ports/runtime.ts";
import { type EvaluationJob, PooledWorker } from "./pooledWorker.ts";
import type { ProcessEnd } from "./process.ts";
import { type EvaluationReply, MAX_HELD_REPLIES } from "./protocol.ts";

export interface EvaluatorPoolOptions {
  /** Entry of the workers, a built file: `dist/roles/evaluatorWorker.js`. */
  readonly script: URL;
  /** Processes that evaluate beside each other. */
  readonly workers: number;
  /** Largest JavaScript heap of one worker; the process takes about 50 MB beside it. */
  readonly memoryLimitMb: number;
  /** How much longer than its `timeoutMs` an evaluation may take before its worker is ended. Default 250. */
  readonly graceMs?: number;
  /** Told of workers that ended, without expressions and payloads. */
  readonly log?: Pick<Log, "warn">;
}

/** Evaluations that a worker has at a time: enough that it never waits for the next, few enough not to queue behind a long one. */
const MAX_POSTED = 64;
/** Characters of inputs that a worker has at a time, but for one larger input. */
const MAX_POSTED_LENGTH = 1024 * 1024;
const DEFAULT_GRACE_MS = 250;
/** Wait after a worker that did not start; what comes meanwhile fails at once, unless another worker is there. */
const START_BACKOFF_MS = 1000;

/**
 * Evaluates in worker processes, started with the first evaluation and again when one ended. Those asked for in one turn of the
 * event loop travel together.
 *
 * Whatever an expression does, it ends: by its own limits (`core/evaluation`), or, in a built-in function that asks for no limit,
 * by the end of its worker, which is killed when it is overdue or ends itself when its memory is full. Since replies travel together
 * too, it is then not sure which evaluation it was: those that may have been it run again, one at a time, and only the one that ends
 * a worker alone fails. Evaluations have no effects, so that nothing comes of running one twice.
 */
export class EvaluatorPool implements Evaluator {
  readonly #options: EvaluatorPoolOptions;
  readonly #workers = new Set<PooledWorker>();
  /** Oldest first. */
  readonly #waiting: EvaluationJob[] = [];
  /** One of these ended a worker: each is to run alone. */
  readonly #suspects: EvaluationJob[] = [];
  readonly #startWaits = new Set<{ readonly resolve: () => void; readonly reject: (error: Error) => void }>();
  #startFailure: { readonly error: Error; readonly until: number } | undefined;
  #lastId = 0;
  #unsettled = 0;
  #dispatchScheduled = false;
  #closed: Promise<void> | undefined;
  readonly #dispatch = (): void => this.#sendWaiting();

  constructor(options: EvaluatorPoolOptions) {
    this.#options = options;
  }

  /**
   * Starts the workers, which else the first evaluation waits for.
   *
   * @throws Error that says why a worker does not start
   */
  async start(): Promise<void> {
    if (this.#closed !== undefined) throw closedError();
    await new Promise<void>((resolve, reject) => {
      this.#startWaits.add({ resolve, reject });
      this.#fillUp();
      this.#settleStart();
    });
  }

  /** Rejects with an Error that is no TransformError when no worker can be started: that is no fault of the expression. */
  evaluate(evaluation: Evaluation): Promise<string> {
    if (this.#closed !== undefined) return Promise.reject(closedError());
    return new Promise((resolve, reject) => {
      this.#lastId++;
      this.#waiting.push({ request: { id: this.#lastId, ...evaluation }, resolve, reject });
      this.#unsettled++;
      if (this.#unsettled === 1) this.#keepAlive();
      this.#scheduleDispatch();
    });
  }

  close(): Promise<void> {
    this.#closed ??= this.#end();
    return this.#closed;
  }

  async #end(): Promise<void> {
    const workers = [...this.#workers];
    const unsettled = [...this.#suspects, ...workers.flatMap(({ unanswered }) => unanswered), ...this.#waiting];
    for (const worker of workers) worker.kill();
    for (const { reject } of this.#startWaits) reject(closedError());
    this.#failAll(unsettled, closedError());
    await Promise.all(workers.map((worker) => worker.ended));
  }

  #scheduleDispatch(): void {
    if (this.#dispatchScheduled || this.#waiting.length + this.#suspects.length === 0) return;
    this.#dispatchScheduled = true;
    setImmediate(this.#dispatch);
  }

  #sendWaiting(): void {
    this.#dispatchScheduled = false;
    if (this.#closed !== undefined) return;
    this.#fillUp();
    const ready = [...this.#workers].filter((worker) => worker.isReady);
    for (const worker of ready) {
      if (worker.count > 0) continue;
      const suspect = this.#suspects.shift();
      if (suspect !== undefined) this.#post(worker, [suspect], true);
    }
    // Else workers that are never idle would never come to the suspects.
    if (this.#suspects.length > 0 && !ready.some(({ isAlone }) => isAlone)) return;
    for (const [worker, jobs] of this.#share(ready.filter(({ isAlone }) => !isAlone))) this.#post(worker, jobs, false);
  }

  /** Gives each of what waits to the worker that has least to do. */
  #share(workers: readonly PooledWorker[]): ReadonlyMap<PooledWorker, readonly EvaluationJob[]> {
    const shares = workers.map((worker) => ({ worker, jobs: [] as EvaluationJob[], length: worker.inputLength }));
    let taken = 0;
    for (const job of this.#waiting) {
      const { length } = job.request.input;
      let best: (typeof shares)[number] | undefined;
      let least = MAX_POSTED;
      for (const share of shares) {
        const count = share.worker.count + share.jobs.length;
        const fits = count === 0 || share.length + length <= MAX_POSTED_LENGTH;
        if (count < least && fits) [best, least] = [share, count];
      }
      if (best === undefined) break;
      best.jobs.push(job);
      best.length += length;
      taken++;
    }
    this.#waiting.splice(0, taken);
    return new Map(shares.map(({ worker, jobs }) => [worker, jobs]));
  }

  #post(worker: PooledWorker, jobs: readonly EvaluationJob[], alone: boolean): void {
    if (jobs.length === 0) return;
    try {
      worker.post(jobs, alone);
    } catch (error) {
      this.#failAll(jobs, new TransformError("failed", `the variables are no JSON: ${errorText(error)}`));
    }
  }

  /** Starts workers up to the number there should be, but none for a while after one that did not start. */
  #fillUp(): void {
    const failure = this.#startFailure;
    if (failure !== undefined && performance.now() < failure.until) {
      if (this.#workers.size === 0) this.#failStart(failure.error);
      return;
    }
    while (this.#workers.size < this.#options.workers) {
      try {
        this.#startWorker();
      } catch (error) {
        this.#startFailed(errorText(error));
        return;
      }
    }
  }

  #startWorker(): void {
    const { script, memoryLimitMb, graceMs = DEFAULT_GRACE_MS } = this.#options;
    const worker = new PooledWorker({
      script,
      memoryLimitMb,
      graceMs,
      onReady: () => {
        this.#keepAlive();
        this.#settleStart();
        this.#scheduleDispatch();
      },
      onReply: (job, reply) => this.#settle(job, reply),
      onProgress: () => this.#scheduleDispatch(),
      onEnd: (end) => this.#ended(worker, end),
    });
    this.#workers.add(worker);
  }

  #settle({ resolve, reject }: EvaluationJob, reply: EvaluationReply): void {
    this.#settled(1);
    if ("result" in reply) resolve(reply.result);
    else reject(new TransformError(reply.code, reply.message));
  }

  #ended(worker: PooledWorker, end: ProcessEnd): void {
    this.#workers.delete(worker);
    if (this.#closed !== undefined) return;
    const { unanswered, isAlone, isOverdue } = worker;
    const fields = { reason: end.reason, overdue: isOverdue, unanswered: unanswered.length };
    this.#options.log?.warn(fields, "an evaluation worker ended");
    if (end.kind === "not_started") {
      this.#startFailed(`it ${end.reason}`);
      return;
    }
    if (isAlone) {
      for (const job of unanswered) this.#failAll([job], this.#failureOf(job, end, isOverdue));
    } else {
      this.#suspects.push(...unanswered.slice(0, MAX_HELD_REPLIES + 1));
      this.#waiting.unshift(...unanswered.slice(MAX_HELD_REPLIES + 1));
    }
    this.#scheduleDispatch();
  }

  #failureOf({ request }: EvaluationJob, end: ProcessEnd, isOverdue: boolean): TransformError {
    if (isOverdue) {
      return new TransformError(
        "timeout",
        `the evaluation took longer than ${request.timeoutMs} ms (timeoutMs) and was ended`,
      );
    }
    if (end.kind === "out_of_memory") {
      const limit = this.#options.memoryLimitMb;
      return new TransformError("too_large", `the evaluation needs more than ${limit} MB of memory`);
    }
    return new TransformError("failed", `the evaluation worker ${end.reason}`);
  }

  #startFailed(reason: string): void {
    const error = new Error(`no evaluation worker can be started: ${reason}`);
    this.#startFailure = { error, until: performance.now() + START_BACKOFF_MS };
    this.#failStart(error);
  }

  /** What waits fails, unless there is another worker to run it. */
  #failStart(error: Error): void {
    for (const { reject } of this.#startWaits) reject(error);
    this.#startWaits.clear();
    if (this.#workers.size === 0) this.#failAll([...this.#suspects.splice(0), ...this.#waiting.splice(0)], error);
  }

  #settleStart(): void {
    if ([...this.#workers].some((worker) => !worker.isReady)) return;
    for (const { resolve } of this.#startWaits) resolve();
    this.#startWaits.clear();
  }

  #failAll(jobs: readonly EvaluationJob[], error: Error): void {
    this.#settled(jobs.length);
    for (const job of jobs) job.reject(error);
  }

  #settled(count: number): void {
    this.#unsettled -= count;
    if (this.#unsettled === 0) this.#keepAlive();
  }

  /** Workers keep this process alive while somebody waits for a result, and no longer. */
  #keepAlive(): void {
    for (const worker of this.#workers) worker.keepAlive(this.#unsettled > 0);
  }
}

function closedError(): TransformError {
  return new TransformError("closed", "the evaluator was closed");
}
