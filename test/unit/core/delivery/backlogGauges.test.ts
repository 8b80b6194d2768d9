import { describe, expect, test } from "@jest/globals";
import { createBacklogGauges } from "../../../../src/core/delivery/backlogGauges.ts";
import { ManualClock, recordingMetrics } from "../../../support/recorders.ts";

const BACKLOG = {
  pending: 7,
  oldestPendingAgeMs: 2000,
  blockedKeys: 1,
  parked: 3,
  byDestination: new Map([["billing", { pending: 5, oldestPendingAgeMs: 2000, processing: 1, blockedKeys: 0 }]]),
};

/** Gauges of a database that takes 100 ms for each reading. */
function setup() {
  const clock = new ManualClock();
  const { metrics, calls } = recordingMetrics();
  const asked: boolean[] = [];
  const gauges = createBacklogGauges({
    store: {
      async backlog(request) {
        asked.push(request?.totalsOnly ?? false);
        clock.advance(100);
        return BACKLOG;
      },
    },
    destinations: ["billing", "audit"],
    metrics,
    clock,
  });
  return { gauges, clock, calls, asked };
}

describe("the backlog gauges", () => {
  test("tell the totals, without asking for what takes longer", async () => {
    const { gauges, calls, asked } = setup();
    await gauges.totals();
    expect(calls).toEqual(["outboxPending(7)", "outboxOldestPendingAge(2)", "blockedKeys(1)", "parkedRows(3)"]);
    expect(asked).toEqual([true]);
  });

  test("tell the backlog of every destination, also of one without any", async () => {
    const { gauges, calls } = setup();
    await gauges.byDestination();
    expect(calls).toEqual(["destinationBacklog(billing, 5, 2)", "destinationBacklog(audit, 0, 0)"]);
  });

  test.each(["totals", "byDestination"] as const)(
    "are read again only after fifty times as long as the last reading took: %s",
    async (which) => {
      const { gauges, clock, asked } = setup();
      await gauges[which]();
      clock.advance(4900);
      await gauges[which]();
      expect(asked).toHaveLength(1);
      clock.advance(200);
      await gauges[which]();
      expect(asked).toHaveLength(2);
    },
  );
});
