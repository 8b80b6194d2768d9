import { describe, expect, test } from "@jest/globals";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, holdClaims, never, release, sent, settleDown, setup } from "./pollerSetup.ts";

describe("stopping the poller", () => {
  test("lets deliveries end, gives back what waits, and claims nothing more", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller } = setup(deliver, { concurrency: 1 });
    const [first, second] = [outboxRow(), outboxRow()];
    store.batches.push([first, second], [outboxRow()]);
    await poller.pass();
    let stopped = false;
    const stopping = poller.stop(never).then(() => {
      stopped = true;
    });
    await settleDown();
    expect(stopped).toBe(false);
    expect(await poller.pass()).toBe("idle");

    begun[0]?.end(sent(begun[0].row));
    await stopping;

    expect(store.claims).toHaveLength(1);
    expect(store.outcomes()).toEqual([
      [second.id, "release"],
      [first.id, "sent"],
    ]);
  });

  test("cuts off what is still in delivery when the time is over, and leaves its claim to the lease", async () => {
    const cutoff = new AbortController();
    const { store, poller } = setup(
      (row, signal) => new Promise((end) => signal.addEventListener("abort", () => end(release(row)))),
    );
    store.batches.push([outboxRow()]);
    await poller.pass();
    const stopping = poller.stop(cutoff.signal);

    cutoff.abort();
    await stopping;

    expect(store.outcomes()).toEqual([]);
  });

  test("rows that a claim returns while the poller stops are given back", async () => {
    const { store, poller } = setup(async (row) => sent(row));
    const row = outboxRow();
    store.batches.push([row]);
    const answer = holdClaims(store);
    const pass = poller.pass();
    await settleDown();

    const stopping = poller.stop(never);
    answer();
    await pass;
    await stopping;

    expect(store.outcomes()).toEqual([[row.id, "release"]]);
  });

  test("gives up on outcomes that the database never takes when the time is over", async () => {
    const cutoff = new AbortController();
    const { store, poller, waits } = setup(async (row) => sent(row));
    store.settle = async () => {
      throw new Error("connection lost");
    };
    store.batches.push([outboxRow()]);
    await poller.pass();
    await settleDown();
    const stopping = poller.stop(cutoff.signal);

    cutoff.abort();
    waits.shift()?.();

    await stopping;
  });

  test("returns at once when nothing was ever claimed, and may be called twice", async () => {
    const { poller } = setup(async (row) => sent(row));

    await poller.stop(never);
    await poller.stop(never);

    expect(await poller.pass()).toBe("idle");
  });
});
