import { expect, test } from "@jest/globals";
import { type ReceiptCommands, type RelayCommands, SqlInbox } from "../../../../../src/adapters/stores/sql/inbox.ts";
import type { StatementRunner } from "../../../../../src/adapters/stores/sql/rows.ts";
import { inboxRow, relayRequest } from "../../../../conformance/store/harness.ts";
import { eventually } from "../../../../support/eventually.ts";
import { settle } from "../../../../support/manualTime.ts";
import { ManualClock, silentLog } from "../../../../support/recorders.ts";

const LIMIT = 10;

/** An inbox whose relay has caught up, over a database where passes, and receipts that relay, end by hand. */
async function caughtUp({ hasTriggers = false } = {}) {
  const clock = new ManualClock();
  const began: string[] = [];
  const ends: ((candidates: number) => void)[] = [];
  const held = <T>(name: string, answer: (candidates: number) => T): Promise<T> => {
    began.push(name);
    return new Promise((resolve) => ends.push((candidates) => resolve(answer(candidates))));
  };
  const receipt: Partial<ReceiptCommands> = {
    insert: async (rows) => {
      began.push("plain receipt");
      return rows.map(() => ({ kind: "stored" }));
    },
  };
  const relay: Partial<RelayCommands<string>> = {
    prepareRelay: async () => {},
    anyWaits: async () => true,
    relay: () => held("pass", (candidates) => ({ relayed: candidates, dead: [], candidates })),
    insertRelayed: () =>
      held("receipt that relays", () => ({
        areAllStored: true,
        relayed: hasTriggers ? new Set() : "all",
        claimed: [],
        hasTriggers,
      })),
  };
  const inbox = new SqlInbox(
    {} as StatementRunner<string>,
    receipt as ReceiptCommands,
    relay as RelayCommands<string>,
    clock,
    silentLog,
  );
  /** Ends the oldest step. @param candidates rows that it read */
  const end = (candidates = 0): void => ends.shift()?.(candidates);
  const pass = async () => {
    const passed = inbox.relay(relayRequest({ topics: { orders: ["orders", ""] }, limit: LIMIT }));
    await settle();
    return { passed };
  };
  const receive = () => inbox.insert([inboxRow()]);
  const { passed } = await pass();
  end();
  await passed;
  began.length = 0;
  return { inbox, began, end, pass, receive, clock };
}

test("a receipt that comes during a pass waits for its end, and relays", async () => {
  const { inbox, began, end, pass, receive } = await caughtUp();
  const { passed } = await pass();
  expect(inbox.insertsInTurn).toBe(true);
  const received = receive();
  await settle();
  expect(began).toEqual(["pass"]);
  end(LIMIT - 1);
  await passed;
  await settle();
  expect(began).toEqual(["pass", "receipt that relays"]);
  end();
  expect(await received).toEqual([{ kind: "stored", relayed: "pending" }]);
});

test("it leaves its row to the relay where the pass leaves rows for the next one", async () => {
  const { inbox, began, end, pass, receive } = await caughtUp();
  const { passed } = await pass();
  end(LIMIT);
  await passed;
  expect(inbox.insertsInTurn).toBe(false);
  expect(await receive()).toEqual([{ kind: "stored" }]);
  expect(began).toEqual(["pass", "plain receipt"]);
});

test.each(["pass", "receipt that relays"])(
  "a slow %s is waited for once, and for a second nobody waits, whatever is slow behind it",
  async (slow) => {
    const { inbox, began, end, pass, receive, clock } = await caughtUp();
    const running = slow === "pass" ? (await pass()).passed : receive();
    // Both wait at the same time, and neither longer than the other.
    expect(await Promise.all([receive(), receive()])).toEqual([[{ kind: "stored" }], [{ kind: "stored" }]]);
    expect(inbox.insertsInTurn).toBe(false);
    const third = receive();
    await settle();
    expect(began).toEqual([slow, "plain receipt", "plain receipt", "plain receipt"]);
    await third;
    end();
    await running;
    clock.advance(999);
    expect(inbox.insertsInTurn).toBe(false);

    clock.advance(1);
    expect(inbox.insertsInTurn).toBe(true);
    const received = receive();
    await settle();
    expect(began.at(-1)).toBe("receipt that relays");
    end();
    await received;
  },
);

test("a pass that comes during a slow receipt runs beside it", async () => {
  const { began, end, pass, receive } = await caughtUp();
  const slow = receive();
  await receive();
  const { passed } = await pass();
  await eventually(() => expect(began).toEqual(["receipt that relays", "plain receipt", "pass"]));
  end();
  end();
  await Promise.all([slow, passed]);
});

test("where the tables have triggers, receipts wait for nothing, and try again after five seconds", async () => {
  const { inbox, began, end, pass, receive, clock } = await caughtUp({ hasTriggers: true });
  const tried = receive();
  await settle();
  end();
  expect(await tried).toEqual([{ kind: "stored" }]);
  const { passed } = await pass();
  await receive();
  expect([inbox.insertsInTurn, began]).toEqual([false, ["receipt that relays", "pass", "plain receipt"]]);
  end();
  await passed;
  clock.advance(5000);
  expect(inbox.insertsInTurn).toBe(true);
});
