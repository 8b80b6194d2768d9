import { describe, expect, test } from "@jest/globals";
import { effectiveConfig, printConfig } from "../../../src/config/print.ts";
import { DATABASE, http, load, loadWith, warningsOf } from "./support.ts";

const limitsOf = (extra: string) => loadWith(`${http(extra)}\n`).destinations.d;

describe("limits of a destination", () => {
  test("an empty circuitBreaker switches it on with its defaults", () => {
    expect(limitsOf("circuitBreaker: {}")?.circuitBreaker).toEqual({
      failureRatio: 0.5,
      minimumAttempts: 10,
      windowMs: 30_000,
      openMs: 5000,
      maxOpenMs: 60_000,
    });
  });

  test("a schedule is loaded as ms and printed in its spelling", () => {
    const loaded = load(`${DATABASE}${http("retry: { schedule: [5s, 1m, 90s, 6h] }")}\n`);
    expect(loaded.config.destinations.d?.retry).toEqual({ schedule: [5000, 60_000, 90_000, 21_600_000], jitter: 0.25 });
    expect(effectiveConfig(loaded)).toMatchObject({
      destinations: { d: { retry: { schedule: ["5s", "1m", "90s", "6h"], jitter: 0.25 } } },
    });
    expect(load(printConfig(loaded).replace(/password: .*/, "password: s3cret")).config.destinations).toEqual(
      loaded.config.destinations,
    );
  });

  test("a concurrency above that of the process is a warning", () => {
    expect(warningsOf(`${http("concurrency: 9")}\n`)).toEqual([
      "destinations.d.concurrency: is 9 and limited by outbox.concurrency (8): lower it (svc.yml, line 5)",
    ]);
  });
});
