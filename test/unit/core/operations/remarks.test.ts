import { describe, expect, test } from "@jest/globals";
import { remarksOf } from "../../../../src/core/operations/remarks.ts";
import type { OverviewShown } from "../../../../src/core/operations/shown.ts";

const AT = new Date(Date.UTC(2026, 0, 5, 8, 30));
const NOWHERE = { dead: 0, parked: 0, lastDiedAt: null, topics: ["orders.craeted", "bills"] };

/** The remarks on an installation whose source received two messages and a duplicate. */
function remarks(source: Partial<OverviewShown["sources"][number]>, unrouted: OverviewShown["unrouted"] = NOWHERE) {
  const minutes = [{ at: AT, received: 2, duplicate: 1, filtered: 0, dead: 0, refused: 0 }];
  const orders = { name: "orders", consumption: "push", pending: 0, oldestAgeMs: null, minutes } as const;
  const sources = [{ ...orders, refusals: {}, withoutAggregateId: 0, ...source }];
  return remarksOf({ at: AT, sources, unrouted }, 5);
}

describe("a remark", () => {
  test("says for what requests were refused, the most frequent reason first", () => {
    expect(remarks({ refusals: { too_large: 1, credentials: 19 } })).toEqual([
      "orders refused 20 requests in the last 5 minutes: credentials (19), too_large (1)",
    ]);
  });

  test.each([
    [3, ["no message of orders had its configured aggregate id in the last 5 minutes: nothing keeps their order"]],
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

  test("is not made where nothing is wrong, or figures are missing", () => {
    expect(remarks({})).toEqual([]);
    expect(remarks({ refusals: null, withoutAggregateId: null, minutes: null })).toEqual([]);
  });
});
