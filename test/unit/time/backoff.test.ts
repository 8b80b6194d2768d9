import { describe, expect, test } from "@jest/globals";
import { Backoff } from "../../../src/time/wait.ts";

const waits = (backoff: Backoff, count: number) => Array.from({ length: count }, () => backoff.next());

describe("a backoff", () => {
  test("doubles from 100 ms to 5 s", () => {
    expect(waits(new Backoff(() => 0), 8)).toEqual([100, 200, 400, 800, 1600, 3200, 5000, 5000]);
  });

  test("takes up to half of each wait off at random", () => {
    expect(waits(new Backoff(() => 0.5), 3)).toEqual([75, 150, 300]);
    expect(waits(new Backoff(() => 0.9999999), 3)).toEqual([50, 100, 200]);
  });

  test("has the range it is given", () => {
    expect(waits(new Backoff(() => 0, { firstMs: 500, longestMs: 1500 }), 4)).toEqual([500, 1000, 1500, 1500]);
  });

  test("begins again when the broker was reached", () => {
    const backoff = new Backoff(() => 0);
    waits(backoff, 5);
    expect(backoff.failures).toBe(5);
    backoff.reset();
    expect(backoff.failures).toBe(0);
    expect(backoff.next()).toBe(100);
  });

  test("stays finite after any number of failures", () => {
    const backoff = new Backoff(() => 0);
    waits(backoff, 2000);
    expect(backoff.next()).toBe(5000);
  });
});
