import type { TransformErrorCode } from "../../model/errors.ts";
import type { Evaluation } from "../../ports/evaluator.ts";

/** What the service and its evaluation workers say to each other: JSON, which is faster here than Node's own serialization. */

export interface EvaluationRequest extends Evaluation {
  readonly id: number;
}

/** Evaluations for a worker, to be run one after another in this order. */
export interface EvaluationBatch {
  readonly requests: readonly EvaluationRequest[];
  /** Whether the worker says when it begins, since one of its kind has ended a worker before. */
  readonly announced: boolean;
}

export type EvaluationReply =
  | { readonly id: number; readonly result: string }
  | { readonly id: number; readonly code: TransformErrorCode; readonly message: string };

export type WorkerMessage =
  /** The worker has loaded and takes requests. */
  | { readonly kind: "ready" }
  /** An announced evaluation begins. */
  | { readonly kind: "started" }
  | { readonly kind: "replies"; readonly replies: readonly EvaluationReply[] };

/**
 * Most replies that a worker keeps back to send them together: one message a reply would cost more than half of a small evaluation.
 * When a worker ends, what it was running is among this many and one of the evaluations without a reply.
 */
export const MAX_HELD_REPLIES = 16;
