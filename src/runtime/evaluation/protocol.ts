import type { TransformErrorCode } from "../../model/errors.ts";
import type { Evaluation } from "../../ports/evaluator.ts";

/**
 * Messages between the service and its evaluation workers: requests over the IPC channel, many at a time; reports as
 * lines over another pipe, written synchronously, so that each arrives even if the worker is killed after it.
 */

/** `id` grows from request to request of one worker, which runs them in this order. */
export interface EvaluationRequest extends Omit<Evaluation, "lane" | "refusable"> {
  readonly id: number;
}

export type EvaluationResult =
  | { readonly result: string }
  | { readonly code: TransformErrorCode; readonly message: string };

export type EvaluationReply = EvaluationResult & {
  readonly id: number;
  /** How long the evaluation took, in ms. */
  readonly ms: number;
};

export type WorkerReport =
  /** The worker has loaded and takes requests. */
  | { readonly kind: "ready" }
  /** It was idle and begins with what has come. */
  | { readonly kind: "started" }
  | { readonly kind: "reply"; readonly reply: EvaluationReply }
  /** It returns the unanswered requests up to this id: they take longer than expected, and others may be more urgent. */
  | { readonly kind: "returned"; readonly id: number };

/** File descriptor of the reports in the worker. */
export const REPORT_FD = 4;

/** A report as a line, its end included: JSON has no line breaks. */
export function reportLine(report: WorkerReport): string {
  return `${JSON.stringify(report)}\n`;
}

export function parseReport(line: string): WorkerReport {
  return JSON.parse(line) as WorkerReport;
}
