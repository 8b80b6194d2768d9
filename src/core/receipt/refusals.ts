import { type Refusal, refusalOf } from "../../model/refusals.ts";
import { parsedJson } from "../../model/text.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { member } from "./jsonDocument.ts";

interface RefusalOptions {
  readonly source: string;
  readonly metrics: Pick<Metrics, "inboxRefused">;
  readonly log: Pick<Log, "warn">;
  /** Calls back after `ms` milliseconds; by default without keeping the process alive. */
  readonly timer?: (ms: number, callback: () => void) => void;
}

/**
 * Counts the refusals of a source by reason, and warns of the first at once, of further ones once a minute.
 *
 * @returns takes every answer to a sender; a status below 400 is no refusal
 */
export function countRefusals({
  source,
  metrics,
  log,
  timer = (ms, callback) => void setTimeout(callback, ms).unref(),
}: RefusalOptions): (status: number, body: string) => void {
  /** Of reasons that were logged within the last minute: what came since. */
  const since = new Map<Refusal, { readonly count: number; readonly status: number; readonly reason: string }>();

  function warn(refusal: Refusal, { count, status, reason }: { count: number; status: number; reason: string }): void {
    log.warn({ source, refusal, status, reason, count }, "received messages are refused");
    since.set(refusal, { count: 0, status, reason });
    timer(MINUTE_MS, () => {
      const further = since.get(refusal);
      if (further !== undefined && further.count > 0) warn(refusal, further);
      else since.delete(refusal);
    });
  }

  return (status, body) => {
    if (status < 400) return;
    const refusal = refusalOf(status);
    metrics.inboxRefused(source, refusal);
    const known = since.get(refusal);
    const refused = { count: (known?.count ?? 0) + 1, status, reason: reasonOf(status, body) };
    if (known === undefined) warn(refusal, refused);
    else since.set(refusal, refused);
  };
}

const MINUTE_MS = 60_000;

/** The reason in an answer, without what a transform or the database says: that may quote the message. */
function reasonOf(status: number, body: string): string {
  if (status === 429) return "more than rateLimit.requestsPerMinute";
  return String(member(parsedJson(body), "error") ?? "")
    .replace(QUOTING, "$1")
    .slice(0, LONGEST_REASON);
}

const QUOTING = /^((?:item \d+: )?(?:Transform failed|the database cannot hold this message)): .*/s;
const LONGEST_REASON = 500;

export interface WarningTools {
  readonly log: Pick<Log, "warn">;
  readonly clock: Pick<Clock, "monotonic">;
}

/** Makes a warning of a source's messages, logged once an hour for each configuration key, without their text. */
export function hourlyWarning(
  source: string,
  message: string,
  { log, clock }: WarningTools,
): (key: string, code?: string) => void {
  const lastAt = new Map<string, number>();
  return (key, code) => {
    const now = clock.monotonic();
    const last = lastAt.get(key);
    if (last !== undefined && now - last < HOUR_MS) return;
    lastAt.set(key, now);
    log.warn({ source, key, ...(code === undefined ? {} : { code }) }, message);
  };
}

const HOUR_MS = 3_600_000;
