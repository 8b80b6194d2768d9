import { describe, expect, test } from "@jest/globals";
import { destinationOverview, parsePauseDuration } from "../../../../src/core/destinations/control.ts";
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

const CONFIGURED = { billing: { kind: "http", circuitBreaker: {} } };

describe("the overview of the destinations", () => {
  test("has every configured destination in order, also one of which nothing is known, and no other", () => {
    const overview = destinationOverview(
      { b: { kind: "http" }, a: { kind: "nats" } },
      [shared({ name: "a", isSlow: true }), shared({ name: "gone" })],
      new Map(),
    );

    expect(overview.map(({ name, state }) => [name, state])).toEqual([
      ["b", "ok"],
      ["a", "slow"],
    ]);
    expect(overview[0]).toEqual({
      name: "b",
      state: "ok",
      pause: null,
      breaker: null,
      backlog: 0,
      blockedKeys: 0,
      oldestAgeMs: null,
      inFlight: 0,
      rate: null,
      lastSuccessAt: null,
      lastFailureAt: null,
      lastError: null,
    });
  });

  test.each([
    ["ok", {}],
    ["slow", { isSlow: true }],
    ["open", { breaker: OPEN, isSlow: true }],
    ["half-open", { breaker: { ...OPEN, state: "half-open" } }],
    ["paused", { pause: PAUSE, breaker: OPEN, isSlow: true }],
  ] as const)("says %s", (state, known) => {
    expect(destinationOverview(CONFIGURED, [shared(known)], new Map())[0]?.state).toBe(state);
  });

  test("tells the pause and the breaker beside each other", () => {
    const [row] = destinationOverview(CONFIGURED, [shared({ pause: PAUSE, breaker: OPEN })], new Map());
    expect(row?.pause).toEqual({ by: "ada@ops-1", reason: "they migrate", since: AT, until: null });
    expect(row?.breaker).toEqual({ openings: 2, reason: "status 503", nextProbeMs: 1200 });
  });

  test("leaves out what is left of a breaker that the configuration has no more", () => {
    const overview = destinationOverview({ billing: { kind: "http" } }, [shared({ breaker: OPEN })], new Map());
    expect(overview).toMatchObject([{ state: "ok", breaker: null }]);
  });

  test("takes backlog, age and what is in flight from the store, and counts 0 where it names a destination not", () => {
    const backlog = new Map([["billing", { pending: 7, oldestPendingAgeMs: 1500, processing: 2, blockedKeys: 3 }]]);
    const rows = destinationOverview({ ...CONFIGURED, idle: { kind: "http" } }, [], backlog);
    expect(rows).toMatchObject([
      { backlog: 7, oldestAgeMs: 1500, inFlight: 2, blockedKeys: 3 },
      { backlog: 0, oldestAgeMs: null, inFlight: 0, blockedKeys: 0 },
    ]);
  });

  test("tells the rate where there is a limit", () => {
    const configured = { billing: { kind: "http", rateLimit: { perSecond: 50 } } };
    const rateOf = (known: readonly SharedDestination[]) => destinationOverview(configured, known, new Map())[0]?.rate;
    expect(rateOf([shared({ takenPerSecond: 41 })])).toEqual({ perSecond: 50, taken: 41 });
    expect(rateOf([])).toEqual({ perSecond: 50, taken: 0 });
  });
});

describe("the time of a pause", () => {
  test.each([
    ["30s", 30_000],
    ["15m", 900_000],
    ["2h", 7_200_000],
    ["9999d", 863_913_600_000],
  ])("%s", (text, ms) => {
    expect(parsePauseDuration(text)).toBe(ms);
  });

  test.each(["0s", "", "2", "h", "1.5h", "-1h", "2 h", "02h", "10000s", "2w", "999999999d"])(
    "is refused: %j",
    (text) => {
      expect(() => parsePauseDuration(text)).toThrow(
        "a whole number from 1 to 9999 and one of the suffixes s, m, h, d",
      );
    },
  );
});
