import { describe, expect, test } from "@jest/globals";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { release, sent, settleDown, setup } from "./pollerSetup.ts";

describe("stopping the poller", () => {
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
});
