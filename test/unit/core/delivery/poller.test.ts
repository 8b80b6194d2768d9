import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow } from "../../../../src/model/rows.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, never, retry, sent, settleDown, setup } from "./pollerSetup.ts";

describe("the poller", () => {
  test("delivers what it claims and settles it", async () => {
    const { store, poller } = setup(async (row) => sent(row));
    const rows = [outboxRow(), outboxRow(), outboxRow()];
    store.batches.push(rows);

    expect(await poller.pass()).toBe("idle");
    await poller.stop(never);

    expect(store.outcomes()).toEqual(rows.map((row) => [row.id, "sent"]));
  });

  test("asks again at once when more rows are due", async () => {
    const { store, poller } = setup(async (row) => sent(row));
    store.batches.push([outboxRow()], [outboxRow()]);

    expect(await poller.pass()).toBe("again");
    expect(await poller.pass()).toBe("idle");
    await poller.stop(never);
  });

  test("rows of one key go one after another, other keys beside them, never more than the concurrency at a time", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller } = setup(deliver, { concurrency: 3 });
    store.batches.push([
      outboxRow({ key: "a", topic: "a1" }),
      outboxRow({ key: "a", topic: "a2" }),
      outboxRow({ key: "b", topic: "b1" }),
      outboxRow({ topic: "free1" }),
      outboxRow({ topic: "free2" }),
    ]);
    await poller.pass();
    expect(begun.map(({ row }) => row.topic)).toEqual(["a1", "b1", "free1"]);

    for (const topic of ["b1", "a1"]) {
      const delivery = begun.find(({ row }) => row.topic === topic);
      delivery?.end(sent(delivery.row));
      await settleDown();
    }

    expect(begun.map(({ row }) => row.topic)).toEqual(["a1", "b1", "free1", "free2", "a2"]);
    for (const { row, end } of begun) end(sent(row));
    await poller.stop(never);
  });

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

  test("claims ahead only while few rows wait, and tells the store which claims it holds", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, wakes } = setup(deliver, { batchSize: 16, concurrency: 1 });
    store.batches.push([outboxRow(), outboxRow(), outboxRow()], [outboxRow(), outboxRow()]);
    expect(await poller.pass()).toBe("full");
    expect(await poller.pass()).toBe("idle");
    expect(store.claims).toHaveLength(1);
    expect(wakes()).toBe(0);

    begun[0]?.end(sent(begun[0].row));
    await settleDown();
    expect(wakes()).toBe(1);
    await poller.pass();

    expect(store.claims[1]?.heldTokens).toEqual([store.claims[0]?.token]);
    for (let n = 1; n < 5; n += 1) {
      begun[n]?.end(sent(begun[n]?.row as ClaimedRow));
      await settleDown();
    }
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
