import { type ChildProcess, fork } from "node:child_process";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { errorText } from "../../model/errors.ts";
import { Note } from "./note.ts";
import { type EvaluationRequest, parseReport, REPORT_FD, type RunningNote, type WorkerReport } from "./protocol.ts";

export interface EvaluatorProcessOptions {
  /** The worker's entry, a JavaScript file. */
  readonly script: URL;
  /** Largest JavaScript heap of the worker. */
  readonly memoryLimitMb: number;
  /** Longest wait for the worker to load, in ms. */
  readonly startTimeoutMs: number;
  /** What it reports, in order; all that came together. */
  readonly onReports: (reports: readonly WorkerReport[]) => void;
  /** A part of a long report has come. */
  readonly onPart: () => void;
  /** The process is gone, and all of its reports have been handed over. Called once. */
  readonly onEnd: (end: ProcessEnd) => void;
}

export interface ProcessEnd {
  /** `not_started`: it never got ready. `out_of_memory`: its heap was full. */
  readonly kind: "not_started" | "out_of_memory" | "other";
  /** How it ended, for a sentence: "the evaluation worker ...". */
  readonly reason: string;
}

/**
 * One evaluation worker: a process of its own, since a thread that runs out of memory in one allocation (a text of 400 MB, say) takes
 * the whole process with it. It gets no variable of the environment, no argument and no file but its channels and its note.
 */
export class EvaluatorProcess {
  /** Settles when the process is gone. */
  readonly ended: Promise<void>;
  readonly #options: EvaluatorProcessOptions;
  readonly #child: ChildProcess;
  readonly #note = Note.open();
  /** What the note said when the process had ended. */
  #lastNote: RunningNote | undefined;
  #ended = false;
  readonly #startLimit: NodeJS.Timeout;
  #ready = false;
  #killed = false;
  #spawnError: unknown;
  /** The end of what it wrote to standard error, for a worker that does not start. */
  #lastWords = "";
  /** The pieces of a line whose end has not come. */
  #line: string[] = [];

  constructor(options: EvaluatorProcessOptions) {
    this.#options = options;
    this.#child = fork(fileURLToPath(options.script), [], {
      env: {},
      // Nothing here makes code from text, and no object of a payload is to reach a prototype.
      execArgv: [
        `--max-old-space-size=${options.memoryLimitMb}`,
        "--disallow-code-generation-from-strings",
        "--disable-proto=delete",
      ],
      stdio: ["ignore", "ignore", "pipe", "ipc", "pipe", this.#note?.fd ?? "ignore"],
      serialization: "json",
    });
    this.#reports?.setEncoding("utf8").on("data", (text: string) => this.#receive(text));
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#lastWords = (this.#lastWords + text).slice(-LAST_WORDS_LENGTH);
    });
    this.#startLimit = setTimeout(() => this.kill(), options.startTimeoutMs);
    this.ended = this.#end();
  }

  get isReady(): boolean {
    return this.#ready;
  }

  /** What it noted last, read from its file; undefined for a worker without one. */
  get note(): RunningNote | undefined {
    return this.#ended ? this.#lastNote : this.#note?.read();
  }

  /** Whether it notes what it runs. */
  get hasNote(): boolean {
    return this.#note !== null;
  }

  /** Sends evaluations. To a process that is gone it does nothing: `onEnd` comes or has come. */
  send(requests: readonly EvaluationRequest[]): void {
    if (this.#child.connected) this.#child.send([...requests], () => {});
  }

  /** Ends the process at once; until it has ended it keeps this process alive. */
  kill(): void {
    this.#killed = true;
    this.keepAlive(true);
    this.#child.kill("SIGKILL");
  }

  /** Whether it keeps this process alive; while it starts, and from its `kill` on, it does. */
  keepAlive(wanted: boolean): void {
    for (const handle of this.#handles()) {
      if (wanted || !this.#ready || this.#killed) handle.ref();
      else handle.unref();
    }
  }

  get #reports(): Socket | null | undefined {
    // A pipe of a child is a socket; its type says less.
    return this.#child.stdio[REPORT_FD] as Socket | null | undefined;
  }

  #handles(): readonly { ref(): void; unref(): void }[] {
    const { channel, stderr } = this.#child;
    const handles = [this.#child, channel, stderr as Socket | null, this.#reports];
    return handles.filter((handle) => handle !== null && handle !== undefined);
  }

  #receive(text: string): void {
    const pieces = text.split("\n");
    // Only what follows the last line break is the beginning of a line.
    const rest = pieces.pop() ?? "";
    if (pieces.length === 0) {
      this.#line.push(rest);
      this.#options.onPart();
      return;
    }
    pieces[0] = this.#line.join("") + pieces[0];
    this.#line = rest === "" ? [] : [rest];
    const reports = pieces.map(parseReport);
    if (!this.#ready && reports.some(({ kind }) => kind === "ready")) {
      this.#ready = true;
      clearTimeout(this.#startLimit);
    }
    this.#options.onReports(reports);
  }

  async #end(): Promise<void> {
    const child = this.#child;
    await new Promise<void>((resolve) => {
      child.on("error", (error) => {
        this.#spawnError = error;
        // A process that was made ends by "close"; it may be that an error about its channel comes before.
        if (child.pid === undefined) resolve();
      });
      // What it said last may come behind its end.
      let left = 2;
      const onGone = () => {
        left--;
        if (left === 0) resolve();
      };
      child.once("close", onGone);
      child.once("disconnect", onGone);
    });
    clearTimeout(this.#startLimit);
    this.#lastNote = this.#note?.read();
    this.#note?.close();
    this.#ended = true;
    this.#options.onEnd(this.#describeEnd());
  }

  #describeEnd(): ProcessEnd {
    const { exitCode, signalCode } = this.#child;
    const how = signalCode === null ? `ended with code ${exitCode}` : `was ended by ${signalCode}`;
    if (!this.#ready) {
      const why = this.#spawnError === undefined ? this.#lastWords.trim() : errorText(this.#spawnError);
      return { kind: "not_started", reason: why === "" ? `${how} before it was ready` : `${how}: ${why}` };
    }
    const outOfMemory = signalCode !== null && OUT_OF_MEMORY_SIGNALS.has(signalCode);
    return { kind: outOfMemory ? "out_of_memory" : "other", reason: how };
  }
}

const LAST_WORDS_LENGTH = 1000;
/** How V8 ends a process whose heap is full, by its version and the kind of allocation. */
const OUT_OF_MEMORY_SIGNALS: ReadonlySet<NodeJS.Signals> = new Set(["SIGABRT", "SIGTRAP", "SIGILL"]);
