import { expect, test } from "@jest/globals";
import { countChanged, tryInParts } from "../../../../src/adapters/stores/sql/rows.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { MessageId } from "../../../../src/model/rows.ts";

/** A table that refuses some numbers; tells what was tried. */
function table(...refused: readonly number[]) {
  const tries: (readonly number[])[] = [];
  const store = async (part: readonly number[]) => {
    tries.push(part);
    const bad = part.find((n) => refused.includes(n));
    if (bad !== undefined) throw new StoreError("refused", `a trigger refuses ${bad}`);
    return part.length;
  };
  /** The same for a change on request. */
  const change = async (part: readonly MessageId[]) => [{ changed: await store(part.map(Number)) }];
  return { store, change, tries };
}

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);
const ids = (count: number) => numbers(count).map((n) => String(n) as MessageId);

test("around refused rows all others are stored, in order, and each refused one is met alone", async () => {
  const { store, tries } = table(1, 5);
  const met: unknown[] = [];
  for await (const tried of tryInParts(numbers(8), store)) {
    met.push(tried.isRefused ? tried.error.message : tried.result);
  }
  expect(met).toEqual([1, "a trigger refuses 1", 2, 1, "a trigger refuses 5", 2]);
  expect(tries.filter((part) => part.length === 1)).toEqual([[0], [1], [4], [5]]);
});

test("what is behind a refused row is tried when the caller has dealt with it", async () => {
  const { store, tries } = table(0);
  for await (const tried of tryInParts(numbers(4), store)) {
    if (!tried.isRefused) continue;
    expect(tries).toEqual([[0, 1, 2, 3], [0, 1], [0]]);
    await store([9]);
  }
  expect(tries.slice(3)).toEqual([[9], [1], [2, 3]]);
});

test("a change tells why a row was left; an error that is no refusal ends it", async () => {
  const { change } = table(0, 1);
  expect(await countChanged(ids(3), change)).toEqual({ changed: 1, refusal: "a trigger refuses 0" });
  const unavailable = new StoreError("unavailable", "gone");
  await expect(countChanged(ids(2), () => Promise.reject(unavailable))).rejects.toBe(unavailable);
});
