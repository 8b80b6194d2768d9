import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, Outcome } from "../../../../src/model/rows.ts";
import { gatesOf } from "../../../support/gates.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";
import { retry, sent, settleDown, setup as setUpPoller } from "./pollerSetup.ts";

/** A poller of rows whose topic is the name of their destination; each delivery is ended by hand. */
function setup(closed: ReadonlySet<string> = new Set()) {
  const clock = new ManualClock();
  const begun: { row: ClaimedRow; end: (kind: "sent" | "retry") => Promise<void> }[] = [];
  const deliver = (row: ClaimedRow) =>
    new Promise<Outcome>((resolve) => {
      const end = async (kind: "sent" | "retry") => {
        resolve(kind === "sent" ? sent(row) : retry(row));
        await settleDown();
      };
      begun.push({ row, end });
    });
  const { store, poller, wakes } = setUpPoller(deliver, {
    destinationOf: ({ topic }) => topic ?? undefined,
    gates: Object.assign(gatesOf({ clock }), {
      mayBegin: (destination: string) => !closed.has(destination),
      rowsWanted: (destination: string) => (closed.has(destination) ? 0 : undefined),
    }),
    destinations: ["a", "b"],
    batchSize: 20,
    clock,
    wait: async () => {},
  });
  const rows = (topic: string, count: number) =>
    Array.from({ length: count }, (_, n) => outboxRow({ topic, key: `${topic}-${n}` }));
  /** The room of each claim since the last call. */
  const asked = () =>
    store.claims
      .splice(0)
      .map(({ queues }) => Object.fromEntries([...(queues?.room ?? [])].filter(([name]) => name !== "")));
  return { store, clock, begun, poller, rows, asked, wakes };
}

/** The same, after a delivery to `a` has succeeded. */
async function proven(): Promise<ReturnType<typeof setup>> {
  const made = setup();
  const { begun, poller, rows, asked, store } = made;
  store.batches.push(rows("a", 1));
  await poller.pass();
  await begun[0]?.end("sent");
  begun.length = 0;
  asked();
  return made;
}

describe("a poller of two destinations", () => {
  test("asks for both, and then only for the one that has room", async () => {
    const { store, begun, poller, rows, asked } = await proven();
    store.batches.push(rows("a", 20), rows("b", 5));
    await poller.pass();
    expect(asked()).toEqual([{ a: 20, b: 20 }]);
    await poller.pass();
    expect(asked()).toEqual([{ b: 20 }]);
    expect(begun.map(({ row }) => row.topic)).toEqual(["a", "a", "b"]);
  });

  test("asks for the one with the fewest waiting rows first", async () => {
    const { store, poller, rows, asked } = await proven();
    store.batches.push(rows("a", 9));
    await poller.pass();
    asked();
    await poller.pass();
    expect(store.claims.map(({ queues }) => [...(queues?.room.keys() ?? [])])).toEqual([["b", "a", ""]]);
  });

  test("gives the rows of one that hangs back, and claims one of them once it may begin one", async () => {
    const { store, clock, begun, poller, rows, asked } = setup();
    const [first, ...others] = rows("a", 20);
    store.batches.push(first === undefined ? [] : [first, ...others]);
    await poller.pass();
    clock.advance(1001);
    await poller.pass();
    await settleDown();

    expect(store.settled.map(({ id, kind }) => [id, kind])).toEqual(others.map(({ id }) => [id, "release"]));
    asked();
    await poller.pass();
    expect(asked()).toEqual([{ b: 20 }]);

    await begun[0]?.end("retry");
    expect(store.settled.at(-1)).toMatchObject({ kind: "retry", destination: "a" });
    store.batches.push(rows("a", 1));
    await poller.pass();
    expect(asked()).toEqual([{ a: 1, b: 20 }]);
    await begun[1]?.end("retry");
    await poller.pass();
    expect(asked()).toEqual([{ b: 20 }]);
    clock.advance(50);
    await poller.pass();
    expect(asked()).toEqual([{ a: 1, b: 20 }]);
  });

  test("gives the rows of one that closes back, begins none of them, and asks for the other", async () => {
    const closed = new Set<string>();
    const { store, begun, poller, rows, asked } = setup(closed);
    const ofA = rows("a", 5);
    store.batches.push(ofA, rows("b", 1));
    await poller.pass();
    expect(begun.map(({ row }) => row.topic)).toEqual(["a"]);
    closed.add("a");
    await begun[0]?.end("sent");
    expect(begun).toHaveLength(1);
    await poller.pass();
    await settleDown();

    expect(store.outcomes()).toEqual(ofA.map(({ id }, n) => [id, n === 0 ? "sent" : "release"]));
    expect(asked()).toEqual([{ a: 20, b: 20 }, { b: 20 }]);
    expect(begun.map(({ row }) => row.topic)).toEqual(["a", "b"]);
  });

  test("gives rows of a closed one back that a claim returns all the same, with those behind them", async () => {
    const { store, begun, poller } = setup(new Set(["a"]));
    const [first, behind, other] = [
      outboxRow({ topic: "a", key: "k" }),
      outboxRow({ topic: "b", key: "k" }),
      outboxRow({ topic: "b", key: "other" }),
    ] as const;
    store.batches.push([first, behind, other]);
    await poller.pass();
    await settleDown();

    expect(begun.map(({ row }) => row.id)).toEqual([other.id]);
    expect(store.outcomes()).toEqual([
      [first.id, "release"],
      [behind.id, "release"],
    ]);
  });

  test("keeps the rows of a failing destination if all rows are one queue: the next claim would return them", async () => {
    const { store, begun, poller, rows } = setup();
    store.hasQueues = false;
    store.batches.push(rows("a", 20));
    await poller.pass();
    for (let n = 0; n < 8; n += 1) await begun[n]?.end("retry");
    await poller.pass();
    await settleDown();
    expect(store.outcomes().filter(([, kind]) => kind === "release")).toEqual([]);
  });

  test("claims nothing from one queue of all while a destination whose row it gave back is closed", async () => {
    const closed = new Set(["a"]);
    const { store, poller, rows, asked } = setup(closed);
    store.hasQueues = false;
    store.batches.push(rows("a", 1), rows("b", 1));
    await poller.pass();
    await settleDown();
    expect(await poller.pass()).toBe("idle");
    expect(asked()).toHaveLength(1);
    closed.clear();
    await poller.pass();
    expect(asked()).toHaveLength(1);
  });
});
