import { expect, test } from "@jest/globals";
import { PendingRetries } from "../../../../src/core/delivery/pendingRetries.ts";
import { ManualClock } from "../../../support/recorders.ts";

test("retries are pending until the last of them is due, and a little longer", () => {
  const clock = new ManualClock();
  const retries = new PendingRetries(clock);
  expect(retries.any()).toBe(false);
  retries.add(5000);
  retries.add(100);
  clock.advance(5999);
  expect(retries.any()).toBe(true);
  clock.advance(1);
  expect(retries.any()).toBe(false);
});
