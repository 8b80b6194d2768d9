import { describe, expect, test } from "@jest/globals";
import { destinationOverview } from "../../../../src/core/destinations/control.ts";
import type { SharedDestination } from "../../../../src/ports/destinationStore.ts";

const CLOSED = { state: "closed", openings: 0, remainingMs: 0, reason: null } as const;
const OPEN = { state: "open", openings: 2, remainingMs: 1200.4, reason: "status 503" } as const;
const AT = new Date("2026-01-05T08:00:00Z");
const PAUSE = { by: "ada@ops-1", reason: "they migrate", at: AT, until: null };

const shared = (overrides: Partial<SharedDestination>): SharedDestination => ({
  name: "billing",
  pause: null,
  breaker: CLOSED,
  lastSuccessAt: null,
  lastFailureAt: null,
  lastError: null,
  slowAt: null,
  isSlow: false,
  takenPerSecond: 0,
  ...overrides,
});

const CONFIGURED = { billing: { circuitBreaker: {} } };

describe("the overview of the destinations", () => {
  test("has every configured destination in order, also without any state, and no other", () => {
    const overview = destinationOverview(
      { b: {}, a: {} },
      [shared({ name: "a", isSlow: true }), shared({ name: "gone" })],
      new Map(),
      [],
    );

    expect(overview.map(({ name, state }) => [name, state])).toEqual([
      ["b", "unknown"],
      ["a", "slow"],
    ]);
    expect(overview[0]).toEqual({
      name: "b",
      state: "unknown",
      pause: null,
      breaker: null,
      backlog: 0,
      blockedKeys: 0,
      parked: 0,
      recent: { sent: 0, failed: 0, dead: 0 },
      oldestAgeMs: null,
      inFlight: 0,
      rate: null,
      lastSuccessAt: null,
      lastFailureAt: null,
      lastError: null,
    });
  });

  const NONE = { sent: 0, failed: 0, dead: 0 };
  const SUCCEEDED = { lastSuccessAt: AT };
  const failedAfter = (ms: number) => ({ ...SUCCEEDED, lastFailureAt: new Date(AT.getTime() + ms) });

  test.each([
    ["unknown", {}, NONE, 0],
    ["ok", SUCCEEDED, NONE, 0],
    ["ok", {}, { ...NONE, sent: 1 }, 0],
    ["ok", failedAfter(9999), { sent: 2, failed: 2, dead: 0 }, 0],
    ["degraded", SUCCEEDED, NONE, 1],
    ["degraded", SUCCEEDED, { sent: 9, failed: 0, dead: 1 }, 0],
    ["slow", { ...SUCCEEDED, isSlow: true }, { sent: 9, failed: 0, dead: 1 }, 1],
    ["failing", { ...SUCCEEDED, isSlow: true }, { sent: 2, failed: 2, dead: 1 }, 1],
    ["failing", failedAfter(10_000), NONE, 0],
    ["failing", { lastFailureAt: AT }, undefined, 0],
    ["open", { breaker: OPEN, isSlow: true, lastFailureAt: AT }, NONE, 1],
    ["half-open", { breaker: { ...OPEN, state: "half-open" } }, NONE, 0],
    ["paused", { pause: PAUSE, breaker: OPEN, isSlow: true }, NONE, 0],
  ] as const)("says %s of %j, recently %j, parked %d", (state, known, recent, parked) => {
    const minute = { received: 0, duplicate: 0, filtered: 0, kind: "destination", minute: AT } as const;
    const figures = recent && [
      { ...minute, ...recent, name: "billing" },
      { ...minute, sent: 0, failed: 9, dead: 9, name: "another" },
    ];
    const waiting = { pending: 0, due: 0, oldestPendingAgeMs: null, processing: 0, blockedKeys: 0, parked };
    const shown = destinationOverview(CONFIGURED, [shared(known)], new Map([["billing", waiting]]), figures);
    expect(shown).toMatchObject([{ state, recent: recent ?? null, parked }]);
  });

  test("tells the pause and the breaker beside each other", () => {
    const [row] = destinationOverview(CONFIGURED, [shared({ pause: PAUSE, breaker: OPEN })], new Map(), []);
    expect(row?.pause).toEqual({ by: "ada@ops-1", reason: "they migrate", since: AT, until: null });
    expect(row?.breaker).toEqual({ openings: 2, reason: "status 503", nextProbeMs: 1200 });
  });

  test("leaves out what is left of a breaker that the configuration has no more", () => {
    const overview = destinationOverview({ billing: {} }, [shared({ breaker: OPEN })], new Map(), []);
    expect(overview).toMatchObject([{ state: "unknown", breaker: null }]);
  });

  test("tells the rate if there is a limit", () => {
    const configured = { billing: { rateLimit: { perSecond: 50 } } };
    const rateOf = (known: readonly SharedDestination[]) =>
      destinationOverview(configured, known, new Map(), [])[0]?.rate;
    expect(rateOf([shared({ takenPerSecond: 41 })])).toEqual({ perSecond: 50, taken: 41 });
    expect(rateOf([])).toEqual({ perSecond: 50, taken: 0 });
  });
});
