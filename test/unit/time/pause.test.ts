import { describe, expect, test } from "@jest/globals";
import { pause } from "../../../src/time/pause.ts";

describe("a pause", () => {
  test("is over after its time", async () => {
    expect(await pause(1, new AbortController().signal)).toBe(true);
  });

  test("ends at once when its signal aborts", async () => {
    const controller = new AbortController();
    const paused = pause(2 ** 30, controller.signal);
    controller.abort();
    expect(await paused).toBe(false);
  });

  test("does not begin when its signal has aborted", async () => {
    expect(await pause(2 ** 30, AbortSignal.abort())).toBe(false);
  });
});
