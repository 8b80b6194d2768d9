import { describe, expect, test } from "@jest/globals";
import { MOST_FAILED, Overview } from "../../../../src/core/operations/overview.ts";
import type { MessageId, RoutedRow } from "../../../../src/model/rows.ts";
import type { MinuteFigures } from "../../../../src/ports/operationsStore.ts";
import type { ParkedRow } from "../../../../src/ports/store.ts";
import { ManualClock } from "../../../support/recorders.ts";

/** An overview over a store of dead rows without end; `most` is how many statements ran at a time, without the counts of the backlog. */
function setup({
  figures = [] as readonly MinuteFigures[],
  destinationOf = ({ topic }: RoutedRow) => topic ?? undefined,
  listOf = (_topic: string): readonly string[] | undefined => undefined,
  parkedRows = [] as readonly ParkedRow[],
} = {}) {
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
    destination: null,
    isPinned: false,
    diedAt: new Date(1_000_000 - n),
    lastError: `answered 50${n % 2}: case ${n}`,
  });
  const backlog = { pending: 0, oldestPendingAgeMs: null, blockedKeys: 0, parked: 0, byDestination: new Map() };
  const overview = new Overview({
    store: {
      operations: {
        processes: () => read("processes", []),
        figures: () => read("figures", figures),
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
      parked: { list: (_, __, limit) => read("parked", parkedRows, limit) },
    },
    settings: {
      destinations: {},
      sources: figures.length === 0 ? {} : { orders: { consumption: "push" } },
      destinationOf,
      listOf,
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

  test("has the refusals of a source by reason, and in the minutes of its other figures", async () => {
    const none = { received: 0, duplicate: 0, filtered: 0, sent: 0, failed: 0, dead: 0 };
    const figure = (minute: number, kind: MinuteFigures["kind"], name: string, received: number) => {
      return { ...none, minute: new Date(minute * 60_000), kind, name, received };
    };
    const { overview } = setup({
      figures: [
        figure(1, "remark", "credentials orders", 20),
        figure(2, "source", "orders", 5),
        figure(2, "remark", "credentials orders", 1),
        figure(2, "remark", "too_large orders", 2),
        figure(2, "remark", "no_aggregate_id orders", 4),
        figure(2, "remark", "credentials bills", 9),
      ],
    });
    const { sources } = await overview.read(60);
    expect(sources).toMatchObject([{ refusals: { credentials: 21, too_large: 2 }, withoutAggregateId: 4 }]);
    expect(sources[0]?.minutes?.map(({ at, received, refused }) => [at.getTime() / 60_000, received, refused])).toEqual(
      [
        [1, 0, 20],
        [2, 5, 3],
      ],
    );
  });

  test("has the rows without a destination, the newest first", async () => {
    const { overview } = setup({ destinationOf: ({ topic }) => (topic === "orders" ? undefined : "billing") });
    const { unrouted } = await overview.read(60);
    expect(unrouted).toEqual({ dead: 667, parked: 0, lastDiedAt: new Date(1_000_000), topics: ["orders"] });
  });

  test("has no rows of a list that died before they were expanded", async () => {
    const listOf = (topic: string) => (topic === "orders" ? ["billing", "audit"] : undefined);
    const { overview } = setup({ destinationOf: () => undefined, listOf });
    expect((await overview.read(60)).unrouted).toMatchObject({ dead: 1333, topics: ["bills"] });
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

test("failures have the newest row of a group first, also of parked rows, which are read from the first one on", async () => {
  const parkedAt = (n: number) => ({
    ...{
      id: `parked-${n}` as MessageId,
      sequence: String(n),
      topic: "bills",
      key: null,
      destination: null,
      isPinned: false,
    },
    ...{ attempt: 5, parkedAt: new Date(n), lastError: "refused" },
  });
  const { overview } = setup({ parkedRows: [parkedAt(1), parkedAt(2), parkedAt(3)] });
  const { groups } = await overview.failures({ state: "parked" });
  expect(groups).toMatchObject([
    { newestAt: new Date(3), oldestAt: new Date(1), ids: ["parked-3", "parked-2", "parked-1"] },
  ]);
});
