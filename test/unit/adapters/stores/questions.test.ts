import { expect, jest, test } from "@jest/globals";
import type pg from "pg";
import { Questions } from "../../../../src/adapters/stores/postgres/questions.ts";
import { Turns } from "../../../../src/adapters/stores/postgres/turns.ts";
import { Reserve } from "../../../../src/adapters/stores/sql/reserve.ts";

const RESULT = { rows: [] } as unknown as pg.QueryResult;

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

/** Questions on connections that note each write, and with what they are released. */
function setUp() {
  const log: (string | boolean)[] = [];
  const stream = { cork: () => log.push("cork"), uncork: () => log.push("uncork") };
  const client = { connection: { stream }, release: (isBroken: boolean) => log.push(isBroken) };
  const connect = jest.fn(async (_name: string) => client as unknown as pg.PoolClient);
  const questions = new Questions({ connect, turns: new Turns() });
  const reserves = [0, 1].map(() => new Reserve({ poolSize: 4, longestWaitMs: 0, share: () => 1 })) as [
    Reserve,
    Reserve,
  ];
  const ask = (name: string, answer: Promise<pg.QueryResult> = Promise.resolve(RESULT), store: 0 | 1 = 0) =>
    questions.ask(reserves[store], () => {
      log.push(name);
      return answer;
    });
  return { log, connect, ask, reserves };
}

test("questions of the same moment are sent in one write, on one connection", async () => {
  const { log, connect, ask } = setUp();
  expect(await Promise.all([ask("a"), ask("b"), ask("c")])).toEqual([RESULT, RESULT, RESULT]);
  await nextTurn();
  expect(log).toEqual(["cork", "a", "b", "c", "uncork", false]);
  expect(await ask("d")).toBe(RESULT);
  expect(connect).toHaveBeenCalledTimes(2);
});

test("a question that fails is to be asked alone, and its connection is not used again", async () => {
  const { log, connect, ask } = setUp();
  const rejected = Promise.reject(new Error("gone"));
  rejected.catch(() => {});
  expect(await Promise.all([ask("a", rejected), ask("b")])).toEqual([undefined, RESULT]);
  await nextTurn();
  expect(log.at(-1)).toBe(true);
  connect.mockRejectedValueOnce(new Error("away"));
  expect(await ask("c")).toBeUndefined();
});

test("behind a late answer, questions are to be asked alone, and the connection counts for the late one", async () => {
  const { log, ask, reserves } = setUp();
  let answer = (_: pg.QueryResult): void => {};
  const late = new Promise<pg.QueryResult>((resolve) => {
    answer = resolve;
  });
  const [first, ...behind] = [ask("a", late), ask("b", late, 1)] as const;
  expect(await Promise.all(behind)).toEqual([undefined]);
  expect(await ask("c")).toBeUndefined();
  expect(log).not.toContain("c");
  // Of a share of one connection.
  expect(reserves.map((reserve) => reserve.tryTake() === undefined)).toEqual([true, false]);
  answer(RESULT);
  expect(await first).toBe(RESULT);
  await nextTurn();
  expect(await ask("d")).toBe(RESULT);
});

test("a store without a free connection is to ask alone", async () => {
  const { log, ask, reserves } = setUp();
  reserves[0]?.tryTake();
  expect(await Promise.all([ask("a"), ask("b", Promise.resolve(RESULT), 1)])).toEqual([undefined, RESULT]);
  expect(log).not.toContain("a");
});
