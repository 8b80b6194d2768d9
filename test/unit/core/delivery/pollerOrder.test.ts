import { describe, expect, test } from "@jest/globals";
import type { Poller } from "../../../../src/core/delivery/poller.ts";
import type { ClaimedRow, Outcome } from "../../../../src/model/rows.ts";
import { outboxRow, type ScriptedOutbox } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, holdClaims, never, retry, sent, settleDown, setup } from "./pollerSetup.ts";

const park = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "park", reason: "no" });
const GOING_BACK = [
  ["retried", retry],
  ["parked", park],
] as const;

/** Three rows of one key, each in a claim of its own. The first has been claimed, and its delivery by topic has ended. */
async function failHead(store: ScriptedOutbox, poller: Poller) {
  const rows = {
    head: outboxRow({ key: "a", topic: "fails" }),
    early: outboxRow({ key: "a" }),
    late: outboxRow({ key: "a" }),
  };
  store.batches.push([rows.head], [rows.early], [rows.late]);
  await poller.pass();
  await settleDown();
  return rows;
}

describe("the poller", () => {
  describe("of a store that refuses the outcome of a row that", () => {
    test.each(GOING_BACK)("is %s, claims count the whole claim as another process's", async (_, back) => {
      const { begun, deliver } = heldDeliveries();
      const { store, poller } = setup(deliver);
      const [failing, beside] = [outboxRow({ key: "a" }), outboxRow({ key: "b" })];
      store.refusing.add(failing.id);
      store.batches.push([failing, beside]);
      await poller.pass();
      const [first, second] = begun;
      if (first === undefined || second === undefined) throw new Error("two deliveries expected");
      await poller.pass();
      first.end(back(first.row));
      await settleDown();
      await poller.pass();
      expect(store.claims.map(({ heldTokens }) => heldTokens.length)).toEqual([0, 1, 0]);

      second.end(sent(second.row));
      await poller.stop(never);
    });

    test("it gave back as soon as it had it does not block a claim", async () => {
      const { begun, deliver } = heldDeliveries();
      const { store, poller } = setup(deliver);
      const [failing, beside, behind] = [outboxRow({ key: "a" }), outboxRow({ key: "b" }), outboxRow({ key: "a" })];
      store.batches.push([failing, beside]);
      await poller.pass();
      const answer = holdClaims(store);
      store.batches.push([behind]);
      store.refusing.add(behind.id);
      const pass = poller.pass();
      await settleDown();
      const [first, second] = begun;
      first?.end(retry(first.row));
      await settleDown();
      answer();
      await pass;
      await settleDown();
      expect(store.claims).toHaveLength(2);
      const next = poller.pass();
      await settleDown();
      answer();
      await next;
      expect(store.claims).toHaveLength(3);

      second?.end(sent(second.row));
      await poller.stop(never);
    });
  });

  test("makes no claim while rows that it gave back as soon as it had them are not back in the database", async () => {
    // The claim would return rows behind them, which it gives back because of them, and the next claim would give back these because of those: for ever.
    const { store, poller, wakes } = setup(async (row) => (row.topic === "fails" ? retry(row) : sent(row)));
    const settle = store.settle.bind(store);
    const commits: (() => void)[] = [];
    store.settle = async (outcomes) => {
      await new Promise<void>((resolve) => commits.push(resolve));
      return await settle(outcomes);
    };
    const commit = async () => {
      commits.shift()?.();
      await settleDown();
    };
    const { head, early, late } = await failHead(store, poller);

    expect(await poller.pass()).toBe("idle");
    await commit();
    expect(store.outcomes()).toEqual([[head.id, "retry"]]);
    expect(await poller.pass()).toBe("idle");
    expect([store.claims.length, wakes()]).toEqual([2, 0]);

    await commit();
    expect(wakes()).toBe(1);
    await poller.pass();
    await settleDown();
    await commit();
    expect(store.outcomes()).toEqual([
      [head.id, "retry"],
      [early.id, "release"],
      [late.id, "sent"],
    ]);
    await poller.stop(never);
  });
});
