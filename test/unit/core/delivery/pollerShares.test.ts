import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, Outcome } from "../../../../src/model/rows.ts";
import { gatesOf } from "../../../support/gates.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { retry, sent, settleDown, setup as setUpPoller } from "./pollerSetup.ts";

/** A poller of rows whose topic is the name of their destination; each delivery is ended by hand. */
function setup(closed: ReadonlySet<string> = new Set()) {
  const clock = new ManualClock();
  const begun: { row: ClaimedRow; end: (kind: "sent" | "retry") => Promise<void> }[] = [];
  const deliver = (row: ClaimedRow) =>
    new Promise<Outcome>((resolve) => {
      const end = async (kind: "sent" | "retry") => {
        resolve(kind === "sent" ? sent(row) : retry(row));
        await settleDown();
      };
      begun.push({ row, end });
    });
  const { store, poller, wakes } = setUpPoller(deliver, {
    destinationOf: ({ topic }) => topic ?? undefined,
    gates: Object.assign(gatesOf({ clock }), {
      mayBegin: (destination: string) => !closed.has(destination),
      rowsWanted: (destination: string) => (closed.has(destination) ? 0 : undefined),
    }),
    destinations: ["a", "b"],
    batchSize: 20,
    clock,
    wait: async () => {},
  });
  const rows = (topic: string, count: number) =>
    Array.from({ length: count }, (_, n) => outboxRow({ topic, key: `${topic}-${n}` }));
  /** The room of each claim since the last call. */
  const asked = () =>
    store.claims
      .splice(0)
      .map(({ queues }) => Object.fromEntries([...(queues?.room ?? [])].filter(([name]) => name !== "")));
  return { store, clock, begun, poller, rows, asked, wakes };
}

describe("a poller of a table in which all rows are one queue", () => {
  test("keeps the rows of a failing destination: the next claim would return them", async () => {
    const { store, begun, poller, rows } = setup();
    store.hasQueues = false;
    store.batches.push(rows("a", 20));
    await poller.pass();
    for (let n = 0; n < 8; n += 1) await begun[n]?.end("retry");
    await poller.pass();
    await settleDown();
    expect(store.outcomes().filter(([, kind]) => kind === "release")).toEqual([]);
  });

  test("claims nothing while a destination whose row it gave back is closed", async () => {
    const closed = new Set(["a"]);
    const { store, poller, rows, asked } = setup(closed);
    store.hasQueues = false;
    store.batches.push(rows("a", 1), rows("b", 1));
    await poller.pass();
    await settleDown();
    expect(await poller.pass()).toBe("idle");
    expect(asked()).toHaveLength(1);
    closed.clear();
    await poller.pass();
    expect(asked()).toHaveLength(1);
  });
});
