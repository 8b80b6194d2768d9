import type { IncomingMessage, ServerResponse } from "node:http";
import { readBody, tooLargeMessage } from "./body.ts";
import type { Verifier } from "./credentials.ts";

export interface Admission {
  /** Largest request body in bytes. */
  readonly maxBodyBytes: number;
  /** Null lets every caller pass. */
  readonly verifier: Verifier | null;
  /** Told of a request whose credentials do not hold. */
  readonly onRefused?: (req: IncomingMessage, reason: string) => void;
}

/** Answers with an error in the words of one route. */
export type AnswerError = (res: ServerResponse, status: number, message: string) => void;

/**
 * Reads a request's body and checks its credentials, in this order, since a signature is one of the body. A request that does not pass has
 * its answer (401, 413) when this resolves, unless its sender is gone.
 *
 * @returns the body's bytes, or null for a request that did not pass
 */
export async function admit(
  req: IncomingMessage,
  res: ServerResponse,
  { maxBodyBytes, verifier, onRefused }: Admission,
  answerError: AnswerError,
): Promise<Buffer | null> {
  const read = await readBody(req, res, maxBodyBytes);
  if (read.kind === "aborted") return null;
  if (read.kind === "too_large") {
    answerError(res, 413, tooLargeMessage(maxBodyBytes));
    return null;
  }
  const reason = verifier?.refusal(req.headers, read.body) ?? null;
  if (verifier === null || reason === null) return read.body;
  onRefused?.(req, reason);
  res.setHeader("WWW-Authenticate", verifier.challenge);
  answerError(res, 401, reason);
  return null;
}
