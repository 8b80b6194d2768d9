import { EvaluatorProcess, type ProcessEnd } from "./process.ts";
import type { EvaluationReply, EvaluationRequest } from "./protocol.ts";

/** An evaluation that somebody waits for. */
export interface EvaluationJob {
  readonly request: EvaluationRequest;
  readonly resolve: (result: string) => void;
  readonly reject: (error: Error) => void;
}

export interface PooledWorkerOptions {
  readonly script: URL;
  readonly memoryLimitMb: number;
  /** How much longer than its `timeoutMs` an evaluation may take before the worker is ended. */
  readonly graceMs: number;
  readonly onReady: () => void;
  readonly onReply: (job: EvaluationJob, reply: EvaluationReply) => void;
  /** Replies have come, and there may be room for more. */
  readonly onProgress: () => void;
  /** The worker is gone; what it had stands in `unanswered`. Called once. */
  readonly onEnd: (end: ProcessEnd) => void;
}

/** A worker loads in 0.1 s; a machine that is far overloaded takes many times that. */
const START_TIMEOUT_MS = 30_000;
/** Longest time between two looks at a worker: a timer cannot hold a `timeoutMs` of any length. */
const MAX_WATCH_MS = 60_000;

/** A worker process with the evaluations it was given, which is killed when one of them is overdue. */
export class PooledWorker {
  /** Settles when the process is gone. */
  readonly ended: Promise<void>;
  readonly #options: PooledWorkerOptions;
  readonly #process: EvaluatorProcess;
  /** In the order in which they run. */
  readonly #posted = new Map<number, EvaluationJob>();
  #postedLength = 0;
  #isAlone = false;
  #isOverdue = false;
  /** Monotonic ms of the last post. */
  #postedAt = 0;
  /** Monotonic ms when the evaluation that runs began, at the latest; undefined while an announced one has not begun. */
  #runningSince: number | undefined;
  #watch: NodeJS.Timeout | undefined;
  /** Monotonic ms of the next look. */
  #watchedAt = 0;

  /** @throws Error when the system cannot make a process */
  constructor(options: PooledWorkerOptions) {
    this.#options = options;
    this.#process = new EvaluatorProcess({
      script: options.script,
      memoryLimitMb: options.memoryLimitMb,
      startTimeoutMs: START_TIMEOUT_MS,
      onReady: options.onReady,
      onStarted: () => {
        this.#runningSince = performance.now();
        this.#setWatch();
      },
      onReplies: (replies) => this.#receive(replies),
      onEnd: (end) => {
        clearTimeout(this.#watch);
        options.onEnd(end);
      },
    });
    this.ended = this.#process.ended;
  }

  get isReady(): boolean {
    return this.#process.isReady;
  }

  /** Whether its evaluation was posted alone: if the worker ends now, it was that one. */
  get isAlone(): boolean {
    return this.#isAlone;
  }

  /** Whether it was killed for an evaluation that took too long. */
  get isOverdue(): boolean {
    return this.#isOverdue;
  }

  /** Evaluations it has, the one that runs included. */
  get count(): number {
    return this.#posted.size;
  }

  /** Characters of their inputs. */
  get inputLength(): number {
    return this.#postedLength;
  }

  /** What it has no reply to, in the order in which it runs. */
  get unanswered(): readonly EvaluationJob[] {
    return [...this.#posted.values()];
  }

  /**
   * Gives it evaluations.
   *
   * @param alone with one evaluation for an idle worker: it says when it begins, so that its time is measured exactly
   * @throws TypeError when a variable is no JSON
   */
  post(jobs: readonly EvaluationJob[], alone: boolean): void {
    this.#process.send({ requests: jobs.map(({ request }) => request), announced: alone });
    this.#postedAt = performance.now();
    if (this.#posted.size === 0) this.#runningSince = alone ? undefined : this.#postedAt;
    this.#isAlone = alone;
    for (const job of jobs) {
      this.#posted.set(job.request.id, job);
      this.#postedLength += job.request.input.length;
    }
    this.#setWatch();
  }

  /** Whether it keeps this process alive. */
  keepAlive(wanted: boolean): void {
    this.#process.keepAlive(wanted);
  }

  /** Ends it at once, and forgets what it has. */
  kill(): void {
    clearTimeout(this.#watch);
    this.#posted.clear();
    this.#process.kill();
  }

  #receive(replies: readonly EvaluationReply[]): void {
    this.#runningSince = performance.now();
    for (const reply of replies) {
      const job = this.#posted.get(reply.id);
      if (job === undefined) continue;
      this.#posted.delete(reply.id);
      this.#postedLength -= job.request.input.length;
      this.#options.onReply(job, reply);
    }
    if (this.#posted.size === 0) this.#isAlone = false;
    this.#setWatch();
    this.#options.onProgress();
  }

  /** Looks at it when what runs now would be overdue; a look that comes too early sets the next one. */
  #setWatch(): void {
    if (this.#posted.size === 0) {
      clearTimeout(this.#watch);
      this.#watch = undefined;
      return;
    }
    const now = performance.now();
    const lookAt = Math.min(this.#overdueAt(), now + MAX_WATCH_MS);
    if (this.#watch !== undefined && this.#watchedAt <= lookAt) return;
    clearTimeout(this.#watch);
    this.#watchedAt = lookAt;
    this.#watch = setTimeout(() => {
      // What this process could not read for being busy itself is read before the next turn.
      setImmediate(() => this.#look());
    }, lookAt - now);
    this.#watch.unref();
  }

  #look(): void {
    this.#watch = undefined;
    if (this.#posted.size > 0 && performance.now() >= this.#overdueAt()) {
      this.#isOverdue = true;
      this.#process.kill();
    } else {
      this.#setWatch();
    }
  }

  /** The first evaluation without a reply runs, or one with the same time limit; see `EvaluationServer`. */
  #overdueAt(): number {
    if (this.#runningSince === undefined) return this.#postedAt + START_TIMEOUT_MS;
    const [first] = this.#posted.values();
    return this.#runningSince + (first?.request.timeoutMs ?? 0) + this.#options.graceMs;
  }
}
