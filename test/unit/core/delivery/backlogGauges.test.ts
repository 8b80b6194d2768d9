import { describe, expect, test } from "@jest/globals";
import { createBacklogGauges } from "../../../../src/core/delivery/backlogGauges.ts";
import { ManualClock, recordingMetrics } from "../../../support/recorders.ts";

const BACKLOG = {
  pending: 7,
  oldestPendingAgeMs: 2000,
  blockedKeys: 1,
  parked: 3,
  byDestination: new Map([
    ["billing", { pending: 5, due: 4, oldestPendingAgeMs: 2000, processing: 1, blockedKeys: 0, parked: 2 }],
  ]),
};

const FIGURES = {
  kind: "destination" as const,
  ...{ name: "billing", minute: new Date(0) },
  ...{ received: 0, duplicate: 0, filtered: 0, sent: 3, failed: 2, dead: 1 },
};

/** Gauges of a database that takes 100 ms for each reading. */
function setup(backlog: () => Promise<typeof BACKLOG> = async () => BACKLOG, held: readonly string[] = []) {
  const clock = new ManualClock();
  const { metrics, calls } = recordingMetrics();
  const asked: boolean[] = [];
  const shown: object[] = [];
  const gauges = createBacklogGauges({
    outbox: {
      async backlog(request) {
        asked.push(request?.totalsOnly ?? false);
        clock.advance(100);
        return await backlog();
      },
    },
    operations: { figures: async () => [FIGURES] },
    lists: { partlyDead: async (limit) => limit + 2 },
    gates: {
      showRecent: (recent) => shown.push(Object.fromEntries(recent)),
      isHeld: (destination) => held.includes(destination),
    },
    destinations: ["billing", "audit"],
    metrics,
    clock,
  });
  return { gauges, clock, calls, asked, shown };
}

describe("the backlog gauges", () => {
  test("tell the totals, and the backlog of every destination, also of one without any", async () => {
    const { gauges, calls, asked, shown } = setup();
    await gauges();
    expect(asked).toEqual([true, false]);
    expect(shown).toEqual([
      {
        billing: { recent: { sent: 3, failed: 2, dead: 1 }, parked: 2 },
        audit: { recent: { sent: 0, failed: 0, dead: 0 }, parked: 0 },
      },
    ]);
    expect(calls).toEqual([
      ...["outboxPending(7)", "outboxOldestPendingAge(2)", "blockedKeys(1)", "parkedRows(3)"],
      ...["destinationBacklog(billing, 5, 2)", "destinationDue(billing, 4)"],
      ...["destinationBacklog(audit, 0, 0)", "destinationDue(audit, 0)"],
      "partlyDeadMessages(1002)",
    ]);
  });

  test("tell that nothing may be delivered to a destination that is paused or held by its breaker", async () => {
    const { gauges, calls } = setup(undefined, ["billing"]);
    await gauges();
    expect(calls).toEqual(expect.arrayContaining(["destinationBacklog(billing, 5, 2)", "destinationDue(billing, 0)"]));
  });

  test("are all 0 by destination, without a count, if the totals have just shown that nothing is pending", async () => {
    const { gauges, calls, asked } = setup(async () => ({ ...BACKLOG, pending: 0, parked: 0 }));
    await gauges();
    expect(asked).toEqual([true]);
    expect(calls).toEqual(
      expect.arrayContaining(["destinationBacklog(billing, 0, 0)", "destinationBacklog(audit, 0, 0)"]),
    );
  });

  test("are read again only after fifty times as long as the last reading took", async () => {
    const { gauges, clock, asked } = setup();
    await gauges();
    clock.advance(4700);
    await gauges();
    expect(asked).toHaveLength(2);
    clock.advance(300);
    await gauges();
    expect(asked).toHaveLength(4);
  });
});
