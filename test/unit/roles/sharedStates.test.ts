import { expect, jest, test } from "@jest/globals";
import { SharedStates } from "../../../roles/sharedStates.ts";
import type { DestinationGates } from "../../../src/core/destinations/gates.ts";
import { systemClock } from "../../../src/time/clock.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";

failOnLeaks();

test("the gates of several cells share one read, and its failure", async () => {
  let failure: Error | undefined;
  const read = jest.fn(async () => {
    if (failure !== undefined) throw failure;
    return [];
  });
  const states = new SharedStates({ store: { states: read }, fleetFactor: () => 1, clock: systemClock });
  const told: string[] = [];
  const memberOf = (name: string) => {
    const gates: Pick<DestinationGates, "refresh" | "refreshFailed"> = {
      async refresh(_isSlow, readStates) {
        await readStates?.();
        told.push(name);
      },
      refreshFailed: async (error) => void told.push(`${name}: ${(error as Error).message}`),
    };
    return { gates: gates as DestinationGates, isSlow: () => false, isIdle: () => true };
  };
  try {
    await states.loop.start();
    await states.next();
    expect(read).not.toHaveBeenCalled();

    states.join(memberOf("a"));
    expect(states.areKnown).toBe(false);
    const leave = states.join(memberOf("b"));
    await states.next();
    expect([read.mock.calls.length, told.splice(0)]).toEqual([1, ["a", "b"]]);
    expect(states.areKnown).toBe(true);

    failure = new Error("away");
    await states.next();
    await eventually(() => expect(told).toEqual(["a: away", "b: away"]));
    told.length = 0;
    expect(states.areStale).toBe(false);

    leave();
    failure = undefined;
    await states.next();
    expect(told).toEqual(["a"]);
  } finally {
    await states.loop.stop(new AbortController().signal);
  }
});
