import { availableParallelism, totalmem } from "node:os";
import { errorText, TransformError } from "../../model/errors.ts";
import type { Evaluation, Evaluator } from "../../ports/evaluator.ts";
import type { Log } from "../../ports/runtime.ts";
import { type EvaluationJob, type LaneBounds, Lanes } from "./lanes.ts";
import type { EvaluationReply } from "./protocol.ts";
import { EvaluationWorker, type WorkerEnd } from "./worker.ts";

export interface EvaluatorPoolOptions {
  /** Entry of the workers, a built file: `dist/roles/evaluatorWorker.js`. */
  readonly script: URL;
  /** Processes that evaluate in parallel. One more starts when lanes are served apart. */
  readonly workers: number;
  /** Largest JavaScript heap of one worker; the process takes about 50 MB more. */
  readonly memoryLimitMb: number;
  /** How much longer than its `timeoutMs` an evaluation may take before its worker is ended. Default 250. */
  readonly graceMs?: number;
  /** How much may wait of what is refusable. */
  readonly bounds?: LaneBounds;
  /** Logs workers that ended, without expressions and payloads. */
  readonly log?: Pick<Log, "warn">;
}

const DEFAULT_GRACE_MS = 250;
/** Wait after a worker that did not start; what comes meanwhile fails at once, unless another worker is there. */
const START_BACKOFF_MS = 1000;

/**
 * Evaluates in worker processes, which start with the first evaluation and again when one has ended. Evaluations of one
 * turn of the event loop travel together.
 *
 * Every expression ends: by its own limits (`core/transform`) or, in a built-in function that checks no limit, with its
 * worker, which is killed when it is overdue and ends itself when its memory is full. The evaluation that ran fails;
 * what waited behind it runs elsewhere. The lane that did this, or that took all of its time, rests for as long, and is
 * then served apart for some seconds: by a worker of its own, one evaluation at a time. So a sender of hostile payloads
 * holds up other lanes once in a while, not with each of them.
 */
export class EvaluatorPool implements Evaluator {
  readonly #options: EvaluatorPoolOptions;
  readonly #lanes: Lanes;
  readonly #workers = new Set<EvaluationWorker>();
  /** For the lanes that are served apart. */
  #apartWorker: EvaluationWorker | undefined;
  readonly #startWaits = new Set<{ readonly resolve: () => void; readonly reject: (error: Error) => void }>();
  #startFailure: { readonly error: Error; readonly until: number } | undefined;
  #unsettled = 0;
  #dispatchScheduled = false;
  /** Set for the end of a lane's rest, or of the last lane that is served apart. */
  #timer: NodeJS.Timeout | undefined;
  #closed: Promise<void> | undefined;
  readonly #dispatch = (): void => this.#sendWaiting();

  constructor(options: EvaluatorPoolOptions) {
    this.#options = options;
    this.#lanes = new Lanes(options.bounds);
  }

  /** Starts the workers before the first evaluation. @throws Error with the reason when one does not start */
  async start(): Promise<void> {
    if (this.#closed !== undefined) throw closedError();
    await new Promise<void>((resolve, reject) => {
      this.#startWaits.add({ resolve, reject });
      this.#fillUp();
      this.#settleStart();
    });
  }

  /** Rejects with an Error other than TransformError when no worker starts: the expression is not the reason. */
  evaluate(evaluation: Evaluation): Promise<string> {
    if (this.#closed !== undefined) return Promise.reject(closedError());
    return new Promise((resolve, reject) => {
      const isTaken = this.#lanes.add(evaluation, (outcome) => {
        this.#unsettled--;
        if (outcome instanceof Error) reject(outcome);
        else if ("result" in outcome) resolve(outcome.result);
        else reject(new TransformError(outcome.code, outcome.message));
      });
      if (!isTaken) {
        reject(new TransformError("busy", "too many evaluations wait for their turn"));
        return;
      }
      this.#unsettled++;
      this.#scheduleDispatch();
    });
  }

  close(): Promise<void> {
    this.#closed ??= this.#end();
    return this.#closed;
  }

