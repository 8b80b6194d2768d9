import { describe, expect, test } from "@jest/globals";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, never, release, sent, settleDown, setup } from "./pollerSetup.ts";

describe("leases of the poller", () => {
  test("are renewed at a third of their length while rows are open", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.batches.push([outboxRow()]);
    await poller.pass();

    await poller.tick();
    expect(store.renewals).toBe(0);
    clock.advance(10_000);
    await poller.tick();
    await poller.tick();
    expect(store.renewals).toBe(1);

    begun[0]?.end(sent(begun[0].row));
    await settleDown();
    clock.advance(10_000);
    await poller.tick();
    expect(store.renewals).toBe(1);
    await poller.stop(never);
  });

  test("a process that was stopped beyond its lease sends nothing more of the claim", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { concurrency: 1 });
    const rows = [outboxRow(), outboxRow()];
    store.batches.push(rows);
    await poller.pass();

    clock.advance(31_000);
    begun[0]?.end(sent(begun[0].row));
    await settleDown();
    await poller.stop(never);

    expect(begun).toHaveLength(1);
    expect(store.outcomes()).toEqual([
      [rows[0]?.id, "sent"],
      [rows[1]?.id, "release"],
    ]);
  });

  test("a delivery is cut off when its lease ran out and could not be renewed", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.renew = async () => {
      throw new Error("connection lost");
    };
    store.batches.push([outboxRow()]);
    await poller.pass();

    clock.advance(29_000);
    await poller.tick();
    poller.claims.cutOff();
    expect(begun[0]?.signal.aborted).toBe(false);
    clock.advance(2000);
    poller.claims.cutOff();

    expect(begun[0]?.signal.reason).toMatchObject({ name: "ClaimLostError" });
    begun[0]?.end(release(begun[0].row));
    await poller.stop(never);
  });

  test("a delivery is cut off when its lease ran out, if the database renews other claims but not this one", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    const [refused, renewed] = [outboxRow(), outboxRow()];
    for (const row of [refused, renewed]) {
      store.batches.push([row]);
      await poller.pass();
    }
    store.takenOver.add(refused.id);

    clock.advance(10_000);
    await poller.tick();
    clock.advance(20_000);
    poller.claims.cutOff();

    expect(begun.map(({ signal }) => signal.aborted)).toEqual([true, false]);
    for (const delivery of begun) delivery.end(sent(delivery.row));
    await poller.stop(never);
  });

  test("a delivery is cut off when its lease ran out while its renewal hangs", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.renew = () => new Promise(() => {});
    store.batches.push([outboxRow()]);
    await poller.pass();
    clock.advance(29_000);
    void poller.tick();
    poller.claims.cutOff();
    expect(begun[0]?.signal.aborted).toBe(false);
    clock.advance(2000);
    void poller.tick();
    poller.claims.cutOff();

    expect(begun[0]?.signal.reason).toMatchObject({ name: "ClaimLostError" });
    begun[0]?.end(release(begun[0].row));
    await poller.stop(never);
  });

  test("rows that a renewal no longer finds are not sent", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { concurrency: 1 });
    const [first, second] = [outboxRow(), outboxRow()];
    store.batches.push([first, second]);
    await poller.pass();
    store.takenOver.add(second.id);
    clock.advance(10_000);
    await poller.tick();

    begun[0]?.end(sent(begun[0].row));
    await poller.stop(never);

    expect(begun.map(({ row }) => row.id)).toEqual([first.id]);
  });

  test("no claim outlives claimTimeoutMs, however often it is renewed", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { claimTimeoutMs: 40_000 });
    store.batches.push([outboxRow()]);
    await poller.pass();

    for (let second = 0; second < 41; second += 1) {
      clock.advance(1000);
      await poller.tick();
      poller.claims.cutOff();
    }

    expect(store.renewals).toBeGreaterThan(2);
    expect(begun[0]?.signal.aborted).toBe(true);
    begun[0]?.end(release(begun[0].row));
    await poller.stop(never);
  });

  test("leaves the claims of others that have expired to the poller that watches, and renews its own", async () => {
    const { deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    let reclaims = 0;
    store.reclaim = async () => {
      reclaims += 1;
      return 0;
    };
    store.batches.push([outboxRow()]);
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
