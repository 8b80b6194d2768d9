import { describe, expect, test } from "@jest/globals";
import { atMost } from "../../../src/time/atMost.ts";
import { failOnLeaks } from "../../support/leaks.ts";

describe("a step of a broker's client", () => {
  failOnLeaks();

  test.each<[string, () => Promise<unknown> | undefined]>([
    ["has ended", async () => "done"],
    ["has failed", () => Promise.reject(new Error("the connection is gone"))],
    ["was never begun", () => undefined],
  ])("is waited for no longer when it %s", async (_, step) => {
    expect(await atMost(2 ** 30, step())).toBeUndefined();
  });

  test("is waited for no longer than its time", async () => {
    expect(await atMost(1, new Promise(() => {}))).toBeUndefined();
  });
});
