import { expect, test } from "@jest/globals";
import { Quarantine } from "../../../../../src/adapters/stores/sql/rows.ts";
import type { MessageId } from "../../../../../src/model/rows.ts";
import { manualTime } from "../../../../support/manualTime.ts";

const FIRST = "a" as MessageId;
const SECOND = "b" as MessageId;

/** Rows that the database refused: they are left alone, and tried again without a restart. */

test("a row is left out for half a minute after it was refused, each by its own time", async () => {
  const { clock, advance } = manualTime();
  const quarantine = new Quarantine(clock);
  quarantine.add([{ id: FIRST, reason: "no" }]);
  await advance(10_000);
  quarantine.add([{ id: SECOND, reason: "no" }]);
  await advance(19_999);
  expect(quarantine.ids()).toEqual([FIRST, SECOND]);
  await advance(1);
  expect(quarantine.ids()).toEqual([SECOND]);
  await advance(10_000);
  expect(quarantine.ids()).toEqual([]);
});
