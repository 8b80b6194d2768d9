import { expect, test } from "@jest/globals";
import { CellLink } from "../../../../src/adapters/stores/cells/link.ts";
import type { Store } from "../../../../src/ports/store.ts";
import { ManualClock, silentLog } from "../../../support/recorders.ts";

test("who was left out of a call knows it, though an earlier call ends well meanwhile", async () => {
  let isReady = false;
  const cell = { name: "b", store: {} as Store, isReady: () => isReady };
  const link = new CellLink(cell, 1, new ManualClock(), silentLog);
  let answer = (): void => {};
  isReady = true;
  const earlier = link.ask(() => new Promise<void>((resolve) => (answer = resolve)));
  isReady = false;
  const leftOut = link.watch();
  await expect(link.ask(async () => {})).rejects.toMatchObject({ code: "unavailable" });
  answer();
  await earlier;

  expect(link.watch()()).toBeUndefined();
  expect(leftOut()).toMatchObject({ name: "b", reason: expect.stringContaining("not been checked") });
  isReady = true;
  const later = link.watch();
  await link.ask(async () => {});
  expect(later()).toBeUndefined();
});
