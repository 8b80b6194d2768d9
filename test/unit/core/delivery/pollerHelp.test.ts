import { describe, expect, test } from "@jest/globals";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, retry, sent, settleDown, setup } from "./pollerSetup.ts";

const rows = (count: number) => Array.from({ length: count }, (_, n) => outboxRow({ key: `key-${n}` }));

describe("a poller", () => {
  test("needs help when rows have waited for its slots for over half a second, until none waits", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { concurrency: 2 });
    store.batches.push(rows(3));
    await poller.pass();
    clock.advance(500);
    expect(poller.needsHelp).toBe(false);
    clock.advance(1);
    expect(poller.needsHelp).toBe(true);

    for (const { row, end } of begun.slice(0, 1)) end(sent(row));
    await settleDown();
    expect(poller.needsHelp).toBe(false);
  });

  test("needs help when its claims have been held up for that long", async () => {
    const { deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { batchSize: 4 });
    // All of one key: their slots are free.
    store.batches.push(Array.from({ length: 4 }, () => outboxRow({ key: "hot" })));
    await poller.pass();
    await poller.pass();
    await poller.pass();
    clock.advance(501);

    expect(poller.needsHelp).toBe(true);
  });

  test("needs none for rows that it delivers as they come, or for those of one key that wait behind each other", async () => {
    const { deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { concurrency: 2 });
    store.batches.push([outboxRow({ key: "hot" }), outboxRow({ key: "hot" })]);
    await poller.pass();
    clock.advance(1000);

    expect(poller.needsHelp).toBe(false);
  });

  test("needs help while its deliveries fail: perhaps only its own do", async () => {
    const { store, poller } = setup(async (row) => retry(row), { wait: async () => {} });
    for (let n = 0; n < 8; n += 1) {
      store.batches.push(rows(1));
      await poller.pass();
      await settleDown();
    }
    expect(poller.needsHelp).toBe(true);
    expect(poller.claimed).toBe(8);
  });

  test("leaves the claims of others that have expired to the one that watches, and renews its own", async () => {
    const { deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    let reclaims = 0;
    store.reclaim = async () => {
      reclaims += 1;
      return 0;
    };
    store.batches.push(rows(1));
    await poller.pass();
    clock.advance(10_000);

    await poller.tick(false);
    expect([store.renewals, reclaims]).toEqual([1, 0]);
    await poller.tick();
    expect(reclaims).toBe(1);
  });

  test("leaves the claims of others alone for a lease after the database's clock was set ahead", async () => {
    const { store, poller, clock } = setup(heldDeliveries().deliver);
    let [reclaims, ahead] = [0, 0];
    store.clock = async () => clock.monotonic() + ahead;
    store.reclaim = async () => {
      reclaims += 1;
      return 0;
    };
    const reclaimsAfter = async (ms: number) => {
      clock.advance(ms);
      await poller.tick();
      return reclaims;
    };
    expect(await reclaimsAfter(0)).toBe(1);
    ahead = 600_000;
    expect(await reclaimsAfter(1000)).toBe(1);
    expect(await reclaimsAfter(29_000)).toBe(1);
    expect(await reclaimsAfter(1000)).toBe(2);
  });
});
