import { describe, expect, test } from "@jest/globals";
import { Ramp } from "../../../../src/core/destinations/ramp.ts";

describe("a ramp", () => {
  test("begins with everything, and after a restart with one and one more per success", () => {
    const ramp = new Ramp(4);
    expect(ramp.limit).toBe(Infinity);
    ramp.restart();
    const limits = Array.from({ length: 5 }, () => {
      const { limit } = ramp;
      ramp.succeeded();
      return limit;
    });
    expect(limits).toEqual([1, 2, 3, Infinity, Infinity]);
  });

  test("is halved by a failure on the way up, and not at the top", () => {
    const ramp = new Ramp(8);
    ramp.failed();
    expect(ramp.limit).toBe(Infinity);
    ramp.restart();
    for (let n = 0; n < 4; n += 1) ramp.succeeded();
    ramp.failed();
    expect(ramp.limit).toBe(2);
    ramp.failed();
    ramp.failed();
    expect(ramp.limit).toBe(1);
  });
});
