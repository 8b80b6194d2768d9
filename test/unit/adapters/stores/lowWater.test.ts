import { expect, test } from "@jest/globals";
import { PostgresLowWater } from "../../../../src/adapters/stores/postgres/lowWater.ts";
import { statement } from "../../../../src/adapters/stores/postgres/statement.ts";
import type { Values } from "../../../../src/adapters/stores/sql/rows.ts";
import { ManualClock } from "../../../support/recorders.ts";

/** One read: the transaction that is begun for it is `end` by default, none for null. */
type Read = readonly [
  mark: string | undefined,
  running: readonly bigint[],
  end: bigint,
  writers?: readonly string[],
  later?: bigint | null,
];

/** @param tookMs of each read */
function markReader(tookMs = 0) {
  const clock = new ManualClock();
  const asked: Values[] = [];
  let next: Read = [undefined, [], 1n];
  const pool = {
    lostConnections: 0,
    run: async (_: unknown, values: Values = {}) => {
      asked.push(values);
      clock.advance(tookMs);
      const [mark, running, end, writers = [], later = end] = next;
      return [{ mark, running: running.map(String), end: String(end), writers, later: later && String(later) }];
    },
  };
  const lowWater = new PostgresLowWater(pool, statement("mark")``, clock);
  const read = async (...reads: readonly Read[]) => {
    for (const each of reads) {
      next = each;
      clock.advance(1000);
      await lowWater.refreshIfDue();
    }
  };
  return { lowWater, pool, clock, asked, read };
}

async function marksAfter(...reads: readonly Read[]) {
  const { lowWater, read } = markReader();
  await read(...reads);
  const [stable, conditional, newest, ...running] = lowWater.marks();
  return { newest, stable, conditional: { mark: conditional, running: running.map(BigInt) } };
}

test("a mark counts for order only when it has been read again", async () => {
  expect(await marksAfter(["10", [], 100n])).toEqual({
    newest: "10",
    stable: "0",
    conditional: { mark: "0", running: [] },
  });
});

test("a mark is stable when all that ran while it was read have ended", async () => {
  expect((await marksAfter(["10", [90n, 95n], 100n], ["20", [95n], 105n])).stable).toBe("0");
  expect((await marksAfter(["10", [90n, 95n], 100n], ["20", [95n], 105n], ["30", [103n], 110n])).stable).toBe("10");
  expect((await marksAfter(["10", [], 100n], ["20", [100n], 105n])).stable).toBe("10");
});

test("under a transaction that stays open the conditional mark follows, and names it", async () => {
  const open = [90n];
  const { stable, conditional } = await marksAfter(
    ["10", open, 100n],
    ["20", [...open, 104n], 105n],
    ["30", open, 110n],
  );
  expect(stable).toBe("0");
  expect(conditional).toEqual({ mark: "20", running: open });
});

test("what began after a mark was read is no condition of it", async () => {
  expect((await marksAfter(["10", [], 100n], ["20", [101n], 105n])).conditional).toEqual({ mark: "10", running: [] });
});

test("a lower mark lowers both: a row that had not been seen before came below them", async () => {
  const { stable, conditional } = await marksAfter(["10", [], 100n], ["20", [], 105n], ["5", [], 110n]);
  expect(stable).toBe("5");
  expect(conditional.mark).toBe("5");
});

test.each([
  [100, 5000],
  [10_000, 60_000],
])("after a read without a bound of %i ms the next one comes %i ms later", async (tookMs, ms) => {
  const { lowWater, clock, asked, read } = markReader(tookMs);
  const isFull = () => String(asked.at(-1)?.lowWater) === "0,0,0";
  await read(["10", [], 100n]);
  expect(isFull()).toBe(true);
  clock.advance(ms - 1);
  await lowWater.refreshIfDue(0);
  expect(isFull()).toBe(false);
  await lowWater.refreshIfDue(0);
  expect(isFull()).toBe(true);
});

test("if nothing is unfinished the last mark stays", async () => {
  expect(await marksAfter(["10", [], 100n], [undefined, [], 105n], [undefined, [], 110n])).toEqual({
    newest: "10",
    stable: "10",
    conditional: { mark: "10", running: [] },
  });
});

