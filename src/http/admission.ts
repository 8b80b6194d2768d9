import type { IncomingMessage, ServerResponse } from "node:http";
import {
  ACCEPTED_ENCODINGS,
  announcesTooMuch,
  type BodyLimits,
  type BodyResult,
  decodeBody,
  decoderOf,
  readBody,
  skipBody,
} from "./body.ts";
import type { Verifier } from "./credentials.ts";
import { ERRORS, sendError, tooLargeMessage } from "./respond.ts";

interface Admission {
  readonly limits: BodyLimits;
  /** Null admits every caller. */
  readonly verifier: Verifier | null;
  /** Called for a request whose credentials do not hold. */
  readonly onRefused?: (req: IncomingMessage, reason: string) => void;
}

/** A request's body, decoded, from a sender whose credentials hold; or why there is none. */
export type Admitted =
  | BodyResult
  | { readonly kind: "unauthorized"; readonly reason: string; readonly challenge: string }
  | { readonly kind: "unsupported_encoding" }
  | { readonly kind: "undecodable" };

/** Answers with an error in the form of one route. */
export type AnswerError = (res: ServerResponse, status: number, message: string) => void;

/**
 * Reads a request's body and checks its credentials. What the headers alone can show is checked first: of a body whose
 * sender may not send it only the size counts, since a body above the cap is answered as such whoever sent it (spec,
 * "Processing order").
 *
 * @returns never rejects
 */
export async function receiveBody(
  req: IncomingMessage,
  res: ServerResponse,
  { limits, verifier }: Pick<Admission, "limits" | "verifier">,
): Promise<Admitted> {
  if (announcesTooMuch(req, limits.maxBytes)) return { kind: "too_large" };
  const refusal = verifier?.refusal(req, null) ?? null;
  if (verifier !== null && refusal !== null) {
    const size = await skipBody(req, res, limits.maxBytes);
    return size === "within"
      ? { kind: "unauthorized", reason: refusal, challenge: verifier.challenge }
      : { kind: size };
  }
  const decoder = decoderOf(req.headers["content-encoding"]);
  if (decoder === undefined) return { kind: "unsupported_encoding" };

  const read = await readBody(req, res, limits);
  if (read.kind !== "read") return read;
  // A signature covers the bytes that were sent.
  const reason = verifier?.signsBody ? verifier.refusal(req, read.body) : null;
  if (verifier !== null && reason !== null) return { kind: "unauthorized", reason, challenge: verifier.challenge };
  return decoder === null ? read : decodeBody(read.body, decoder, limits);
}

/** The answer to a request that was not admitted. @param maxBytes the cap, for the text of a 413 */
export function answerUnadmitted(
  res: ServerResponse,
  refused: Exclude<Admitted, { kind: "read" }>,
  maxBytes: number,
  answerError: AnswerError = sendError,
): void {
  switch (refused.kind) {
    case "too_large":
      answerError(res, 413, tooLargeMessage(maxBytes));
      break;
    case "unauthorized":
      res.setHeader("WWW-Authenticate", refused.challenge);
      answerError(res, 401, refused.reason);
      break;
    case "unsupported_encoding":
      res.setHeader("Accept-Encoding", ACCEPTED_ENCODINGS);
      answerError(res, 415, ERRORS.unsupportedEncoding);
      break;
    case "undecodable":
      answerError(res, 400, ERRORS.undecodable);
      break;
    case "overloaded":
      res.setHeader("Retry-After", 1);
      answerError(res, 503, ERRORS.overloaded);
      break;
    case "aborted":
      break;
  }
}

/**
 * {@link receiveBody} for a route that needs only the body. A request that is not admitted has its answer when this
 * resolves, unless its sender is gone.
 *
 * @returns the body's bytes, or null for a request that was not admitted
 */
export async function admit(
  req: IncomingMessage,
  res: ServerResponse,
  { limits, verifier, onRefused }: Admission,
  answerError?: AnswerError,
): Promise<Buffer | null> {
  const admitted = await receiveBody(req, res, { limits, verifier });
  if (admitted.kind === "read") return admitted.body;
  if (admitted.kind === "unauthorized") onRefused?.(req, admitted.reason);
  answerUnadmitted(res, admitted, limits.maxBytes, answerError);
  return null;
}
