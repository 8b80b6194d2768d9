import { errorText, TransformError } from "../../model/errors.ts";
import type { Evaluation } from "../../ports/evaluator.ts";
import type { EvaluationRequest, EvaluationResult, WorkerReport } from "./protocol.ts";

/** An expression that is ready to run, with the limits it was compiled with. */
interface Program {
  evaluate(input: string, bindings: Evaluation["bindings"]): Promise<string>;
}

export interface EvaluationServerOptions {
  /** @throws TransformError when the expression does not compile */
  readonly compile: (expression: string, limits: Pick<Evaluation, "timeoutMs" | "maxDepth">) => Program;
  /** The report has left the process when it returns: the first request without a reply is always the running one. */
  readonly send: (report: WorkerReport) => void;
  /** Monotonic ms. Default: that of the system. */
  readonly now?: () => number;
}

/** Characters of expressions that are kept compiled; compiled they take about a hundred times that. */
const MAX_CACHED_LENGTH = 256 * 1024;
/** Longest work without a look at what waits. A busy machine makes short evaluations look long. */
const SLICE_MS = 20;

/**
 * The worker's side: runs one evaluation at a time, in the order they came, so that no time limit counts the time of
 * others. After a slice of time it returns what waits, unless that takes less than another slice at the same pace, and
 * the pool decides anew what runs next: what it expected of them was wrong.
 */
export class EvaluationServer {
  readonly #options: EvaluationServerOptions;
  readonly #now: () => number;
  #waiting: EvaluationRequest[] = [];
  /** By limits and expression, the one used last at the end. */
  readonly #programs = new Map<string, { readonly program: Program; readonly length: number }>();
  #cachedLength = 0;
  #running: Promise<void> | undefined;

  constructor(options: EvaluationServerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** Takes requests. @returns when none waits any more */
  receive(requests: readonly EvaluationRequest[]): Promise<void> {
    this.#waiting.push(...requests);
    this.#running ??= this.#run();
    return this.#running;
  }

  async #run(): Promise<void> {
    const { send } = this.#options;
    await readAll();
    send({ kind: "started" });
    let [since, count] = [this.#now(), 0];
    for (let request = this.#waiting.shift(); request !== undefined; request = this.#waiting.shift()) {
      const startedAt = this.#now();
      const result = await this.#evaluate(request);
      const ms = this.#now() - startedAt;
      send({ kind: "reply", reply: { id: request.id, ms, ...result } });
      count += 1;
      const sliceMs = this.#now() - since;
      if (sliceMs <= SLICE_MS) continue;
      await readAll();
      const last = this.#waiting.at(-1);
      if (last !== undefined && (sliceMs / count) * this.#waiting.length > SLICE_MS) {
        this.#waiting = [];
        send({ kind: "returned", id: last.id });
      }
      [since, count] = [this.#now(), 0];
    }
    this.#running = undefined;
  }

  async #evaluate(request: EvaluationRequest): Promise<EvaluationResult> {
    try {
      const program = this.#program(request);
      return { result: await program.evaluate(request.input, request.bindings) };
    } catch (error) {
      if (error instanceof TransformError) return { code: error.code, message: error.message };
      return { code: "failed", message: errorText(error) };
    }
  }

  #program({ expression, timeoutMs, maxDepth }: EvaluationRequest): Program {
    const key = `${timeoutMs} ${maxDepth} ${expression}`;
    const cached = this.#programs.get(key);
    if (cached !== undefined) {
      this.#programs.delete(key);
      this.#programs.set(key, cached);
      return cached.program;
    }
    const program = this.#options.compile(expression, { timeoutMs, maxDepth });
    this.#programs.set(key, { program, length: expression.length });
    this.#cachedLength += expression.length;
    for (const [oldestKey, oldest] of this.#programs) {
      if (this.#cachedLength <= MAX_CACHED_LENGTH || oldestKey === key) break;
      this.#programs.delete(oldestKey);
      this.#cachedLength -= oldest.length;
    }
    return program;
  }
}

/** Waits until the requests that have come are received: between two turns the event loop reads the channel. */
async function readAll(): Promise<void> {
  await new Promise(setImmediate);
  await new Promise(setImmediate);
}
