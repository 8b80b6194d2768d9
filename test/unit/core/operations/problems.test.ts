import { describe, expect, test } from "@jest/globals";
import { problemsOf } from "../../../../src/core/operations/problems.ts";
import type { OverviewShown } from "../../../../src/core/operations/shown.ts";

const AT = new Date("2026-01-05T08:00:00Z");
const DESTINATION: OverviewShown["destinations"][number] = {
  ...{ name: "billing", state: "ok" as const, pause: null, breaker: null, backlog: 0, oldestAgeMs: null, inFlight: 0 },
  ...{
    blockedKeys: 0,
    rate: null,
    parked: 0,
    dead: 0,
    lastDiedAt: null,
    recent: { sent: 5, failed: 0, dead: 0 },
    minutes: [],
  },
  ...{ lastSuccessAt: AT, lastFailureAt: AT, lastError: "answered 503" },
};
const SHOWN: Omit<OverviewShown, "problems"> = {
  at: AT,
  relayEnabled: true,
  roles: { poller: { replicas: 1 }, relay: { replicas: 1 } },
  replicas: [],
  sources: [],
  destinations: [DESTINATION],
  unrouted: { dead: 0, parked: 0, lastDiedAt: null, topics: [] },
  outbox: null,
};

test.each([
  [{}, undefined, null],
  [{ state: "unknown" }, undefined, null],
  [
    { state: "failing", recent: { sent: 30, failed: 60, dead: 10 } },
    "billing is failing: 70 of 100 deliveries in the last 5 minutes failed (70 %), 10 rows died",
    "answered 503",
  ],
  [
    { state: "failing", recent: null },
    "billing is failing: none has succeeded since the failure at 2026-01-05T08:00:00.000Z",
    "answered 503",
  ],
  [
    { state: "degraded", recent: { sent: 9, failed: 0, dead: 1 }, parked: 2 },
    "billing is degraded: 1 row died in the last 5 minutes, 2 rows are parked (svc parked list)",
    "answered 503",
  ],
  [
    { state: "failing", recent: { sent: 13, failed: 1, dead: 0 } },
    "billing is failing: none has succeeded since the failure at 2026-01-05T08:00:00.000Z",
    "answered 503",
  ],
  [
    { dead: 400, lastDiedAt: new Date("2026-01-04T23:00:00Z") },
    "billing: 400 rows died, the last at 2026-01-04T23:00:00.000Z (svc replay --state dead --destination billing --dry-run)",
    null,
  ],
  [{ dead: 400, lastDiedAt: new Date("2026-01-04T07:00:00Z") }, undefined, null],
  [{ state: "slow" }, "billing is slow: deliveries take over a second, or their answers do not end", null],
  [{ state: "open", breaker: { openings: 1, reason: "all failed", nextProbeMs: 1 } }, "billing is open", "all failed"],
] as const)("of a destination: %j", (destination, text, reason) => {
  const problems = problemsOf({ ...SHOWN, destinations: [{ ...DESTINATION, ...destination }] }, 5);
  expect(problems).toEqual(text === undefined ? [] : [{ text, reason, destination: "billing" }]);
});

test("of the roles, the relay, the cells and messages come before those of destinations", () => {
  const source = {
    name: "orders",
    consumption: "push",
    pending: 3,
    oldestAgeMs: 1,
    refusals: {},
    withoutAggregateId: 0,
    minutes: [],
  } as const;
  const outbox = { pending: 0, oldestAgeMs: null, parked: 3, blockedKeys: 0, dead: 0, asOf: AT };
  const problems = problemsOf(
    {
      ...SHOWN,
      ...{ relayEnabled: false, roles: {}, replicas: null, sources: [source], outbox },
      destinations: [{ ...DESTINATION, state: "slow", parked: 2 }],
      cells: [
        { name: "eu", awaySince: AT, reason: "no route" },
        { name: "us", awaySince: null, reason: null },
      ],
      unrouted: { dead: 0, parked: 1, lastDiedAt: null, topics: ["ordres"] },
    },
    5,
  );
  expect(problems.map(({ text }) => text)).toEqual([
    "the cell eu does not answer, and its figures are missing",
    "the replicas are not known: the table of the processes cannot be read (docs/status.md)",
    "no poller is alive, and nothing is delivered: start one (svc poller)",
    "no relay is alive, and messages wait in the inbox: start one (svc relay)",
    "inbox.relay.enabled is false: messages wait in the inbox",
    "1 row has no destination (svc explain topic); topics: ordres",
    "billing is slow: deliveries take over a second, or their answers do not end, 2 rows are parked (svc parked list)",
  ]);
  expect(problems[0]?.reason).toBe("no route");
});

