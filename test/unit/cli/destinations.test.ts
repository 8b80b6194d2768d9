import { expect, test } from "@jest/globals";
import { stateSummary } from "../../../src/cli/destinations.ts";
import type { DestinationOverview } from "../../../src/core/operations/shown.ts";

const FAILED_AT = new Date("2026-01-05T10:00:00Z");

const WELL: DestinationOverview = {
  name: "billing",
  state: "ok",
  pause: null,
  breaker: null,
  backlog: 0,
  oldestAgeMs: null,
  inFlight: 1,
  blockedKeys: 0,
  parked: 0,
  recent: null,
  rate: null,
  lastSuccessAt: null,
  lastFailureAt: null,
  lastError: null,
};

test("a destination that has never failed is summed up by its state and its rows", () => {
  expect(stateSummary(WELL)).toBe("ok; 0 rows wait, 1 are in flight");
});

test("a destination behind its breaker says why it opened, and how its last delivery failed", () => {
  const row: DestinationOverview = {
    ...WELL,
    state: "open",
    breaker: { openings: 2, reason: "the probe failed: POST https://b answered 503", nextProbeMs: 9000 },
    backlog: 3,
    oldestAgeMs: 150_000,
    inFlight: 0,
    lastFailureAt: FAILED_AT,
    lastError: "POST https://b answered 503\n",
  };
  expect(stateSummary(row)).toBe(
    "open, next probe in 9s; 3 rows wait, the oldest due for 3m, 0 are in flight; " +
      "breaker: the probe failed: POST https://b answered 503; " +
      "last error at 2026-01-05T10:00:00.000Z: POST https://b answered 503 ",
  );
  const pause = { by: "ada", reason: "they migrate", since: FAILED_AT, until: null };
  expect(stateSummary({ ...row, state: "paused", pause })).toMatch(
    /^paused since .* by ada: they migrate; .*; breaker: the probe failed: .*; last error /,
  );
});
