import { errorText, TransformError } from "../../model/errors.ts";
import type { Evaluation } from "../../ports/evaluator.ts";
import {
  type EvaluationBatch,
  type EvaluationReply,
  type EvaluationRequest,
  MAX_HELD_REPLIES,
  type WorkerMessage,
} from "./protocol.ts";

/** An expression that is ready to run, with the limits it was compiled with. */
export interface Program {
  evaluate(input: string, bindings: Evaluation["bindings"]): Promise<string>;
}

export interface EvaluationServerOptions {
  /** @throws TransformError when the expression does not compile */
  readonly compile: (expression: string, limits: Pick<Evaluation, "timeoutMs" | "maxDepth">) => Program;
  /** Resolves when the message has left the process, so that a long evaluation cannot hold it up. */
  readonly send: (message: WorkerMessage) => Promise<void>;
  /** Monotonic ms. Default: that of the system. */
  readonly now?: () => number;
}

interface CachedProgram {
  readonly program: Program;
  readonly length: number;
  /** Whether its last evaluation was short enough to keep replies back for another one. */
  quick: boolean;
}

/** Characters of expressions that are kept compiled; compiled they take about a hundred times that. */
const MAX_CACHED_LENGTH = 256 * 1024;
/** Replies of this many characters together leave at once. */
const MAX_HELD_LENGTH = 64 * 1024;
/** So the oldest reply that is kept back waits for a few milliseconds at most. */
const QUICK_MS = 0.25;

/**
 * The worker's side: runs evaluations one after another, in the order they came, so that the time limit of one never counts the
 * time of others.
 *
 * A reply leaves before the next evaluation begins, unless that one is expected to be quick as the last one of its expression was;
 * then up to {@link MAX_HELD_REPLIES} leave together. All that are kept back share one time limit with the one that runs.
 */
export class EvaluationServer {
  readonly #options: EvaluationServerOptions;
  readonly #now: () => number;
  readonly #waiting: { readonly request: EvaluationRequest; readonly announced: boolean }[] = [];
  /** By limits and expression, the one used last at the end. */
  readonly #programs = new Map<string, CachedProgram>();
  #cachedLength = 0;
  #held: EvaluationReply[] = [];
  #heldLength = 0;
  #heldTimeoutMs = 0;
  #isRunning = false;
  #running: Promise<void> = Promise.resolve();

  constructor(options: EvaluationServerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /**
   * Takes requests.
   *
   * @returns when nothing waits any more and the replies have left
   */
  receive({ requests, announced }: EvaluationBatch): Promise<void> {
    for (const request of requests) this.#waiting.push({ request, announced });
    if (!this.#isRunning) {
      this.#isRunning = true;
      this.#running = this.#run();
    }
    return this.#running;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0 || this.#held.length > 0) {
      const next = this.#waiting.shift();
      if (next === undefined) await this.#flush();
      else await this.#serve(next.request, next.announced);
    }
    this.#isRunning = false;
  }

  async #serve(request: EvaluationRequest, announced: boolean): Promise<void> {
    const cached = this.#cached(request);
    if (!this.#mayHold(request, cached)) await this.#flush();
    if (announced) await this.#options.send({ kind: "started" });
    const reply = await this.#evaluate(request, cached);
    this.#held.push(reply);
    this.#heldLength += "result" in reply ? reply.result.length : 0;
    this.#heldTimeoutMs = request.timeoutMs;
  }

  #mayHold(next: EvaluationRequest, cached: CachedProgram | undefined): boolean {
    return (
      this.#held.length < MAX_HELD_REPLIES &&
      this.#heldLength < MAX_HELD_LENGTH &&
      next.timeoutMs === this.#heldTimeoutMs &&
      cached?.quick === true
    );
  }

  async #flush(): Promise<void> {
    if (this.#held.length === 0) return;
    const replies = this.#held;
    this.#held = [];
    this.#heldLength = 0;
    await this.#options.send({ kind: "replies", replies });
  }

  async #evaluate(request: EvaluationRequest, cached: CachedProgram | undefined): Promise<EvaluationReply> {
    const { id, input, bindings } = request;
    try {
      const entry = cached ?? this.#compile(request);
      const startedAt = this.#now();
      entry.quick = false;
      const result = await entry.program.evaluate(input, bindings);
      entry.quick = this.#now() - startedAt < QUICK_MS;
      return { id, result };
    } catch (error) {
      const code = error instanceof TransformError ? error.code : "failed";
      return { id, code, message: error instanceof TransformError ? error.message : errorText(error) };
    }
  }

  #cached(request: EvaluationRequest): CachedProgram | undefined {
    const key = keyOf(request);
    const cached = this.#programs.get(key);
    if (cached === undefined) return undefined;
    this.#programs.delete(key);
    this.#programs.set(key, cached);
    return cached;
  }

  #compile(request: EvaluationRequest): CachedProgram {
    const { expression, timeoutMs, maxDepth } = request;
    const program = this.#options.compile(expression, { timeoutMs, maxDepth });
    const entry: CachedProgram = { program, length: expression.length, quick: false };
    this.#programs.set(keyOf(request), entry);
    this.#cachedLength += entry.length;
    for (const [key, oldest] of this.#programs) {
      if (this.#cachedLength <= MAX_CACHED_LENGTH || oldest === entry) break;
      this.#programs.delete(key);
      this.#cachedLength -= oldest.length;
    }
    return entry;
  }
}

function keyOf({ expression, timeoutMs, maxDepth }: EvaluationRequest): string {
  return `${timeoutMs} ${maxDepth} ${expression}`;
}
