import { describe, expect, test } from "@jest/globals";
import { StoreError } from "../../../../src/model/errors.ts";
import { recordingLog } from "../../../support/recorders.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { never, sent, settleDown, setup } from "./pollerSetup.ts";

describe("the poller", () => {
  test("an outcome that the database refuses is logged and counted, does not block other outcomes, and is no lost claim", async () => {
    const { log, lines } = recordingLog();
    const { store, poller, calls } = setup(async (row) => sent(row), { log });
    const rows = [outboxRow(), outboxRow(), outboxRow()];
    const [one, refused, three] = rows.map(({ id }) => id);
    if (refused !== undefined) store.refusing.add(refused);
    store.batches.push(rows);
    await poller.pass();
    await poller.stop(never);

    expect(store.outcomes()).toEqual([one, three].map((id) => [id, "sent"]));
    expect(lines).toMatchObject([
      { level: "error", fields: { id: refused, outcome: "sent", reason: "the row is refused" } },
    ]);
    expect(calls.filter((call) => /Refused|claimsLost/.test(call))).toEqual(["outboxRowRefused(1)"]);
  });

  test("outcomes that the database does not take are kept and settled when it answers again", async () => {
    const { store, poller, waits, calls } = setup(async (row) => sent(row));
    const settle = store.settle.bind(store);
    store.settle = async () => {
      throw new Error("connection lost");
    };
    const row = outboxRow();
    store.batches.push([row]);
    await poller.pass();
    await settleDown();
    expect(store.outcomes()).toEqual([]);
    expect(calls).toContain("outboxProcessError()");

    store.settle = settle;
    waits.shift()?.();
    await poller.stop(never);

    expect(store.outcomes()).toEqual([[row.id, "sent"]]);
  });

  test("a outcome that the fence refuses is counted and otherwise forgotten", async () => {
    const { store, poller, calls } = setup(async (row) => sent(row));
    const row = outboxRow();
    store.takenOver.add(row.id);
    store.batches.push([row]);

    await poller.pass();
    await poller.stop(never);

    expect(calls).toContain("claimsLost(poller, 1)");
  });

  test.each([
    ["finds it written if the lease still holds", 0, []],
    ["is lost if the lease has run out meanwhile", 60_000, ["claimsLost(poller, 1)"]],
  ])("an outcome that is tried again after a lost answer %s", async (_what, awayMs, lost) => {
    const { store, poller, calls, clock } = setup(async (row) => sent(row), { wait: async () => {} });
    const row = outboxRow();
    const settle = store.settle.bind(store);
    store.settle = async (outcomes) => {
      store.settle = settle;
      await settle(outcomes);
      store.takenOver.add(row.id);
      clock.advance(awayMs);
      throw new StoreError("unavailable", "outbox.settle: the answer was lost");
    };
    store.batches.push([row]);

    await poller.pass();
    await poller.stop(never);

    expect(store.outcomes()).toEqual([
      [row.id, "sent"],
      [row.id, "sent"],
    ]);
    expect(calls.filter((call) => call.startsWith("claimsLost"))).toEqual(lost);
  });
});
