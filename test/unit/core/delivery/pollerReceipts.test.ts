import { describe, expect, test } from "@jest/globals";
import type { Poller } from "../../../../src/core/delivery/poller.ts";
import type { ClaimedRow } from "../../../../src/model/rows.ts";
import type { ReceiptClaim } from "../../../../src/ports/store.ts";
import { gatesOf } from "../../../support/gates.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { heldDeliveries, never, sent, settleDown, setup } from "./pollerSetup.ts";

type Row = Omit<ClaimedRow, "claimToken">;

/** A receipt that claims its rows. @returns most rows that it might claim; undefined without a claim */
function receive(poller: Poller, rows: readonly Row[]): number | undefined {
  const claim = poller.claimForReceipt(rows.length);
  claim?.end(rows.slice(0, claim.request.limit).map((row) => under(claim, row)));
  return claim?.request.limit;
}

const under = ({ request }: ReceiptClaim, row: Row): ClaimedRow => ({ ...row, claimToken: request.token });
const rowsOf = (count: number): readonly Row[] => Array.from({ length: count }, () => outboxRow());

/** How many of a hundred rows a receipt might claim now. */
function room(poller: Poller): number | undefined {
  const claim = poller.claimForReceipt(100);
  claim?.end([]);
  return claim?.request.limit;
}

/** A poller that has claimed all that was due. */
async function caughtUp(...parameters: Parameters<typeof setup>) {
  const all = setup(...parameters);
  await all.poller.pass();
  return all;
}

describe("a receipt of a process that delivers", () => {
  test("claims nothing before a claim has found that no more is due", async () => {
    const { store, poller } = setup(async (row) => sent(row), { concurrency: 60 });
    expect(room(poller)).toBeUndefined();
    store.batches.push([outboxRow()], []);
    await poller.pass();
    expect(room(poller)).toBeUndefined();
    await poller.pass();
    expect(room(poller)).toBe(60);
    await poller.stop(never);
  });

  test("claims its rows, which are delivered, settled and counted as claimed", async () => {
    const { store, poller, calls } = await caughtUp(async (row) => sent(row));
    const rows = rowsOf(3);
    expect(receive(poller, rows)).toBe(3);
    await poller.stop(never);
    expect(store.outcomes()).toEqual(rows.map(({ id }) => [id, "sent"]));
    expect(calls).toContain("claimRows(poller, 3)");
  });

  test("claims at most a batch together with others and what waits; the rest is claimed first by the next claim", async () => {
    const { begun, deliver } = heldDeliveries();
    const { poller } = await caughtUp(deliver, { batchSize: 10, concurrency: 60 });
    // Behind the first of its key two wait.
    expect(
      receive(
        poller,
        Array.from({ length: 3 }, () => outboxRow({ key: "a" })),
      ),
    ).toBe(3);
    const other = poller.claimForReceipt(5);
    expect(receive(poller, rowsOf(4))).toBe(3);
    other?.end([]);
    expect(receive(poller, rowsOf(1))).toBeUndefined();
    await poller.pass();
    expect(receive(poller, rowsOf(1))).toBe(1);

    const stopping = poller.stop(never);
    for (const { row, end } of begun) end(sent(row));
    await stopping;
  });

  test("claims what has a free slot, or will have one in 200 ms: others may have slots for more", async () => {
    const { begun, deliver } = heldDeliveries();
    const { poller, clock } = await caughtUp(deliver, { concurrency: 3 });
    clock.advance(1000);
    expect(receive(poller, rowsOf(2))).toBe(2);
    expect(room(poller)).toBe(1);
    await poller.pass();
    for (let n = 0; n < 40; n += 1) {
      for (const { row, end } of begun.splice(0)) end(sent(row));
      await settleDown();
      receive(poller, rowsOf(1));
    }
    // 42 have ended in this second.
    expect(room(poller)).toBe(2 + 8);

    const stopping = poller.stop(never);
    for (const { row, end } of begun) end(sent(row));
    await stopping;
  });

  test("claims nothing while the limits of a destination hold up rows", async () => {
    const clock = new ManualClock();
    const { begun, deliver } = heldDeliveries();
    const limits = { receiver: { concurrency: 1 } };
    const limited = await caughtUp(deliver, { clock, gates: gatesOf({ clock, limits }) });
    expect(receive(limited.poller, rowsOf(2))).toBe(2);
    expect(room(limited.poller)).toBeUndefined();
    const stopping = limited.poller.stop(never);
    begun[0]?.end(sent(begun[0].row));
    await stopping;
  });
});