  async #end(): Promise<void> {
    clearTimeout(this.#timer);
    const workers = this.#everyWorker();
    const posted = workers.flatMap(({ unanswered }) => unanswered);
    for (const worker of workers) worker.retire();
    for (const { reject } of this.#startWaits) reject(closedError());
    for (const job of [...posted, ...this.#lanes.drain("all", 0)]) job.settle(closedError());
    await Promise.all(workers.map((worker) => worker.ended));
  }

  #everyWorker(): readonly EvaluationWorker[] {
    return this.#apartWorker === undefined ? [...this.#workers] : [...this.#workers, this.#apartWorker];
  }

  #scheduleDispatch(): void {
    if (this.#dispatchScheduled) return;
    this.#dispatchScheduled = true;
    setImmediate(this.#dispatch);
  }

  #sendWaiting(): void {
    this.#dispatchScheduled = false;
    if (this.#closed !== undefined) return;
    const now = performance.now();
    if (this.#unsettled > 0) this.#fillUp();
    const ready = [...this.#workers].filter(({ isReady }) => isReady);
    for (let job = this.#lanes.next(false, now); job !== undefined; job = this.#lanes.next(false, now)) {
      const worker = leastBusy(ready);
      // What is next waits for room, and nothing overtakes it.
      if (worker?.hasRoomFor(job) !== true) break;
      this.#lanes.take(job, false, now);
      worker.give(job);
    }
    for (const worker of ready) worker.send();
    this.#serveApart(now);
  }

  #serveApart(now: number): void {
    const job = this.#lanes.next(true, now);
    if (job !== undefined && this.#apartWorker?.isReady === true && this.#apartWorker.count === 0) {
      this.#lanes.take(job, true, now);
      this.#apartWorker.give(job);
      this.#apartWorker.send();
    }
    clearTimeout(this.#timer);
    const apartUntil = this.#lanes.apartUntil(now);
    if (apartUntil === undefined && this.#apartWorker?.count === 0) {
      this.#apartWorker.retire();
      this.#apartWorker = undefined;
    }
    const wakeAt = this.#lanes.restsUntil(now) ?? apartUntil;
    if (wakeAt === undefined) return;
    this.#timer = setTimeout(() => this.#scheduleDispatch(), Math.max(1, wakeAt - now));
    this.#timer.unref();
  }

  /** Starts the missing workers, but waits a while after a failed start. */
  #fillUp(): void {
    const failure = this.#startFailure;
    if (failure !== undefined && performance.now() < failure.until) {
      this.#failStart(failure.error);
      return;
    }
    try {
      while (this.#workers.size < this.#options.workers) this.#workers.add(this.#startWorker());
      if (this.#lanes.apartUntil(performance.now()) !== undefined) this.#apartWorker ??= this.#startWorker();
    } catch (error) {
      this.#startFailed(errorText(error));
    }
  }

  #startWorker(): EvaluationWorker {
    const { script, memoryLimitMb, graceMs = DEFAULT_GRACE_MS } = this.#options;
    const worker: EvaluationWorker = new EvaluationWorker({
      script,
      memoryLimitMb,
      graceMs,
      onReady: () => this.#settleStart(),
      onReply: (job, reply) => this.#replied(job, reply),
      onReturned: (jobs) => this.#lanes.putBack(jobs),
      onProgress: () => this.#scheduleDispatch(),
      onEnd: (end) => this.#ended(worker, end),
    });
    return worker;
  }

  #replied(job: EvaluationJob, reply: EvaluationReply): void {
    this.#lanes.ended(job, reply.ms);
    if ("code" in reply && reply.code === "timeout") this.#lanes.offended(job.lane, reply.ms, performance.now());
    job.settle(reply);
  }

  #ended(worker: EvaluationWorker, end: WorkerEnd): void {
    const { unanswered, running, isOverdue, isRetired, runningMs } = worker;
    this.#workers.delete(worker);
    if (this.#apartWorker === worker) this.#apartWorker = undefined;
    if (this.#closed !== undefined || isRetired) return;
    const lane = running?.lane.name;
    this.#options.log?.warn(
      { reason: end.reason, overdue: isOverdue, lane, unanswered: unanswered.length },
      "an evaluation worker ended",
    );
    if (end.kind === "not_started") {
      this.#startFailed(`it ${end.reason}`);
      return;
    }
    this.#lanes.putBack(unanswered.filter((job) => job !== running));
    if (running !== undefined) {
      this.#settleLostJob(running, end, isOverdue, runningMs);
      // Before the next evaluation has to wait for it.
      this.#fillUp();
    }
    this.#scheduleDispatch();
  }

  /** What a worker was running when it ended. */
  #settleLostJob(job: EvaluationJob, end: WorkerEnd, isOverdue: boolean, ms: number): void {
    this.#lanes.ended(job, ms);
    this.#lanes.offended(job.lane, ms, performance.now());
    const { timeoutMs } = job.evaluation;
    if (isOverdue) {
      const message = `the evaluation took longer than ${timeoutMs} ms (timeoutMs) and was ended`;
      job.settle({ code: "timeout", message });
    } else if (end.kind === "out_of_memory") {
      const message = `the evaluation needs more than ${this.#options.memoryLimitMb} MB of memory`;
      job.settle({ code: "too_large", message });
    } else if (job.wasLost) {
      job.settle({ code: "lost", message: `the evaluation lost its worker twice: the last one ${end.reason}` });
    } else {
      // Somebody else ended the worker, and the evaluation need not be the reason.
      job.wasLost = true;
      job.charged = 0;
      this.#lanes.putBack([job]);
    }
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
    const now = performance.now();
    const failed = [
      ...(this.#workers.size === 0 ? this.#lanes.drain(false, now) : []),
      ...(this.#apartWorker === undefined ? this.#lanes.drain(true, now) : []),
    ];
    for (const job of failed) job.settle(error);
  }

  #settleStart(): void {
    if ([...this.#workers].some((worker) => !worker.isReady)) return;
    for (const { resolve } of this.#startWaits) resolve();
    this.#startWaits.clear();
  }
}

function leastBusy(workers: readonly EvaluationWorker[]): EvaluationWorker | undefined {
  let least: EvaluationWorker | undefined;
  for (const worker of workers) {
    const isLess = least === undefined || worker.expectedMs < least.expectedMs;
    if (isLess || (worker.expectedMs === least?.expectedMs && worker.count < least.count)) least = worker;
  }
  return least;
}

function closedError(): TransformError {
  return new TransformError("closed", "the evaluator was closed");
}

interface WorkerSizing {
  readonly workers: number;
  /** Largest heap of one worker, in MiB. */
  readonly memoryLimitMb: number;
  /** What limits their number; absent at the maximum. */
  readonly limitedBy?: "processors" | "memory";
}

/** A payload of some MiB takes a multiple of its size while it is transformed. */
const MEMORY_MB = 256;
/** Enough for small payloads. */
const LEAST_MEMORY_MB = 64;
/** What a worker takes besides its heap: full heaps of 64, 144 and 256 MiB had 135, 209 and 316 MiB resident. */
const OVERHEAD_MB = 70;
/** More would take the processors that deliveries and the database need. */
const MOST_WORKERS = 4;
/** For the lanes that are served apart: one more worker, as large as the others. */
const WORKERS_APART = 1;
/** The process itself under load (150 to 250 MiB), and some room. */
const OWN_MB = 300;
const MEBIBYTE = 1024 * 1024;

/**
 * As many workers as the machine or the container has room for, each with its heap full; one processor and the memory
 * it needs are left to the process itself. Below 568 MiB they may take more than there is.
 *
 * @param machine default: what this process has; `memory` in bytes
 */
export function workerSizing(
  machine: { readonly processors: number; readonly memory: number } = thisMachine(),
): WorkerSizing {
  const room = machine.memory / MEBIBYTE - OWN_MB;
  const fitting = Math.max(1, Math.floor(room / (MEMORY_MB + OVERHEAD_MB)) - WORKERS_APART);
  const spare = Math.max(1, machine.processors - 1);
  const workers = Math.min(MOST_WORKERS, spare, fitting);
  const ofOne = Math.floor(room / (workers + WORKERS_APART)) - OVERHEAD_MB;
  const memoryLimitMb = Math.max(LEAST_MEMORY_MB, Math.min(MEMORY_MB, ofOne));
  if (workers === MOST_WORKERS) return { workers, memoryLimitMb };
  return { workers, memoryLimitMb, limitedBy: fitting < spare ? "memory" : "processors" };
}

function thisMachine(): { readonly processors: number; readonly memory: number } {
  // Without a limit it is 0, or more than there is.
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return { processors: availableParallelism(), memory: Math.min(limit, totalmem()) };
}
