import type { TransformErrorCode } from "../../model/errors.ts";
import type { Evaluation } from "../../ports/evaluator.ts";

/**
 * What the service and its evaluation workers send each other: requests over the IPC channel, many at a time; reports
 * as lines of text over another pipe, written synchronously, so that each arrives even when the worker is killed after
 * it.
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
  /** It returns the unanswered requests up to this id: the last one took long, and others may be more urgent. */
  | { readonly kind: "returned"; readonly id: number };

/** File descriptor of the reports in the worker. */
export const REPORT_FD = 4;

/** A report as a line, its end included. A result is JSON and so without line breaks; it is not encoded again. */
export function reportLine(report: WorkerReport): string {
  switch (report.kind) {
    case "ready":
      return "R\n";
    case "started":
      return "S\n";
    case "returned":
      return `B${report.id}\n`;
    case "reply": {
      const { reply } = report;
      const head = `${reply.id} ${reply.ms.toFixed(3)}`;
      if ("result" in reply) return `=${head} ${reply.result}\n`;
      return `!${head} ${JSON.stringify({ code: reply.code, message: reply.message })}\n`;
    }
  }
}

/** The report of a line without its end. */
export function parseReport(line: string): WorkerReport {
  switch (line[0]) {
    case "R":
      return { kind: "ready" };
    case "S":
      return { kind: "started" };
    case "B":
      return { kind: "returned", id: Number(line.slice(1)) };
    default:
      return { kind: "reply", reply: parseReply(line) };
  }
}

function parseReply(line: string): EvaluationReply {
  const afterId = line.indexOf(" ");
  const afterMs = line.indexOf(" ", afterId + 1);
  const head = { id: Number(line.slice(1, afterId)), ms: Number(line.slice(afterId + 1, afterMs)) };
  const text = line.slice(afterMs + 1);
  if (line[0] === "=") return { ...head, result: text };
  return { ...head, ...(JSON.parse(text) as { readonly code: TransformErrorCode; readonly message: string }) };
}
