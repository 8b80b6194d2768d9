import { expect, test } from "@jest/globals";
import { relayIntervalMs } from "../../../roles/relay.ts";

test.each([
  [100, 0, 100],
  [100, 3, 100],
  [100, 7, 200],
  [100, 63, 1600],
  [100, 1000, 1600],
  [5000, 63, 5000],
  [0, 63, 0],
])("a relay that polls every %i ms waits, beside %i others, %i ms", (pollIntervalMs, others, waitMs) => {
  expect(relayIntervalMs(pollIntervalMs, others)).toBe(waitMs);
});
