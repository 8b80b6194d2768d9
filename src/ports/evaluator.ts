/** One evaluation of a transform expression. */
export interface Evaluation {
  /**
   * Whom it is for, such as `sources.orders`. Lanes share the workers by time, so that the backlog of one, or payloads that take
   * long, delay that lane and no other.
   */
  readonly lane: string;
  /** JSONata. */
  readonly expression: string;
  /** The input document `$` as JSON text. */
  readonly input: string;
  /** Variables by name without `$`; JSON values, null included. A name that is absent is unbound. */
  readonly bindings: Readonly<Record<string, unknown>>;
  /** Longest evaluation in ms; waiting for other evaluations does not count. */
  readonly timeoutMs: number;
  /** Deepest recursion. */
  readonly maxDepth: number;
  /**
   * Whether it is refused (`busy`) when too much waits. Default false: for callers that bound by themselves how many evaluations
   * they have at a time.
   */
  readonly refusable?: boolean;
}

/**
 * Evaluates expressions off the event loop: whatever expression and input, timers and sockets of the caller go on meanwhile.
 * Evaluations may be asked for concurrently; those of one lane begin in the order in which they were asked for.
 */
export interface Evaluator {
  /**
   * @returns the result as JSON text
   * @throws TransformError when there is no result: the expression does not compile or fails, the input is not JSON, a limit was
   *   exceeded, the result is nothing or cannot be written as JSON; `busy` and `closed` when it was not run
   */
  evaluate(evaluation: Evaluation): Promise<string>;
  /** Ends everything; an evaluation that still runs or waits rejects. Safe to call twice. */
  close(): Promise<void>;
}
