import type { EvaluationJob } from "./lanes.ts";
import { EvaluatorProcess, type ProcessEnd } from "./process.ts";
import { type EvaluationReply, sharedMonotonicMs, type WorkerReport } from "./protocol.ts";

export interface PooledWorkerOptions {
  readonly script: URL;
  readonly memoryLimitMb: number;
  /** How much longer than its `timeoutMs` an evaluation may take before the worker is ended. */
  readonly graceMs: number;
  readonly onReady: () => void;
  readonly onReply: (job: EvaluationJob, reply: EvaluationReply) => void;
  /** It gives back evaluations that it has not run. */
  readonly onReturned: (jobs: readonly EvaluationJob[]) => void;
  /** Replies have come, and there may be room for more. */
  readonly onProgress: () => void;
  /** An evaluation has exceeded its `timeoutMs` by half of `graceMs`: what waits behind it is to run elsewhere. */
  readonly onLate: () => void;
  /** The worker is gone; what it had is in `unanswered`. Called once. */
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
  /** By request id, in the order in which they run. */
  readonly #posted = new Map<number, EvaluationJob>();
  #lastId = 0;
  #postedLength = 0;
  #expectedMs = 0;
  #isLate = false;
  #isOverdue = false;
  #isRetired = false;
  /** Monotonic ms of the last post. */
  #postedAt = 0;
  /** Monotonic ms when the evaluation that runs began, or somewhat before; undefined when the worker has not begun. */
  #runningSince: number | undefined;
  /** Monotonic ms when a part of a long reply came last: its evaluation has ended. */
  #partAt = 0;
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
      onReports: (reports) => this.#receive(reports),
      onPart: () => {
        this.#partAt = performance.now();
      },
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

  /** Whether it was killed for an evaluation that took too long. */
  get isOverdue(): boolean {
    return this.#isOverdue;
  }

  /** Whether it was ended because it is not needed any more. */
  get isRetired(): boolean {
    return this.#isRetired;
  }

  /** Evaluations it has, the one that runs included. */
  get count(): number {
    return this.#posted.size;
  }

  /** Characters of their inputs. */
  get inputLength(): number {
    return this.#postedLength;
  }

  /** What they are expected to take together, in ms. */
  get expectedMs(): number {
    return this.#expectedMs;
  }

  /** How long the evaluation that runs has taken so far, in ms. */
  get runningMs(): number {
    return this.#runningSince === undefined ? 0 : performance.now() - this.#runningSince;
  }

  /** What it has no reply to, in the order in which it runs. */
  get unanswered(): readonly EvaluationJob[] {
    return [...this.#posted.values()];
  }

  /** The one of them that runs; of a worker that has ended: the one that ran. Reads a file. */
  get running(): EvaluationJob | undefined {
    const [first] = this.#posted.values();
    return this.#posted.get(this.#process.note?.id ?? 0) ?? first;
  }

  /**
   * Gives it evaluations.
   *
   * @throws TypeError when a variable is not JSON
   */
  post(jobs: readonly EvaluationJob[]): void {
    const requests = jobs.map(({ evaluation }, i) => {
      const { expression, input, bindings, timeoutMs, maxDepth } = evaluation;
      return { id: this.#lastId + 1 + i, expression, input, bindings, timeoutMs, maxDepth };
    });
    this.#process.send(requests);
    this.#lastId += jobs.length;
    this.#postedAt = performance.now();
    if (this.#posted.size === 0) this.#runningSince = this.#process.hasNote ? this.#postedAt : undefined;
    requests.forEach(({ id }, i) => {
      const job = jobs[i];
      if (job !== undefined) this.#add(id, job);
    });
    this.#setWatch();
  }

  /** Takes away all but the evaluation that runs. Should it run or have run all the same, nobody hears of it. */
  recall(): readonly EvaluationJob[] {
    const { running } = this;
    const others = [...this.#posted].filter(([, job]) => job !== running);
    return others.flatMap(([id]) => this.#remove(id) ?? []);
  }

  /** Whether it keeps this process alive. */
  keepAlive(wanted: boolean): void {
    this.#process.keepAlive(wanted);
  }

  /** Ends it at once, and forgets what it has. */
  retire(): void {
    clearTimeout(this.#watch);
    this.#isRetired = true;
    this.#posted.clear();
    this.#process.kill();
  }

  #add(id: number, job: EvaluationJob): void {
    this.#posted.set(id, job);
    this.#postedLength += job.evaluation.input.length;
    this.#expectedMs += job.charged;
  }

  #remove(id: number): EvaluationJob | undefined {
    const job = this.#posted.get(id);
    if (job === undefined) return undefined;
    this.#posted.delete(id);
    this.#postedLength -= job.evaluation.input.length;
    this.#expectedMs = this.#posted.size === 0 ? 0 : this.#expectedMs - job.charged;
    return job;
  }

  #receive(reports: readonly WorkerReport[]): void {
    this.#runningSince = performance.now();
    for (const report of reports) {
      switch (report.kind) {
        case "ready":
          this.#options.onReady();
          break;
        case "reply": {
          const job = this.#remove(report.reply.id);
          if (job !== undefined) this.#options.onReply(job, report.reply);
          break;
        }
        case "returned": {
          const ids = [...this.#posted.keys()].filter((id) => id <= report.id);
          this.#options.onReturned(ids.flatMap((id) => this.#remove(id) ?? []));
          break;
        }
        case "started":
          break;
      }
    }
    this.#setWatch();
    this.#options.onProgress();
  }

  /** Looks at it when what runs now would be late; a look that comes too early sets the next one. */
  #setWatch(): void {
    if (this.#posted.size === 0) {
      clearTimeout(this.#watch);
      this.#watch = undefined;
      return;
    }
    const now = performance.now();
    const lookAt = Math.min(this.#isLate ? this.#overdueAt() : this.#lateAt(), now + MAX_WATCH_MS);
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
    this.#readNote();
    const now = performance.now();
    if (this.#posted.size > 0 && now >= this.#overdueAt()) {
      this.#isOverdue = true;
      this.#process.kill();
      return;
    }
    if (!this.#isLate && this.#posted.size > 0 && now >= this.#lateAt()) {
      this.#isLate = true;
      this.#options.onLate();
    }
    this.#setWatch();
  }

  /** When the evaluation that runs began is known from here on. */
  #readNote(): void {
    const { note } = this.#process;
    if (!this.#process.hasNote) return;
    const isRunning = note !== undefined && this.#posted.has(note.id);
    const startedAt = isRunning ? performance.now() - (sharedMonotonicMs() - note.startedAt) : undefined;
    this.#runningSince = startedAt === undefined ? undefined : Math.max(startedAt, this.#partAt);
  }

  #lateAt(): number {
    return this.#overdueAt() - this.#options.graceMs / 2;
  }

  #overdueAt(): number {
    if (this.#runningSince === undefined) return this.#postedAt + START_TIMEOUT_MS;
    // Replies that are kept back belong to evaluations with the same time limit.
    const [first] = this.#posted.values();
    return this.#runningSince + (first?.evaluation.timeoutMs ?? 0) + this.#options.graceMs;
  }
}
