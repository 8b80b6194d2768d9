import type { IncomingMessage, ServerResponse } from "node:http";
import { ConfigError } from "../../model/errors.ts";
import type { Clock, Log } from "../../ports/runtime.ts";
import { readBody, tooLargeMessage } from "../body.ts";
import { createVerifier, type InboundAuth } from "../credentials.ts";

/** What stands before the admin routes. */
export interface GateOptions {
  /** Section `admin`. */
  readonly admin: { readonly auth?: InboundAuth | undefined; readonly insecure: boolean };
  /** Largest request body in bytes. */
  readonly maxBodyBytes: number;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

/** Answers with an error in the words of one route. */
export type AnswerError = (res: ServerResponse, status: number, message: string) => void;

/**
 * Reads a request's body and checks its credentials, in this order, since a signature is one of the body. A request that does not pass has
 * its answer (401, 413) when this resolves, unless its sender is gone.
 *
 * @returns the body's bytes, or null for a request that did not pass
 */
export type Gate = (req: IncomingMessage, res: ServerResponse, answerError: AnswerError) => Promise<Buffer | null>;

/**
 * Makes the gate of the admin routes (spec, "Authentication").
 *
 * @throws ConfigError when there are no credentials to check and `admin.insecure` is not set, or when `admin.auth` is unusable
 */
export function createGate({ admin, maxBodyBytes, clock, log }: GateOptions): Gate {
  const verifier = admin.insecure ? null : createVerifier(required(admin.auth), { path: "admin.auth", clock });

  return async function pass(req, res, answerError) {
    const read = await readBody(req, res, maxBodyBytes);
    if (read.kind === "aborted") return null;
    if (read.kind === "too_large") {
      answerError(res, 413, tooLargeMessage(maxBodyBytes));
      return null;
    }
    const reason = verifier?.refusal(req.headers, read.body) ?? null;
    if (verifier === null || reason === null) return read.body;
    log.warn({ path: req.url?.split("?", 1)[0], reason }, "an admin request was refused");
    res.setHeader("WWW-Authenticate", verifier.challenge);
    answerError(res, 401, reason);
    return null;
  };
}

function required(auth: InboundAuth | undefined): InboundAuth {
  if (auth !== undefined) return auth;
  const message = "is required when admin.enabled is true (for a local test, set admin.insecure to true instead)";
  throw new ConfigError([{ path: "admin.auth", message }]);
}
