/** One evaluation of a transform expression. */
export interface Evaluation {
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
}

/**
 * Evaluates expressions off the event loop: whatever expression and input, timers and sockets of the caller go on meanwhile.
 * Evaluations may be asked for concurrently.
 */
export interface Evaluator {
  /**
   * @returns the result as JSON text
   * @throws TransformError when there is no result: the expression does not compile or fails, the input is no JSON, a limit was
   *   exceeded, the result is nothing or cannot be written as JSON
   */
  evaluate(evaluation: Evaluation): Promise<string>;
  /** Ends everything; an evaluation that still runs or waits rejects. Safe to call twice. */
  close(): Promise<void>;
}
