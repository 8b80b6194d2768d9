import { describe, expect, test } from "@jest/globals";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, never, retry, sent, settleDown, setup } from "./pollerSetup.ts";

describe("the poller", () => {
  test("a row that expires while it waits behind another one of its key begins with the time it has left", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.batches.push([
      outboxRow({ key: "a", expiresInMs: 3000 }),
      outboxRow({ key: "a", expiresInMs: 3000 }),
      outboxRow({ key: "a", expiresInMs: null }),
    ]);
    await poller.pass();
    for (const index of [0, 1, 2]) {
      clock.advance(2000);
      begun[index]?.end(sent(begun[index].row));
      await settleDown();
    }
    expect(begun.map(({ row }) => row.expiresInMs)).toEqual([3000, 1000, null]);
    await poller.stop(never);
  });
});

describe("the next pass", () => {
  test("comes within the poll interval while a failed row waits for its retry, and a little longer", async () => {
    const { store, poller, clock } = setup(async (row) => retry(row));
    expect(poller.nextPassWithinMs).toBe(Infinity);
    store.batches.push([outboxRow()]);
    await poller.pass();
    await settleDown();

    clock.advance(1999);
    expect(poller.nextPassWithinMs).toBe(100);
    clock.advance(1);
    expect(poller.nextPassWithinMs).toBe(Infinity);
    await poller.stop(never);
  });
});

describe("the queue depth", () => {
  test("goes back to nothing, however the rows end", async () => {
    const { store, poller, calls } = setup(async (row) => (row.topic === "fails" ? retry(row) : sent(row)), {
      concurrency: 1,
    });
    store.batches.push([outboxRow({ key: "a", topic: "fails" }), outboxRow({ key: "a" }), outboxRow(), outboxRow()]);
    await poller.pass();

    await poller.stop(never);

    let depth = 0;
    let highest = 0;
    for (const call of calls) {
      const delta = /^outboxQueueDepth\(receiver, (-?1)\)$/.exec(call)?.[1];
      depth += Number(delta ?? 0);
      highest = Math.max(highest, depth);
    }
    expect(highest).toBe(4);
    expect(depth).toBe(0);
  });
});
