import { PublishError } from "../../model/errors.ts";

/**
 * What a delivery shows about its receiver: it works (`healthy`), even if it refuses this one message; it failed as it
 * would for any message (`failed`); or nothing (`unknown`), though another message might fare no better.
 */
export type Verdict = "healthy" | "failed" | "unknown";

/** What one delivery showed. */
export interface ReceiverReport {
  /** `unasked`: the row was not sent, for a reason of its own or because its delivery did not begin. */
  readonly receiver: Verdict | "unasked";
  /** The wait in ms that a failed receiver asked for, if any. */
  readonly retryAfterMs?: number | undefined;
  /** Why the delivery failed, redacted; of `failed` and `unknown`. */
  readonly reason?: string | undefined;
}

export const HEALTHY: ReceiverReport = { receiver: "healthy" };
export const NOT_ASKED: ReceiverReport = { receiver: "unasked" };

/** Every code of a `PublishError`. A code may come from several adapters, and means the same in all of them. */
const VERDICTS = new Map<string, ReceiverReport["receiver"]>([
  // The network, and the server behind it.
  ...each("failed", ["timeout", "connection_refused", "connection_lost", "unreachable", "dns", "tls", "protocol"]),
  // Access denied: no message would be accepted. Often a directory or an authorization server is down.
  ...each("failed", ["token", "credentials", "authentication", "vhost"]),
  // HTTP.
  ...each("failed", ["bad_response", "status_408", "status_429", "status_5xx"]),
  ...each("healthy", ["status_3xx", "status_4xx"]),
  // The broker answers, but cannot accept messages now; the same for a full queue or stream.
  ...each("failed", ["not_available", "nacked", "blocked", "rejected"]),
  // The broker answers: only the address or message of this row is wrong.
  ...each("healthy", ["unroutable", "not_found", "access_refused", "precondition_failed", "locked", "authorization"]),
  ...each("healthy", ["permission", "topic_missing", "message_refused", "message_too_large", "too_large"]),
  // A restarting broker answers so too: this proves neither health nor, since a wrong address looks the same, an
  // outage.
  ...each("unknown", ["no_stream", "bad_acknowledgement", "producer_state"]),
  // This row cannot be sent.
  ...each("unasked", ["transform_failed", "address_empty", "no_topic", "topic_invalid", "subject_invalid"]),
  ...each("unasked", ["message_invalid", "header_invalid", "url_invalid"]),
  // No row can be sent now; unforeseen: the fault may be anywhere.
  ...each("unknown", ["transform_unavailable", "private_address", "closed", "other"]),
]);

function each(verdict: ReceiverReport["receiver"], codes: readonly string[]) {
  return codes.map((code) => [code, verdict] as const);
}

export const VERDICT_CODES: readonly string[] = [...VERDICTS.keys()];

/**
 * Whose failure it is.
 *
 * @param error what a delivery threw
 */
export function verdictOf(error: unknown): ReceiverReport["receiver"] {
  return (error instanceof PublishError ? VERDICTS.get(error.code) : undefined) ?? "unknown";
}
