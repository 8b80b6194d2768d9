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
const VERDICTS: Readonly<Record<string, ReceiverReport["receiver"]>> = {
  // The network, and the server behind it.
  timeout: "failed",
  connection_refused: "failed",
  connection_lost: "failed",
  unreachable: "failed",
  dns: "failed",
  tls: "failed",
  protocol: "failed",

  // Access denied: no message would be accepted. Often a directory or an authorization server is down.
  token: "failed",
  credentials: "failed",
  authentication: "failed",
  vhost: "failed",

  // HTTP.
  bad_response: "failed",
  status_3xx: "healthy",
  status_408: "failed",
  status_429: "failed",
  status_4xx: "healthy",
  status_5xx: "failed",

  // The broker answers, but cannot accept messages now; the same for a full queue or stream.
  not_available: "failed",
  nacked: "failed",
  blocked: "failed",
  rejected: "failed",

  // The broker answers: only the address or message of this row is wrong.
  unroutable: "healthy",
  not_found: "healthy",
  access_refused: "healthy",
  precondition_failed: "healthy",
  locked: "healthy",
  authorization: "healthy",
  permission: "healthy",
  topic_missing: "healthy",
  message_refused: "healthy",
  message_too_large: "healthy",
  too_large: "healthy",

  // A restarting broker answers so too: this proves neither health nor, since a wrong address looks the same, an
  // outage.
  no_stream: "unknown",
  bad_acknowledgement: "unknown",
  producer_state: "unknown",

  // This row cannot be sent.
  transform_failed: "unasked",
  address_empty: "unasked",
  no_topic: "unasked",
  topic_invalid: "unasked",
  subject_invalid: "unasked",
  message_invalid: "unasked",
  header_invalid: "unasked",
  url_invalid: "unasked",

  // No row can be sent now.
  transform_unavailable: "unknown",
  private_address: "unknown",
  closed: "unknown",

  // Unforeseen: the fault may be anywhere.
  other: "unknown",
};

export const VERDICT_CODES: readonly string[] = Object.keys(VERDICTS);

/**
 * Whose failure it is.
 *
 * @param error what a delivery threw
 */
export function verdictOf(error: unknown): ReceiverReport["receiver"] {
  if (!(error instanceof PublishError)) return "unknown";
  return Object.hasOwn(VERDICTS, error.code) ? (VERDICTS[error.code] ?? "unknown") : "unknown";
}
