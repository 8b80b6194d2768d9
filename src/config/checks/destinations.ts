import { destinationKindOf } from "../../adapters/kinds.ts";
import type { Report } from "../../ports/kinds.ts";
import type { KeyPath } from "../keyPath.ts";
import { didYouMean } from "../kinds.ts";
import { MAX_RETRY_WAIT_MS } from "../schema/destinations.ts";
import type { DeclaredConfig, DestinationConfig } from "../types.ts";
import type { Rules } from "./rules.ts";

/**
 * Rules of the sections `destinations` and `routes`.
 *
 * @param names of all destinations, those too whose entry has problems
 */
export function checkDestinations(config: DeclaredConfig, names: readonly string[], rules: Rules): void {
  for (const [name, destination] of Object.entries(config.destinations)) {
    const base = ["destinations", name];
    destinationKindOf(destination).check(destination, (keys, rule) => rules.when(base, keys, rule));
    checkLimits(base, destination, config, rules);
    if (!("timeoutMs" in destination)) continue;
    const { timeoutMs } = destination;
    rules.when(base, ["timeoutMs"], () =>
      rules.when(["outbox"], ["claimTimeoutMs"], (report) => {
        if (timeoutMs < config.outbox.claimTimeoutMs) return;
        const message = `is ${config.outbox.claimTimeoutMs} and should be larger than destinations.${name}.timeoutMs (${timeoutMs}): a claim must outlast the slowest publish`;
        report.warning("claimTimeoutMs", message);
      }),
    );
  }
  for (const [index, route] of config.routes.entries()) {
    rules.when(["routes", index], ["destination"], (report) => {
      if (names.includes(route.destination)) return;
      const known = names.length === 0 ? "there are none" : `there are ${names.join(", ")}`;
      const message = `names no destination: ${known}; found ${JSON.stringify(route.destination)}${didYouMean(route.destination, names)}`;
      report.error("destination", message);
    });
  }
}

/** Rules of the keys that every kind has. */
function checkLimits(base: KeyPath, destination: DestinationConfig, config: DeclaredConfig, rules: Rules): void {
  const { concurrency, rateLimit, retry, circuitBreaker } = destination;
  if (concurrency !== undefined) {
    rules.when(base, ["concurrency"], (report) =>
      rules.when(["outbox"], ["concurrency"], () => {
        const most = config.outbox.concurrency;
        if (concurrency <= most) return;
        report.warning("concurrency", `is ${concurrency} and has no effect above outbox.concurrency, which is ${most}`);
      }),
    );
  }
  if (rateLimit !== undefined) rules.when(base, ["rateLimit"], (report) => checkRate(rateLimit, report));
  if (retry !== undefined) rules.when(base, ["retry"], (report) => checkRetry(retry, report));
  if (circuitBreaker === undefined) return;
  rules.when(base, ["circuitBreaker"], (report) => {
    const { openMs, maxOpenMs } = circuitBreaker;
    if (maxOpenMs >= openMs) return;
    const message = `is ${maxOpenMs} and must not be less than openMs, which is ${openMs}: it is what openMs grows to`;
    report.error("circuitBreaker.maxOpenMs", message);
  });
}

function checkRate(rateLimit: NonNullable<DestinationConfig["rateLimit"]>, report: Report): void {
  const { perSecond, burst } = rateLimit;
  const least = Math.ceil(perSecond);
  if (burst === undefined || burst >= least) return;
  const message = `is ${burst} and must be at least ${least}, which is perSecond (${perSecond}) rounded up: remove it for just that`;
  report.error("rateLimit.burst", message);
}

function checkRetry(retry: NonNullable<DestinationConfig["retry"]>, report: Report): void {
  for (const key of ["baseDelayMs", "factor", "maxDelayMs"] as const) {
    if (retry.schedule === undefined || retry[key] === undefined) continue;
    report.error(`retry.${key}`, "does not go with schedule, which gives every wait itself: remove one of the two");
  }
  for (const [index, ms] of (retry.schedule ?? []).entries()) {
    if (ms <= MAX_RETRY_WAIT_MS) continue;
    report.error("retry.schedule", `item ${index} is longer than 7d, the longest wait there is`);
  }
}
