import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { failOnLeaks } from "../support/leaks.ts";
import { plans } from "./poller/plan.ts";
import { World } from "./poller/world.ts";
import { settings } from "./settings.ts";

failOnLeaks();

/** Replicas of the poller in virtual time: `poller/world.ts`. A failure prints the plan, which makes the same run again. */
describe("pollers", () => {
  test("deliver each row once and in the order of its key, and claim few in vain, however often the receiver refuses and replicas stop", async () => {
    await fc.assert(
      fc.asyncProperty(plans(["terminate"]), async (plan) => {
        expect(await new World(plan).run()).toEqual([]);
      }),
      { ...settings(RUNS), interruptAfterTimeLimit: LIMIT_MS },
    );
  }, 60_000);

  test("deliver each row and keep the order of each key while replicas are killed, stopped, suspended and cut off", async () => {
    await fc.assert(
      fc.asyncProperty(plans(["kill", "terminate", "pause", "cut", "held"]), async (plan) => {
        expect(await new World(plan).run()).toEqual([]);
      }),
      { ...settings(RUNS), interruptAfterTimeLimit: LIMIT_MS },
    );
  }, 60_000);
});

const RUNS = 60;
const LIMIT_MS = 45_000;
