import { describe, expect, test } from "@jest/globals";
import type { Poller } from "../../../../src/core/delivery/poller.ts";
import type { ClaimedRow, Outcome } from "../../../../src/model/rows.ts";
import { outboxRow, type ScriptedOutbox } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, holdClaims, never, retry, sent, settleDown, setup } from "./pollerSetup.ts";

const park = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "park", reason: "no" });
const GOING_BACK = [
  ["retried", retry, "retry"],
  ["parked", park, "park"],
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

/** Stops the poller once no row is locked any more: what waits for that is tried again. */
async function stopWhenFree({ store, clock, poller, waits }: ReturnType<typeof setup>): Promise<void> {
  store.locked.clear();
  const stopped = poller.stop(never);
  await settleDown();
  clock.advance(2000);
  for (const wake of waits.splice(0)) wake();
  await stopped;
}

describe("the poller", () => {
  describe.each(["refusing", "locked"] as const)("of a store that is %s a row that", (which) => {
    test.each(GOING_BACK)("is %s, claims count the whole claim as another process's", async (_, back, _kind) => {
      const { begun, deliver } = heldDeliveries();
      const it = setup(deliver);
      const { store, poller } = it;
      const [failing, beside] = [outboxRow({ key: "a" }), outboxRow({ key: "b" })];
      store[which].add(failing.id);
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
      await stopWhenFree(it);
    });

    test("it gave back as soon as it had it keeps no claim waiting", async () => {
      const { begun, deliver } = heldDeliveries();
      const it = setup(deliver);
      const { store, poller } = it;
      const [failing, beside, behind] = [outboxRow({ key: "a" }), outboxRow({ key: "b" }), outboxRow({ key: "a" })];
      store.batches.push([failing, beside]);
      await poller.pass();
      const answer = holdClaims(store);
      store.batches.push([behind]);
      store[which].add(behind.id);
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
      await stopWhenFree(it);
    });
  });

  test.each(GOING_BACK)(
    "a row that is %s takes the later rows of its key back with it, and nothing else",
    async (_, back, kind) => {
      const { store, poller } = setup(async (row) => (row.topic === "a1" ? back(row) : sent(row)));
      const rows = [
        outboxRow({ key: "a", topic: "a1" }),
        outboxRow({ key: "a", topic: "a2" }),
        outboxRow({ key: "b", topic: "b1" }),
        outboxRow({ key: "a", topic: "a3" }),
      ];
      store.batches.push(rows);

      await poller.pass();
      await poller.stop(never);

      const outcomes = new Map(store.outcomes());
      expect(rows.map((row) => outcomes.get(row.id))).toEqual([kind, "release", "sent", "release"]);
    },
  );

  test("a dead row lets the later rows of its key go on", async () => {
    const { store, poller } = setup(async (row) =>
      row.topic === "a1" ? { ...sent(row), kind: "dead", attempted: true, reason: "no" } : sent(row),
    );
    store.batches.push([outboxRow({ key: "a", topic: "a1" }), outboxRow({ key: "a", topic: "a2" })]);

    await poller.pass();
    await settleDown();
    await poller.stop(never);

    expect(store.outcomes().map(([, kind]) => kind)).toEqual(["dead", "sent"]);
  });

  test.each(GOING_BACK)(
    "a claim that was made while a row of the key was %s gives the key's later rows back",
    async (_, back, kind) => {
      // The claim begins while a1 counts as held by this process; a1 then fails; the claim returns a2, which must not overtake it.
      const { begun, deliver } = heldDeliveries();
      const { store, poller } = setup(deliver);
      const [a1, a2, b1] = [outboxRow({ key: "a" }), outboxRow({ key: "a" }), outboxRow({ key: "b" })];
      store.batches.push([a1]);
      await poller.pass();

      const answer = holdClaims(store);
      store.batches.push([a2, b1]);
      const pass = poller.pass();
      await settleDown();
      const [first] = begun;
      first?.end(back(first.row));
      await settleDown();
      expect(store.outcomes()).toEqual([[a1.id, kind]]);
      answer();
      await pass;
      await settleDown();

      expect(store.outcomes()).toEqual([
        [a1.id, kind],
        [a2.id, "release"],
      ]);
      expect(begun.map(({ row }) => row.id)).toEqual([a1.id, b1.id]);
      begun[1]?.end(sent(begun[1].row));
      await poller.stop(never);
    },
  );

  test.each(GOING_BACK)(
    "later rows of a key stay back until it is committed that the row is %s",
    async (_, back, kind) => {
      const { store, poller, waits } = setup(async (row) => (row.topic === "fails" ? back(row) : sent(row)));
      const settle = store.settle.bind(store);
      store.settle = async () => {
        throw new Error("connection lost");
      };
      const { head, early, late } = await failHead(store, poller);
      await poller.pass();
      store.settle = settle;
      waits.shift()?.();
      await settleDown();

      await poller.pass();
      await poller.stop(never);

      expect(store.outcomes()).toEqual([
        [head.id, kind],
        [early.id, "release"],
        [late.id, "sent"],
      ]);
    },
  );

  test("makes no claim while rows that it gave back as soon as it had them are not back in the database", async () => {
    // The claim would return rows behind them, to be given back for their sake, and the next one these again for the sake of those: for ever.
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
