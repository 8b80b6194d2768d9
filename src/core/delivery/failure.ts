import { PublishError } from "../../model/errors.ts";
import type { Random } from "../../time/clock.ts";
import type { ReceiverReport } from "../destinations/breaker.ts";

/** What a failed delivery means: for its receiver, and for its row. */

/** Every code of a `PublishError`. A code may come from several adapters, and means the same in all of them. */
export const VERDICTS = new Map<string, ReceiverReport["receiver"]>([
  // The network, and the server behind it.
  ...each("failed", ["timeout", "connection_refused", "connection_lost", "unreachable", "dns", "tls", "protocol"]),
  // Access denied: no message would be accepted. Often a directory or an authorization server is down.
  ...each("failed", ["token", "credentials", "authentication", "vhost"]),
  ...each("failed", ["bad_response", "status_408", "status_429", "status_5xx"]),
  ...each("healthy", ["status_3xx", "status_4xx"]),
  // The broker answers, but cannot accept messages now; the same for a full queue or stream.
  ...each("failed", ["not_available", "nacked", "blocked", "rejected"]),
  // The broker answers: only the address or message of this row is wrong.
  ...each("healthy", ["unroutable", "not_found", "access_refused", "precondition_failed", "locked", "authorization"]),
  ...each("healthy", ["permission", "topic_missing", "message_refused", "message_too_large", "too_large"]),
  // A restarting broker answers so too, and so does a wrong address: proof of neither health nor an outage.
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

export function verdictOf(error: unknown): ReceiverReport["receiver"] {
  return (error instanceof PublishError ? VERDICTS.get(error.code) : undefined) ?? "unknown";
}

/** The default limit of a wait, and the limit up to which `Retry-After` always counts. */
export const MAX_RETRY_DELAY_MS = 60_000;
/** Largest random share of the delay, so that rows that failed together do not return together. */
const JITTER = 0.25;
const FACTOR = 2;

/** Block `retry` of a destination; times in ms. Either `schedule`, or any of the three behind it. */
interface RetrySettings {
  readonly schedule?: readonly number[];
  readonly baseDelayMs?: number;
  readonly factor?: number;
  readonly maxDelayMs?: number;
  /** Largest random share of the delay. */
  readonly jitter?: number;
}

/**
 * How long a row waits after a failed delivery, in whole ms. `attempt` counts the failed deliveries before this one.
 */
export type RetryPolicy = (
  failure: { readonly attempt: number; readonly retryAfterMs: number | undefined },
  random: Random,
) => number;

/**
 * The policy of a destination. By default it is that of the spec ("outbox"; design, "Attempts"): `min(60 s, base *
 * 2^attempt * (1 + 0..0.25))`, lengthened by the receiver's `Retry-After` up to the same 60 s. With a schedule, jitter
 * may exceed its longest entry. `Retry-After` lengthens a wait up to the longest entry or `maxDelayMs`, and up to 60 s
 * in any case.
 *
 * @param baseDelayMs `outbox.retryBaseDelayMs`, for a destination without its own
 */
export function createRetryPolicy(settings: RetrySettings = {}, baseDelayMs: number): RetryPolicy {
  const { schedule, jitter = JITTER, factor = FACTOR, maxDelayMs = MAX_RETRY_DELAY_MS } = settings;
  const base = settings.baseDelayMs ?? baseDelayMs;
  const longestAsked = Math.max(MAX_RETRY_DELAY_MS, ...(schedule ?? [maxDelayMs]));
  return ({ attempt, retryAfterMs }, random) => {
    const failures = Math.max(attempt, 0);
    const jittered = 1 + random() * jitter;
    const wait =
      schedule !== undefined
        ? (schedule[Math.min(failures, schedule.length - 1)] ?? 0) * jittered
        : // The power may be Infinity, and 0 * Infinity is NaN.
          Math.min(maxDelayMs, base === 0 ? 0 : base * factor ** failures * jittered);
    return Math.floor(Math.max(wait, Math.min(longestAsked, retryAfterMs ?? 0)));
  };
}
