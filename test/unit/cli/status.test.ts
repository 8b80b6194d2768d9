import { expect, test } from "@jest/globals";
import { statusText } from "../../../src/cli/status.ts";
import type { OverviewShown } from "../../../src/core/operations/shown.ts";

const AT = new Date(Date.UTC(2026, 0, 5, 8, 30, 48));
const ORDERS = {
  name: "orders",
  consumption: "push",
  pending: 0,
  oldestAgeMs: null,
  refusals: {},
  withoutAggregateId: 0,
  minutes: [],
} as const;

/** The text of an installation without anything to warn of. */
const shown = (sources: OverviewShown["sources"], more: Partial<OverviewShown> = {}) =>
  statusText({
    at: AT,
    relayEnabled: true,
    roles: { poller: { replicas: 1 }, relay: { replicas: 1 } },
    replicas: [],
    sources,
    destinations: [],
    unrouted: { dead: 0, parked: 0, lastDiedAt: null, topics: [] },
    problems: [],
    outbox: null,
    ...more,
  });

const counted = (received: number, minute: number) => ({
  at: new Date(Date.UTC(2026, 0, 5, 8, minute)),
  received,
  duplicate: 0,
  filtered: 0,
  dead: 0,
  refused: received / 2,
});

test("rates are by the minute, however much of the present minute has passed", () => {
  // 600 a minute; 48 s of the present one have passed.
  const minutes = [...[25, 26, 27, 28, 29].map((minute) => counted(600, minute)), counted(480, 30)];
  const text = shown([{ ...ORDERS, minutes }]);
  expect(text).toMatch(/^source +received\/min +duplicate\/min +filtered\/min +refused\/min +waiting/m);
  expect(text).toMatch(/^orders +600 +0 +0 +300 +0/m);
});

test("problems come first, and rows without a destination have a line behind the destinations", () => {
  const lost = { dead: 2, parked: 1, lastDiedAt: AT, topics: ["orders.craeted", "x\n! forged"] };
  const problems = [
    { text: "billing is paused", reason: "they migrate\n! forged", destination: "billing" },
    { text: "no poller is alive, and nothing is delivered: start one (svc poller)", reason: null, destination: null },
  ];
  const text = shown([ORDERS], { unrouted: lost, problems });
  expect(text).toMatch(
    /^! billing is paused: they migrate ! forged\n! no poller is alive, and nothing is delivered: start one \(svc poller\)\n\n/,
  );
  expect(text).toContain("\nno destination  1 parked, 2 dead; topics: orders.craeted, x ! forged\n");
  expect(shown([ORDERS])).not.toContain("no destination");
});

test("a small rate is not shown as none", () => {
  const at = new Date(Date.UTC(2026, 0, 5, 8, 30));
  const minutes = [{ at, received: 2, duplicate: 0, filtered: 49, dead: 0, refused: 0 }];
  expect(shown([{ ...ORDERS, minutes }], { at })).toMatch(/^orders +0\.4 +0 +9\.8 /m);
});
