import { expect, test } from "@jest/globals";
import { Turns } from "../../../../src/adapters/stores/postgres/connections.ts";
import { settle } from "../../../support/manualTime.ts";

test("statements that take turns begin one after another, in their order", async () => {
  const turns = new Turns(60_000);
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  for (let n = 0; n < 3; n += 1) {
    void turns.take().then((end) => {
      begun.push(n);
      ends.push(end);
    });
  }
  await settle();
  expect(begun).toEqual([0]);
  ends[0]?.();
  await settle();
  expect(begun).toEqual([0, 1]);
  ends[1]?.();
  await settle();
  expect(begun).toEqual([0, 1, 2]);
});

test("a statement that takes long does not block others", async () => {
  const turns = new Turns();
  await turns.take();

  await expect(turns.take()).resolves.toBeInstanceOf(Function);
});
