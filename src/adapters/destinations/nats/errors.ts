import { PublishError } from "../../../model/errors.ts";
import { NATS_FAULT_CODES, NatsFault } from "../../brokers/nats/faults.ts";

/** Why a publish to NATS failed: the codes of its `PublishError`. */
export const NATS_ERROR_CODES = [
  ...NATS_FAULT_CODES,
  /** The user may not publish to the subject, or not receive the acknowledgement. */
  "permission",
  /** No stream takes the subject. */
  "no_stream",
  /** The stream refused the message: it is full, sealed, or the message exceeds its limits. */
  "rejected",
  /** The answer came from something other than a stream. */
  "bad_acknowledgement",
  /** Body and headers exceed the server's limit. */
  "too_large",
  /** This subject cannot be published to. */
  "subject_invalid",
  "closed",
] as const;
type NatsErrorCode = (typeof NATS_ERROR_CODES)[number];

/** A {@link PublishError} whose code is one of {@link NATS_ERROR_CODES}. */
export function natsError(code: NatsErrorCode, message: string): PublishError {
  return new PublishError(code, message, { isPermanent: code === "subject_invalid" });
}

/** Why a publish without a connection failed. */
export function noConnection(error: unknown): PublishError {
  if (error instanceof PublishError) return error;
  if (error instanceof NatsFault) return natsError(error.code, `no connection: ${error.message}`);
  return natsError("other", "no connection: the attempt to connect failed in an unforeseen way");
}
