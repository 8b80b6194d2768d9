import { expect, test } from "@jest/globals";
import { KeyLanes, type LaneRow } from "../../../../src/core/delivery/keyQueues.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";

function entry(key: string | null, destination: string, bytes: number): LaneRow {
  const row = outboxRow({ key, payload: "x".repeat(bytes) }) as LaneRow["row"];
  return { row, batch: {} as LaneRow["batch"], destination };
}

test("the bytes that wait follow the rows, also those behind another one of their key", () => {
  const lanes = new KeyLanes();
  const waiting = () => [lanes.bytesWaitingAt("a"), lanes.bytesWaitingAt("b"), lanes.bytesWaiting];
  for (const [key, destination, bytes] of [
    ["k", "a", 1],
    ["k", "b", 10],
    ["k", "a", 100],
    [null, "b", 1000],
    ["l", "b", 10_000],
    ["l", "b", 100_000],
  ] as const) {
    lanes.add(entry(key, destination, bytes));
  }
  expect(waiting()).toEqual([111, 111_000, 111_111]);

  lanes.take("a");
  expect(waiting()).toEqual([110, 111_000, 111_110]);
  lanes.done("k");
  expect(waiting()).toEqual([0, 111_110, 111_110]);
  lanes.take("b");
  lanes.take("b");
  expect(waiting()).toEqual([0, 100_110, 100_110]);
  lanes.drop("l");
  expect(waiting()).toEqual([0, 110, 110]);
  lanes.dropAt("b");
  expect(waiting()).toEqual([0, 0, 0]);
  expect(lanes.waiting).toBe(0);
});
