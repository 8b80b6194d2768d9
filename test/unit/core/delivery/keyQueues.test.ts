import { expect, test } from "@jest/globals";
import { KeyQueues, type QueuedRow } from "../../../../src/core/delivery/keyQueues.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";

function entry(key: string | null, destination: string, bytes: number): QueuedRow {
  const row = outboxRow({ key, payload: "x".repeat(bytes) }) as QueuedRow["row"];
  return { row, key, claim: {} as QueuedRow["claim"], destination, isRetry: false };
}

test("the bytes that wait follow the rows, also those behind another one of their key", () => {
  const queues = new KeyQueues();
  const waiting = () => [queues.bytesWaitingAt("a"), queues.bytesWaitingAt("b")];
  for (const [key, destination, bytes] of [
    ["k", "a", 1],
    ["k", "b", 10],
    ["k", "a", 100],
    [null, "b", 1000],
    ["l", "b", 10_000],
    ["l", "b", 100_000],
  ] as const) {
    queues.add(entry(key, destination, bytes));
  }
  expect(waiting()).toEqual([111, 111_000]);

  queues.take("a");
  expect(waiting()).toEqual([110, 111_000]);
  queues.done("k");
  expect(waiting()).toEqual([0, 111_110]);
  queues.take("b");
  queues.take("b");
  expect(waiting()).toEqual([0, 100_110]);
  queues.drop("l");
  expect(waiting()).toEqual([0, 110]);
  queues.dropAt("b");
  expect(waiting()).toEqual([0, 0]);
  expect(queues.waiting).toBe(0);
});
