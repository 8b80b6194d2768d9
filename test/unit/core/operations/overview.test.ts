import { describe, expect, test } from "@jest/globals";
import { MOST_FAILED, Overview } from "../../../../src/core/operations/overview.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
import { ManualClock } from "../../../support/recorders.ts";

/** An overview over a store of dead rows without end; `most` is how many statements ran at a time, without the counts of the backlog. */
function setup() {
  const asked: Record<string, number> = {};
  let running = 0;
  let most = 0;
  const read = async <T>(name: string, value: T, limit = 0): Promise<T> => {
    asked[name] = limit;
    running += 1;
    most = Math.max(most, running);
    await new Promise(setImmediate);
    running -= 1;
    return value;
  };
  const dead = (n: number) => ({
    id: `id-${n}` as MessageId,
    topic: n % 3 === 0 ? "orders" : "bills",
    destinationOverride: null,
    diedAt: new Date(1_000_000 - n),
    lastError: `answered 50${n % 2}: case ${n}`,
  });
  const backlog = { pending: 0, oldestPendingAgeMs: null, blockedKeys: 0, parked: 0, byDestination: new Map() };
  const overview = new Overview({
    store: {
      operations: {
        processes: () => read("processes", []),
        figures: () => read("figures", []),
        addAudit: async () => {},
        audit: async () => [],
        deadRows: (limit) =>
          read(
            "dead",
            Array.from({ length: limit }, (_, n) => dead(n)),
            limit,
          ),
        blockedKeys: async () => [],
        inboxBacklog: () => read("inbox", []),
      },
      destinations: { isAvailable: true, states: () => read("states", []) },
      outbox: { backlog: async () => backlog },
      parked: { list: (_, __, limit) => read("parked", [], limit) },
    },
    settings: {
      destinations: {},
      sources: {},
      destinationOf: ({ topic }) => topic ?? undefined,
      isRelayEnabled: true,
    },
    clock: new ManualClock(),
  });
  return { overview, asked, most: () => most };
}

describe("the overview", () => {
  test("reads one thing after the other: at most one connection, beside the counts of the backlog", async () => {
    const { overview, asked, most } = setup();
    const { outbox } = await overview.read(1440);
    expect(Object.keys(asked)).toEqual(["processes", "figures", "states", "inbox", "dead", "parked"]);
    expect(most()).toBe(1);
    expect(outbox?.dead).toBe(MOST_FAILED);
  });
});

describe("failures", () => {
  test("are those of the newest rows, read one thing after the other", async () => {
    const { overview, asked, most } = setup();
    const { groups, rowsRead, isComplete } = await overview.failures({});
    expect(asked).toEqual({ dead: MOST_FAILED, parked: MOST_FAILED });
    expect(MOST_FAILED).toBe(2000);
    expect({ rowsRead, isComplete }).toEqual({ rowsRead: 2000, isComplete: false });
    expect(groups.map(({ destination, reason, count }) => ({ destination, reason, count }))).toEqual([
      { destination: "bills", reason: "answered 501: case 1", count: 667 },
      { destination: "bills", reason: "answered 500: case 2", count: 666 },
      { destination: "orders", reason: "answered 500: case 0", count: 334 },
      { destination: "orders", reason: "answered 501: case 3", count: 333 },
    ]);
    expect(most()).toBe(1);
  });
});
