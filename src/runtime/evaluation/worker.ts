import { type ChildProcess, fork } from "node:child_process";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { errorText } from "../../model/errors.ts";
import { type EvaluationJob, UNKNOWN_MS } from "./lanes.ts";
import { type EvaluationReply, type EvaluationRequest, parseReport, REPORT_FD, type WorkerReport } from "./protocol.ts";

interface EvaluationWorkerOptions {
  /** The worker's entry, a JavaScript file. */
  readonly script: URL;
  /** Largest JavaScript heap of the worker, in MiB. */
  readonly memoryLimitMb: number;
  /** How much longer than its `timeoutMs` an evaluation may take before the worker is killed, in ms. */
  readonly graceMs: number;
  readonly onReady: () => void;
  readonly onReply: (job: EvaluationJob, reply: EvaluationReply) => void;
  /** It returns evaluations that it has not run. */
  readonly onReturned: (jobs: readonly EvaluationJob[]) => void;
  /** Replies have come, and there may be room for more. */
  readonly onProgress: () => void;
  /** The process is gone, and every report of it is handled; what it had is in `unanswered`. Called once. */
  readonly onEnd: (end: WorkerEnd) => void;
}

export interface WorkerEnd {
  /** `not_started`: it never got ready. `out_of_memory`: its heap was full. */
  readonly kind: "not_started" | "out_of_memory" | "other";
  /** How it ended, for a sentence: "the evaluation worker ...". */
  readonly reason: string;
}

/** A worker loads in 0.1 s; an overloaded machine takes many times that. */
const START_TIMEOUT_MS = 30_000;
/** Longest time between two checks of a worker: a timer cannot hold a `timeoutMs` of any length. */
const MAX_CHECK_MS = 60_000;
const LAST_WORDS_LENGTH = 1000;
/** Evaluations that a worker has at a time: enough that it never waits for the next. */
const MAX_POSTED = 64;
/** Characters of inputs that a worker has at a time, but for one larger input. */
const MAX_POSTED_LENGTH = 1024 * 1024;
/** Their expected time together in ms, but for one longer evaluation: the longest wait behind what a worker has. */
const MAX_POSTED_MS = UNKNOWN_MS;
/** How V8 ends a process whose heap is full, by its version and the kind of allocation. */
const OUT_OF_MEMORY_SIGNALS: ReadonlySet<NodeJS.Signals> = new Set(["SIGABRT", "SIGTRAP", "SIGILL"]);

/**
 * A worker process and the evaluations it was given. It is killed when one of them is overdue.
 *
 * A process, since a thread that runs out of memory in one allocation (a text of 400 MB, say) ends the whole service.
 * It gets no environment variable, no argument and no file but its channels.
 */
export class EvaluationWorker {
  /** Settles when the process is gone. */
  readonly ended: Promise<void>;
  readonly #options: EvaluationWorkerOptions;
  readonly #child: ChildProcess;
  readonly #startLimit: NodeJS.Timeout;
  isReady = false;
  /** Whether it was killed for an evaluation that took too long. */
  isOverdue = false;
  /** Whether it was ended because it is no longer needed. */
  isRetired = false;
  /** Characters of the inputs it has. */
  inputLength = 0;
  /** What its evaluations are expected to take together, in ms. */
  expectedMs = 0;
  #spawnError: unknown;
  /** The end of what it wrote to standard error, for a worker that does not start. */
  #lastWords = "";
  /** The pieces of a line whose end has not come. */
  #line: string[] = [];
  /** By request id, in the order in which they run. */
  readonly #posted = new Map<number, EvaluationJob>();
  #lastId = 0;
  #unsent: EvaluationRequest[] = [];
  /** Monotonic ms of the last post. */
  #postedAt = 0;
  /** Monotonic ms when the running evaluation began, or somewhat later; undefined until an idle worker has begun. */
  #runningSince: number | undefined;
  #check: NodeJS.Timeout | undefined;
  /** Monotonic ms of the next check. */
  #checkAt = 0;

