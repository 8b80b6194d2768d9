import { describe, expect, test } from "@jest/globals";
import { effectiveConfig, printConfig } from "../../../src/config/print.ts";
import { DATABASE, http, load, loadWith, warningsOf } from "./support.ts";

const limitsOf = (extra: string, env: Readonly<Record<string, string>> = {}) =>
  loadWith(`${http(extra)}\n`, { env }).destinations.d;

describe("limits of a destination", () => {
  test("are off by default", () => {
    const destination = limitsOf("path: /");
    for (const key of ["concurrency", "rateLimit", "retry", "maxAttempts", "circuitBreaker"]) {
      expect(destination).not.toHaveProperty(key);
    }
  });

  test("an empty circuitBreaker switches it on with its defaults", () => {
    expect(limitsOf("circuitBreaker: {}")?.circuitBreaker).toEqual({
      failureRatio: 0.5,
      minimumAttempts: 10,
      windowMs: 30_000,
      openMs: 5000,
      maxOpenMs: 60_000,
    });
  });

  test("a schedule is loaded as ms and printed as it was written", () => {
    const loaded = load(`${DATABASE}${http("retry: { schedule: [5s, 1m, 90s, 6h] }")}\n`);
    expect(loaded.config.destinations.d?.retry).toEqual({ schedule: [5000, 60_000, 90_000, 21_600_000], jitter: 0.25 });
    expect(effectiveConfig(loaded)).toMatchObject({
      destinations: { d: { retry: { schedule: ["5s", "1m", "90s", "6h"], jitter: 0.25 } } },
    });
    expect(load(printConfig(loaded).replace(/password: .*/, "password: s3cret")).config.destinations).toEqual(
      loaded.config.destinations,
    );
  });

  test("come from variables, fractions and lists of durations included", () => {
    const env = {
      SVC_DESTINATIONS_D_RATELIMIT_PERSECOND: "2.5",
      SVC_DESTINATIONS_D_RETRY_SCHEDULE: "5s, 1m",
      SVC_DESTINATIONS_D_RETRY_JITTER: ".5",
      SVC_DESTINATIONS_D_CIRCUITBREAKER_FAILURERATIO: "0.75",
      SVC_DESTINATIONS_D_CONCURRENCY: "3",
    };
    expect(limitsOf("path: /", env)).toMatchObject({
      concurrency: 3,
      rateLimit: { perSecond: 2.5 },
      retry: { schedule: [5000, 60_000], jitter: 0.5 },
      circuitBreaker: { failureRatio: 0.75, minimumAttempts: 10 },
    });
    expect(limitsOf("path: /", { SVC_DESTINATIONS_D_RETRY_SCHEDULE_0: "7s" })?.retry?.schedule).toEqual([7000]);
  });

  test("a concurrency above that of the process is a warning", () => {
    expect(warningsOf(`${http("concurrency: 9")}\n`)).toEqual([
      "destinations.d.concurrency: is 9 and has no effect above outbox.concurrency, which is 8 (svc.yml, line 5)",
    ]);
  });
});
