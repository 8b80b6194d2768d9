import { expect, test } from "@jest/globals";
import { type ReceiptWork, storeReceived } from "../../../../src/core/receipt/receiptBatcher.ts";
import type { ClaimedRow, NewInboxRow } from "../../../../src/model/rows.ts";
import type { ClaimRequest, RelayRules } from "../../../../src/ports/store.ts";

const ROWS = [{} as NewInboxRow, {} as NewInboxRow];
const RULES = { topics: {} } as RelayRules;
const REQUEST = { limit: 2 } as ClaimRequest;
const CLAIMED = [{ topic: "orders" } as ClaimedRow];

/** A receipt of a process with these roles. @param failure of its statement */
async function receipt(has: { readonly relay: boolean; readonly room: boolean }, failure?: Error) {
  const calls: unknown[] = [];
  const work: ReceiptWork = {
    relay: has.relay ? RULES : undefined,
    claim: (rows) => {
      calls.push(["claim", rows]);
      return has.room ? { request: REQUEST, end: (claimed) => calls.push(["end", claimed]) } : undefined;
    },
  };
  const inbox = {
    async insert(rows: readonly NewInboxRow[]) {
      calls.push(["insert", rows]);
      return rows.map(() => ({ kind: "stored" }) as const);
    },
    async insertRelayed(rows: readonly NewInboxRow[], ...rest: unknown[]) {
      calls.push(["insertRelayed", rows, ...rest]);
      if (failure !== undefined) throw failure;
      return { outcomes: rows.map(() => ({ kind: "stored", relayed: "claimed" }) as const), claimed: CLAIMED };
    },
  };
  const stored = storeReceived(inbox, work, ROWS);
  await stored.catch(() => {});
  return { stored, calls };
}

test("a receipt stores its rows alone in a process without a relay", async () => {
  const { stored, calls } = await receipt({ relay: false, room: true });
  expect(await stored).toEqual([{ kind: "stored" }, { kind: "stored" }]);
  expect(calls).toEqual([["insert", ROWS]]);
});

test("a receipt relays its rows in a process with a relay, and claims if the poller has room", async () => {
  const { stored, calls } = await receipt({ relay: true, room: true });
  expect((await stored)[0]).toEqual({ kind: "stored", relayed: "claimed" });
  expect(calls).toEqual([
    ["claim", 2],
    ["insertRelayed", ROWS, RULES, REQUEST],
    ["end", CLAIMED],
  ]);
  expect((await receipt({ relay: true, room: false })).calls).toEqual([
    ["claim", 2],
    ["insertRelayed", ROWS, RULES, undefined],
  ]);
});

test("a receipt that fails gives the room back", async () => {
  const { stored, calls } = await receipt({ relay: true, room: true }, new Error("no database"));
  await expect(stored).rejects.toThrow("no database");
  expect(calls.at(-1)).toEqual(["end", []]);
});
