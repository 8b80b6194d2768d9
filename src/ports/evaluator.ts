/** One evaluation of a transform expression. */
export interface Evaluation {
  /** The caller, such as `sources.orders`. Lanes share the workers by time: no backlog delays another. */
  readonly lane: string;
  readonly expression: string;
  /** The input document `$` as JSON text. */
  readonly input: string;
  /** Variables by name without `$`; JSON values, null included. A name that is absent is unbound. */
  readonly bindings: Readonly<Record<string, unknown>>;
  /** Longest evaluation in ms; waiting for other evaluations does not count. */
  readonly timeoutMs: number;
  readonly maxDepth: number;
  /** Whether to refuse it (`busy`) when too much waits. Default false: for callers that bound their evaluations. */
  readonly refusable?: boolean;
}

/**
 * Evaluates expressions off the event loop: timers and sockets of the caller continue, whatever the expression and
 * input. Evaluations may run concurrently; those of one lane begin in the order of the calls.
 */
export interface Evaluator {
  /**
   * @returns the result as JSON text
   * @throws TransformError when the expression does not compile or fails, the input is not JSON, a limit was exceeded,
   *   or the result is nothing or not JSON; `busy` and `closed` when it was not run
   */
  evaluate(evaluation: Evaluation): Promise<string>;
  /** Ends everything; an evaluation that still runs or waits rejects. Safe to call twice. */
  close(): Promise<void>;
}

/** Of an expression without limits of its own, and those of a transform block by default. */
export const DEFAULT_LIMITS = { timeoutMs: 100, maxDepth: 100 } as const;