test("of clocks that are off, and of several versions", () => {
  const replica = (name: string, version: string, clockAheadMs = 0) => ({
    ...{ name, version, clockAheadMs, roles: ["poller"] },
    ...{ startedAt: null, seenAt: null },
  });
  const replicas = [replica("a", "1.4.0", 312_000), replica("b", "1.5.0"), replica("c", "1.4.0", -45_000)];
  expect(problemsOf({ ...SHOWN, replicas }, 5).map(({ text }) => text)).toEqual([
    "the clock of a is 5 min ahead of the database's: synchronize them, or signatures with a time may be refused",
    "the clock of c is 45 s behind the database's: synchronize them, or signatures with a time may be refused",
    "several versions run at once, finish the upgrade: 1.4.0, 1.5.0",
  ]);
  expect(problemsOf({ ...SHOWN, replicas: [replica("a", "1.4.0"), replica("b", "1.4.0")] }, 5)).toEqual([]);
});

const NOWHERE = { dead: 0, parked: 0, lastDiedAt: null, topics: ["orders.craeted", "bills"] };

/** The remarks on an installation whose source received two messages and a duplicate. */
function remarks(source: Partial<OverviewShown["sources"][number]>, unrouted: OverviewShown["unrouted"] = NOWHERE) {
  const minutes = [{ at: AT, received: 2, duplicate: 1, filtered: 0, dead: 0, refused: 0 }];
  const orders = { name: "orders", consumption: "push", pending: 0, oldestAgeMs: null, minutes } as const;
  const sources = [{ ...orders, refusals: {}, withoutAggregateId: 0, ...source }];
  return problemsOf({ ...SHOWN, sources, unrouted }, 5).map(({ text }) => text);
}

describe("a remark", () => {
  test("says for what requests were refused, the most frequent reason first", () => {
    expect(remarks({ refusals: { too_large: 1, credentials: 19 } })).toEqual([
      "orders refused 20 requests in the last 5 minutes: credentials (19), too_large (1)",
    ]);
  });

  test.each([
    [
      3,
      [
        "no message of orders had its configured aggregate id in the last 5 minutes: they have no order; correct the source",
      ],
    ],
    [2, []],
    [0, []],
    [null, []],
  ])("says that no message has an aggregate id, where %j of three have none", (withoutAggregateId, expected) => {
    expect(remarks({ withoutAggregateId })).toEqual(expected);
  });

  test("says that rows have no destination: parked ones, and for a day dead ones", () => {
    const lastDiedAt = (hoursAgo: number) => new Date(AT.getTime() - hoursAgo * 3_600_000);
    const said = ["2 rows have no destination (svc explain topic); topics: orders.craeted, bills"];
    expect(remarks({}, { ...NOWHERE, dead: 2, lastDiedAt: lastDiedAt(23) })).toEqual(said);
    expect(remarks({}, { ...NOWHERE, dead: 2, lastDiedAt: lastDiedAt(25) })).toEqual([]);
    expect(remarks({}, { ...NOWHERE, parked: 2 })).toEqual(said);
  });

  test("is not made if nothing is wrong, or figures are missing", () => {
    expect(remarks({})).toEqual([]);
    expect(remarks({ refusals: null, withoutAggregateId: null, minutes: null })).toEqual([]);
  });
});
