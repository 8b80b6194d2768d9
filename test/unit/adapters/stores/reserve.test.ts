import { describe, expect, test } from "@jest/globals";
import { Reserve, type Reserved } from "../../../../src/adapters/stores/sql/reserve.ts";
import { settle } from "../../../support/manualTime.ts";

const USES: Readonly<Record<string, Reserved["use"]>> = {
  "inbox.insert": "receipt",
  "inbox.insert and relay": "receipt",
  "inbox.present": "receipt",
  ping: "readiness",
};

/** Statements that a test ends, by the order in which they began. */
function setUp(poolSize: number, longestWaitMs = 0, share?: () => number | undefined) {
  const reserve = new Reserve({ poolSize, longestWaitMs, ...(share && { share }) });
  const begun: string[] = [];
  const ends: ((outcome: Promise<void>) => void)[] = [];
  const run = (name: string) =>
    reserve.run({ name, use: USES[name] }, () => {
      begun.push(name);
      return new Promise<void>((resolve) => ends.push(resolve));
    });
  const end = async (n: number, outcome = Promise.resolve()) => {
    ends[n]?.(outcome);
    await settle();
  };
  return { reserve, begun, run, end };
}

test("one connection is kept for receipts, once any has come", async () => {
  const { reserve, begun, run, end } = setUp(3);
  const all = [run("outbox.claim"), run("outbox.settle"), run("outbox.renew")];
  expect(begun).toHaveLength(3);

  const kept = ["inbox.insert and relay", "inbox.present", "ping"];
  all.push(...[...kept, "outbox.reclaim", "inbox.relay"].map(run));
  expect(begun.slice(3)).toEqual(kept);
  expect(reserve.waiting).toBe(2);

  await end(0);
  expect(begun).toHaveLength(6);
  await end(1);
  expect(begun.slice(6)).toEqual(["outbox.reclaim"]);
  await end(2);
  expect(begun.slice(6)).toEqual(["outbox.reclaim", "inbox.relay"]);
  for (let n = 3; n < 8; n += 1) await end(n);
  await Promise.all(all);
  expect(reserve.waiting).toBe(0);
});

test("one connection is kept for the others, once any has come", async () => {
  const { begun, run, end } = setUp(3);
  const all = [run("inbox.insert"), run("inbox.insert and relay"), run("inbox.present")];
  expect(begun).toHaveLength(3);
  all.push(run("outbox.claim"), run("inbox.insert"));
  expect(begun.slice(3)).toEqual(["outbox.claim"]);

  await end(0);
  await end(1);
  expect(begun.slice(4)).toEqual(["inbox.insert"]);
  for (let n = 2; n < 5; n += 1) await end(n);
  await Promise.all(all);
});

test("a statement that fails gives its connection to the next", async () => {
  const { begun, run, end } = setUp(3);
  const receipt = run("inbox.insert");
  const failing = run("outbox.claim");
  const others = [run("outbox.claim"), run("outbox.settle")];
  expect(begun).toHaveLength(3);

  await Promise.all([expect(failing).rejects.toThrow("gone"), end(1, Promise.reject(new Error("gone")))]);

  expect(begun).toHaveLength(4);
  for (const n of [0, 2, 3]) await end(n);
  await Promise.all([receipt, ...others]);
});

test("of two connections none is kept", async () => {
  const { begun, run, end } = setUp(2);
  const all = [run("inbox.insert"), run("outbox.claim"), run("outbox.settle")];
  expect(begun).toHaveLength(3);
  for (let n = 0; n < 3; n += 1) await end(n);
  await Promise.all(all);
});

test("a statement that waits too long fails, and its place goes to nobody", async () => {
  const { reserve, begun, run, end } = setUp(3, 20);
  const held = [run("inbox.insert"), run("outbox.claim"), run("outbox.claim")];
  const late = run("outbox.settle");

  await expect(late).rejects.toMatchObject({
    code: "unavailable",
    message:
      "outbox.settle: no connection was free for 20 ms beside those reserved for other work: raise database.poolSize",
  });

  expect(reserve.waiting).toBe(0);
  for (let n = 0; n < 3; n += 1) await end(n);
  await Promise.all(held);
  const next = run("outbox.settle");
  expect(begun).toHaveLength(4);
  await end(3);
  await next;
});

describe("a store that shares the pool", () => {
  const kinds = { receipts: "inbox.insert", others: "outbox.claim" } as const;

  test.each([
    ["its share", 5, ["receipts", "others", "receipts", "receipts", "receipts", "receipts", "others"], 5],
    ["all but one of its share, if it has also other statements", 5, [...Array(4).fill("receipts"), "others"], 5],
    ["one of a share of one", 1, ["receipts", "others"], 1],
    ["both of a share of two", 2, ["receipts", "receipts", "others"], 2],
    ["what the pool has, while it is alone", undefined, Array(7).fill("receipts"), 7],
  ] as const)("may use %s", async (_what, share, asked, running) => {
    const { reserve, begun, run, end } = setUp(10, 0, () => share);
    const all = asked.map((kind: keyof typeof kinds) => run(kinds[kind]));
    expect(begun).toHaveLength(running);
    expect(reserve.waiting).toBe(asked.length - running);
    for (let n = 0; n < asked.length; n += 1) await end(n);
    await Promise.all(all);
    expect(reserve.waiting).toBe(0);
  });

  test("gives up its share when the others have gone", async () => {
    let share: number | undefined = 1;
    const { begun, run, end } = setUp(10, 0, () => share);
    const all = [run("outbox.claim"), run("outbox.claim"), run("outbox.claim")];
    expect(begun).toHaveLength(1);
    share = undefined;
    await end(0);
    expect(begun).toHaveLength(3);
    await end(1);
    await end(2);
    await Promise.all(all);
  });
});
