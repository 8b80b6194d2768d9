import type { IncomingMessage, ServerResponse } from "node:http";
import { ConfigError } from "../../model/errors.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { type AnswerError, admit } from "../admission.ts";
import type { BodyLimits } from "../body.ts";
import { createVerifier, type InboundAuth } from "../credentials.ts";

/** What stands before the admin routes. */
export interface GateOptions {
  /** Section `admin`. */
  readonly admin: { readonly auth?: InboundAuth | undefined; readonly insecure: boolean };
  readonly limits: BodyLimits;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

/** Admits a request or answers it; see {@link admit}. */
export type Gate = (req: IncomingMessage, res: ServerResponse, answerError: AnswerError) => Promise<Buffer | null>;

/**
 * Makes the gate of the admin routes (spec, "Authentication").
 *
 * @throws ConfigError when there are no credentials to check and `admin.insecure` is not set, or when `admin.auth` is unusable
 */
export function createGate({ admin, limits, clock, log }: GateOptions): Gate {
  const verifier = admin.insecure ? null : createVerifier(required(admin.auth), { path: "admin.auth", clock });

  const onRefused = (req: IncomingMessage, reason: string): void =>
    log.warn({ path: req.url?.split("?", 1)[0], reason }, "an admin request was refused");
  return (req, res, answerError) => admit(req, res, { limits, verifier, onRefused }, answerError);
}

function required(auth: InboundAuth | undefined): InboundAuth {
  if (auth !== undefined) return auth;
  const message = "is required when admin.enabled is true (for a local test, set admin.insecure to true instead)";
  throw new ConfigError([{ path: "admin.auth", message }]);
}
