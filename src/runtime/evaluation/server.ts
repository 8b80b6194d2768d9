import { errorText, TransformError } from "../../model/errors.ts";
import type { Evaluation } from "../../ports/evaluator.ts";
import type { EvaluationReply, EvaluationRequest, EvaluationResult, WorkerReport } from "./protocol.ts";

/** An expression that is ready to run, with the limits it was compiled with. */
export interface Program {
  evaluate(input: string, bindings: Evaluation["bindings"]): Promise<string>;
}

export interface EvaluationServerOptions {
  /** @throws TransformError when the expression does not compile */
  readonly compile: (expression: string, limits: Pick<Evaluation, "timeoutMs" | "maxDepth">) => Program;
  /** They have left the process when it returns, so that a long evaluation cannot hold them up. */
  readonly send: (reports: readonly WorkerReport[]) => void;
  /** Notes which request begins, where the service finds it whatever becomes of this process. Without it no reply is kept back. */
  readonly note?: ((id: number) => void) | undefined;
  /** Monotonic ms. Default: that of the system. */
  readonly now?: () => number;
}

/** Characters of expressions that are kept compiled; compiled they take about a hundred times that. */
const MAX_CACHED_LENGTH = 256 * 1024;
/** After an evaluation that took longer, what waits behind it is given back. A busy machine makes short ones seem longer too. */
const LONG_MS = 20;
/** Most replies that leave together: one write a reply would cost a third of a small evaluation. */
const MAX_HELD = 16;
/** Characters of results that leave together. */
const MAX_HELD_LENGTH = 64 * 1024;
/** How old a reply may be when the next evaluation begins. */
const MAX_HELD_MS = 1;
/** Before a longer input replies leave in any case: it may take long. */
const SMALL_INPUT = 16 * 1024;

/**
 * The worker's side: runs evaluations one after another, in the order they came, so that the time limit of one never counts the
 * time of others. After a long one it gives back what waits, for the pool to decide anew what runs next.
 *
 * Replies to small evaluations are kept back for a moment, to leave together. Should the process end meanwhile, they are lost, but
 * what ran is known by its note.
 */
export class EvaluationServer {
  readonly #options: EvaluationServerOptions;
  readonly #now: () => number;
  #waiting: EvaluationRequest[] = [];
  /** By limits and expression, the one used last at the end. */
  readonly #programs = new Map<string, { readonly program: Program; readonly length: number }>();
  #cachedLength = 0;
  #held: WorkerReport[] = [];
  #heldLength = 0;
  #heldSince = 0;
  #heldTimeoutMs = 0;
  #running: Promise<void> | undefined;

  constructor(options: EvaluationServerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /**
   * Takes requests.
   *
   * @returns when none waits any more
   */
  receive(requests: readonly EvaluationRequest[]): Promise<void> {
    this.#waiting.push(...requests);
    this.#running ??= this.#run();
    return this.#running;
  }

  async #run(): Promise<void> {
    const { note } = this.#options;
    if (note === undefined) this.#options.send([{ kind: "started" }]);
    for (let request = this.#waiting.shift(); request !== undefined; request = this.#waiting.shift()) {
      const startedAt = this.#now();
      if (!this.#mayHold(request, startedAt)) this.#flush();
      note?.(request.id);
      const result = await this.#evaluate(request);
      const endedAt = this.#now();
      this.#heldTimeoutMs = request.timeoutMs;
      this.#hold({ id: request.id, ms: endedAt - startedAt, ...result }, endedAt);
      if (endedAt - startedAt > LONG_MS) this.#giveBack();
    }
    this.#flush();
    this.#running = undefined;
  }

  #mayHold({ input, timeoutMs }: EvaluationRequest, now: number): boolean {
    return (
      this.#options.note !== undefined &&
      this.#held.length < MAX_HELD &&
      this.#heldLength < MAX_HELD_LENGTH &&
      now - this.#heldSince < MAX_HELD_MS &&
      timeoutMs === this.#heldTimeoutMs &&
      input.length <= SMALL_INPUT
    );
  }

  #hold(reply: EvaluationReply, now: number): void {
    if (this.#held.length === 0) this.#heldSince = now;
    this.#held.push({ kind: "reply", reply });
    if ("result" in reply) this.#heldLength += reply.result.length;
  }

  #flush(): void {
    if (this.#held.length === 0) return;
    this.#options.send(this.#held);
    this.#held = [];
    this.#heldLength = 0;
  }

  #giveBack(): void {
    const last = this.#waiting.at(-1);
    if (last === undefined) return;
    this.#waiting = [];
    this.#held.push({ kind: "returned", id: last.id });
    this.#flush();
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