test("what may have run behind the newest transaction that had ended is waited for, and guards a mark", async () => {
  const first = ["10", [90n], 100n, [], 103n] as const;
  expect(await marksAfter(first, ["20", [101n, 102n], 104n])).toMatchObject({
    stable: "0",
    conditional: { mark: "10", running: [101n, 102n] },
  });
  expect(await marksAfter(first, ["20", [103n], 104n])).toMatchObject({
    stable: "10",
    conditional: { mark: "10", running: [] },
  });
});

test("a mark does not count before writers without a number are seen to have ended, by an earlier read", async () => {
  const first = ["10", [], 100n, ["3/7"]] as const;
  const nothing = { stable: "0", conditional: { mark: "0", running: [] } };
  expect(await marksAfter(first, ["20", [], 105n, ["3/7"]])).toMatchObject(nothing);
  // It may have ended behind this snapshot.
  expect(await marksAfter(first, ["20", [], 105n, []])).toMatchObject(nothing);
  expect(await marksAfter(first, ["20", [], 105n, []], ["5", [], 110n])).toMatchObject({
    newest: "5",
    stable: "5",
    conditional: { mark: "5" },
  });
});

test("a mark that is conditional stays while newer ones wait for writers", async () => {
  const reads: readonly Read[] = [
    ["10", [90n], 100n],
    ["20", [90n], 105n, ["3/7"]],
    ["30", [90n], 110n, ["3/7"]],
    ["40", [90n], 115n, ["3/7"]],
  ];
  expect(await marksAfter(...reads)).toMatchObject({ stable: "0", conditional: { mark: "10", running: [90n] } });
});

test("if somebody always writes marks still count, each after the writers of its own read", async () => {
  const reads: readonly Read[] = [
    ["10", [], 100n, ["1/1"]],
    ["20", [], 105n, ["1/2"]],
    ["30", [], 110n, ["1/3"]],
    ["40", [], 115n, ["1/4"]],
    ["50", [], 120n, ["1/5"]],
  ];
  expect(await marksAfter(...reads.slice(0, 3))).toMatchObject({ stable: "10", conditional: { mark: "10" } });
  expect(await marksAfter(...reads)).toMatchObject({ stable: "30", conditional: { mark: "30" } });
});

test("transactions further back than an ended one are another database: nothing of the last one counts", async () => {
  const { lowWater, asked, read } = markReader();
  const far = 3_000_000_000n;
  for (const end of [far, far + 10n, far + 20n]) await read(["500", [far - 1n], end, ["1/1"]]);
  lowWater.notePosition("600");
  await read(["7", [], 1000n, [], 1001n]);
  expect(lowWater.marks()).toEqual(["0", "0", "7"]);
  await read(["7", [], 1002n]);
  expect(asked.at(-1)).toMatchObject({ afterHighest: null, awaited: [] });
});

test("nothing counts behind a lost connection", async () => {
  const { lowWater, pool, read } = markReader();
  await read(["10", [], 100n], ["20", [], 105n]);
  expect(lowWater.marks()).toEqual(["10", "10", "20"]);
  pool.lostConnections += 1;
  expect(lowWater.marks()).toEqual(["0", "0", "0"]);
});

test("the same mark again needs no new transaction, and becomes stable", async () => {
  const { lowWater, asked, read } = markReader();
  await read(["10", [90n], 100n], ["10", [90n], 101n, [], null]);
  expect(asked.at(-1)?.lastRead).toBe("10");
  expect(lowWater.marks()).toEqual(["0", "10", "10", "90"]);
  await read(["10", [], 101n, [], null]);
  expect(lowWater.marks()).toEqual(["10", "10", "10"]);
});

test("the position behind the highest one seen takes the place of a mark", async () => {
  const { lowWater, asked, read } = markReader();
  for (const position of ["9", "10", "2"]) lowWater.notePosition(position);
  await read(["10", [], 100n]);
  expect(asked.at(-1)?.afterHighest).toBe("11");
});
