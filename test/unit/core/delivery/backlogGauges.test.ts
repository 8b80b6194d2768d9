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
function setup(backlog: () => Promise<typeof BACKLOG> = async () => BACKLOG) {
  const clock = new ManualClock();
  const { metrics, calls } = recordingMetrics();
  const asked: boolean[] = [];
  const gauges = createBacklogGauges({
    store: {
      async backlog(request) {
        asked.push(request?.totalsOnly ?? false);
        clock.advance(100);
        return await backlog();
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

  test("are all 0 by destination, without a count, where the totals have just shown that nothing is pending", async () => {
    const { gauges, clock, calls, asked } = setup(async () => ({ ...BACKLOG, pending: 0 }));
    const totals = gauges.totals();
    await gauges.byDestination();
    await totals;
    expect(asked).toEqual([true]);
    expect(calls).toEqual(
      expect.arrayContaining(["destinationBacklog(billing, 0, 0)", "destinationBacklog(audit, 0, 0)"]),
    );

    // Those totals are old by then.
    clock.advance(60_000);
    await gauges.byDestination();
    expect(asked).toEqual([true, false]);
  });

  test("are counted by destination where the totals cannot be read", async () => {
    const answers = [Promise.reject(new Error("unavailable")), Promise.resolve(BACKLOG)];
    const { gauges, asked } = setup(() => answers.shift() ?? Promise.resolve(BACKLOG));
    await expect(gauges.totals()).rejects.toThrow("unavailable");
    await gauges.byDestination();
    expect(asked).toEqual([true, false]);
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
