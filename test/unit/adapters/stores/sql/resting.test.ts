import { expect, test } from "@jest/globals";
import { Resting } from "../../../../../src/adapters/stores/sql/refusalCheck.ts";
import type { MessageId } from "../../../../../src/model/rows.ts";
import { manualTime } from "../../../../support/manualTime.ts";

const FIRST = "a" as MessageId;
const SECOND = "b" as MessageId;

/** Rows that the database refused: they are left alone, and tried again without a restart. */

test("a row is left out for half a minute after it was refused, each by its own time", async () => {
  const { clock, advance } = manualTime();
  const resting = new Resting(clock);
  resting.add([{ id: FIRST, reason: "no" }]);
  await advance(10_000);
  resting.add([{ id: SECOND, reason: "no" }]);
  await advance(19_999);
  expect(resting.ids()).toEqual([FIRST, SECOND]);
  await advance(1);
  expect(resting.ids()).toEqual([SECOND]);
  await advance(10_000);
  expect(resting.ids()).toEqual([]);
});