  /** @throws Error when the system cannot start a process */
  constructor(options: EvaluationWorkerOptions) {
    this.#options = options;
    this.#child = fork(fileURLToPath(options.script), [], {
      env: {},
      // Nothing here makes code from text, and no object of a payload may reach a prototype.
      execArgv: [
        `--max-old-space-size=${options.memoryLimitMb}`,
        "--disallow-code-generation-from-strings",
        "--disable-proto=delete",
      ],
      stdio: ["ignore", "ignore", "pipe", "ipc", "pipe"],
      serialization: "json",
    });
    // A child's pipe is a socket, unlike its type.
    const reports = this.#child.stdio[REPORT_FD] as Socket | null | undefined;
    reports?.setEncoding("utf8").on("data", (text: string) => this.#receive(text));
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#lastWords = (this.#lastWords + text).slice(-LAST_WORDS_LENGTH);
    });
    this.#startLimit = setTimeout(() => this.#kill(), START_TIMEOUT_MS);
    this.ended = this.#end();
  }

  /** Evaluations it has, the running one included. */
  get count(): number {
    return this.#posted.size;
  }

  /** How long the running evaluation has taken so far, in ms. */
  get runningMs(): number {
    return this.#runningSince === undefined ? 0 : performance.now() - this.#runningSince;
  }

  /** What it has no reply to, in the order in which it runs. */
  get unanswered(): readonly EvaluationJob[] {
    return [...this.#posted.values()];
  }

  /** The evaluation that runs, or ran when the worker ended: each reply is sent before the next evaluation begins. */
  get running(): EvaluationJob | undefined {
    const [first] = this.#posted.values();
    return first;
  }

  hasRoomFor({ evaluation, lane }: EvaluationJob): boolean {
    if (this.count === 0) return true;
    return (
      this.count < MAX_POSTED &&
      this.inputLength + evaluation.input.length <= MAX_POSTED_LENGTH &&
      this.expectedMs + lane.expectedMs <= MAX_POSTED_MS
    );
  }

  /** Gives it an evaluation, which is on its way after `send`. */
  give(job: EvaluationJob): void {
    if (this.#posted.size === 0) this.#runningSince = undefined;
    this.#lastId += 1;
    this.#posted.set(this.#lastId, job);
    this.inputLength += job.evaluation.input.length;
    this.expectedMs += job.charged;
    const { expression, input, bindings, timeoutMs, maxDepth } = job.evaluation;
    this.#unsent.push({ id: this.#lastId, expression, input, bindings, timeoutMs, maxDepth });
  }

  /** Sends what it was given. A process that is gone gets nothing: `onEnd` comes or has come. */
  send(): void {
    if (this.#unsent.length === 0) return;
    const requests = this.#unsent;
    this.#unsent = [];
    try {
      if (this.#child.connected) this.#child.send(requests, () => {});
    } catch (error) {
      const message = `the variables are not JSON: ${errorText(error)}`;
      for (const job of this.#remove(requests.map(({ id }) => id))) job.settle({ code: "failed", message });
    }
    this.#postedAt = performance.now();
    this.#scheduleCheck();
  }

  /** Ends it at once, and forgets what it has. */
  retire(): void {
    clearTimeout(this.#check);
    this.isRetired = true;
    this.#posted.clear();
    this.#kill();
  }

  #kill(): void {
    this.#child.kill("SIGKILL");
  }

  #remove(ids: readonly number[]): EvaluationJob[] {
    return ids.flatMap((id) => {
      const job = this.#posted.get(id);
      if (job === undefined) return [];
      this.#posted.delete(id);
      this.inputLength -= job.evaluation.input.length;
      this.expectedMs = this.#posted.size === 0 ? 0 : this.expectedMs - job.charged;
      return [job];
    });
  }

  #receive(text: string): void {
    // Any part of a report shows that the evaluation before it has ended: a long result takes its time to travel.
    this.#runningSince = performance.now();
    const pieces = text.split("\n");
    // What follows the last line break is the beginning of a line.
    const rest = pieces.pop() ?? "";
    if (pieces.length === 0) {
      this.#line.push(rest);
      return;
    }
    pieces[0] = this.#line.join("") + pieces[0];
    this.#line = rest === "" ? [] : [rest];
    for (const piece of pieces) this.#handle(parseReport(piece));
    this.#scheduleCheck();
    this.#options.onProgress();
  }

  #handle(report: WorkerReport): void {
    switch (report.kind) {
      case "ready":
        this.isReady = true;
        clearTimeout(this.#startLimit);
        this.#options.onReady();
        return;
      case "started":
        return;
      case "reply":
        for (const job of this.#remove([report.reply.id])) this.#options.onReply(job, report.reply);
        return;
      case "returned":
        this.#options.onReturned(this.#remove([...this.#posted.keys()].filter((id) => id <= report.id)));
        return;
    }
  }

  /** Checks it when the running evaluation would be overdue; a check that comes too early schedules the next one. */
  #scheduleCheck(): void {
    if (this.#posted.size === 0) {
      clearTimeout(this.#check);
      this.#check = undefined;
      return;
    }
    const now = performance.now();
    const checkAt = Math.min(this.#overdueAt(), now + MAX_CHECK_MS);
    if (this.#check !== undefined && this.#checkAt <= checkAt) return;
    clearTimeout(this.#check);
    this.#checkAt = checkAt;
    // Reports that came while this process was busy are read before the next turn.
    this.#check = setTimeout(() => setImmediate(() => this.#checkTime()), checkAt - now);
    this.#check.unref();
  }

  #checkTime(): void {
    this.#check = undefined;
    if (this.#posted.size > 0 && performance.now() >= this.#overdueAt()) {
      this.isOverdue = true;
      this.#kill();
      return;
    }
    this.#scheduleCheck();
  }

  #overdueAt(): number {
    if (this.#runningSince === undefined) return this.#postedAt + START_TIMEOUT_MS;
    return this.#runningSince + (this.running?.evaluation.timeoutMs ?? 0) + this.#options.graceMs;
  }

  async #end(): Promise<void> {
    const child = this.#child;
    await new Promise<void>((resolve) => {
      child.on("error", (error) => {
        this.#spawnError = error;
        // A process that was started ends by "close"; an error of its channel may come before.
        if (child.pid === undefined) resolve();
      });
      // Its last reports may come after its end.
      let left = 2;
      const onGone = () => {
        left--;
        if (left === 0) resolve();
      };
      child.once("close", onGone);
      child.once("disconnect", onGone);
    });
    clearTimeout(this.#startLimit);
    clearTimeout(this.#check);
    this.#options.onEnd(this.#describeEnd());
  }

  #describeEnd(): WorkerEnd {
    const { exitCode, signalCode } = this.#child;
    const how = signalCode === null ? `ended with code ${exitCode}` : `was ended by ${signalCode}`;
    if (!this.isReady) {
      const why = this.#spawnError === undefined ? this.#lastWords.trim() : errorText(this.#spawnError);
      return { kind: "not_started", reason: why === "" ? `${how} before it was ready` : `${how}: ${why}` };
    }
    const outOfMemory = signalCode !== null && OUT_OF_MEMORY_SIGNALS.has(signalCode);
    return { kind: outOfMemory ? "out_of_memory" : "other", reason: how };
  }
}
