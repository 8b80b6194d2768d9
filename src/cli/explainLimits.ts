import type { Config, DestinationConfig } from "../config/types.ts";
import { COLUMN_MAX_ATTEMPTS, MAX_RETRY_DELAY_MS } from "../core/delivery/retry.ts";
import type { ExplainedLine } from "./explainedLine.ts";

/** The limits of a destination as they are in effect, with the key that a value comes from where that is not the destination's own. */
export function limitLines(destination: DestinationConfig, outbox: Config["outbox"]): readonly ExplainedLine[] {
  return [
    { label: "concurrency", text: concurrencyText(destination.concurrency, outbox.concurrency) },
    { label: "rate limit", text: rateText(destination.rateLimit) },
    { label: "retry", text: retryText(destination.retry, outbox.retryBaseDelayMs) },
    { label: "attempts", text: attemptsText(destination.maxAttempts) },
    { label: "breaker", text: breakerText(destination.circuitBreaker) },
  ];
}

function concurrencyText(own: number | undefined, ofProcess: number): string {
  const most = Math.min(own ?? ofProcess, ofProcess);
  const origin = own === undefined || own > ofProcess ? "  (outbox.concurrency)" : "";
  return `${most} in flight in one process${origin}`;
}

function rateText(limit: DestinationConfig["rateLimit"]): string {
  if (limit === undefined) return "none";
  const { perSecond, burst = Math.ceil(perSecond) } = limit;
  return `${perSecond} per second, burst ${burst}, for all replicas together`;
}

function retryText(retry: DestinationConfig["retry"], baseDelayMs: number): string {
  if (retry?.schedule !== undefined) {
    const waits = retry.schedule.map((ms) => `${ms} ms`).join(", ");
    return `after ${waits}, then the last of them again, jitter ${retry.jitter}`;
  }
  const { baseDelayMs: base, factor = 2, maxDelayMs = MAX_RETRY_DELAY_MS, jitter = 0.25 } = retry ?? {};
  const origin = base === undefined ? "  (outbox.retryBaseDelayMs)" : "";
  return `after ${base ?? baseDelayMs} ms, each further wait ${factor} times as long, at most ${maxDelayMs} ms, jitter ${jitter}${origin}`;
}

function attemptsText(own: number | undefined): string {
  if (own === undefined) return "the row's max_attempts";
  return `${own} where the row's max_attempts is ${COLUMN_MAX_ATTEMPTS}, else the row's`;
}

function breakerText(breaker: DestinationConfig["circuitBreaker"]): string {
  if (breaker === undefined) return "none";
  const { failureRatio, minimumAttempts, windowMs, openMs, maxOpenMs } = breaker;
  return `opens at ${failureRatio} failed of at least ${minimumAttempts} in ${windowMs} ms; probes after ${openMs} to ${maxOpenMs} ms`;
}
