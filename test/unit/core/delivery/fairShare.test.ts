import { beforeEach, describe, expect, test } from "@jest/globals";
import { FairShare, type Slot } from "../../../../src/core/delivery/fairShare.ts";
import type { Verdict } from "../../../../src/core/destinations/breaker.ts";
import { ManualClock } from "../../../support/recorders.ts";

const CONCURRENCY = 8;
let clock: ManualClock;
let share: FairShare;

beforeEach(() => {
  clock = new ManualClock();
  share = new FairShare({ concurrency: CONCURRENCY, isShared: true, clock });
});

/** Begins deliveries to these until nobody may any more. @returns their slots, by destination */
function fill(...ready: readonly string[]): ReadonlyMap<string, readonly Slot[]> {
  const slots = new Map<string, Slot[]>(ready.map((each) => [each, []]));
  for (let next = share.next(ready); next !== undefined; next = share.next(ready)) {
    slots.get(next)?.push(share.begin(next));
  }
  return slots;
}

const counts = (slots: ReadonlyMap<string, readonly Slot[]>) =>
  Object.fromEntries([...slots].map(([destination, { length }]) => [destination, length]));

/** Deliveries one after another. */
function deliver(destination: string, times: number, verdict: Verdict = "healthy", tookMs = 1): void {
  for (let n = 0; n < times; n += 1) {
    const slot = share.begin(destination);
    clock.advance(tookMs);
    share.end(slot, verdict);
  }
}

/** It has shown that it is healthy. */
const prove = (...destinations: readonly string[]) => {
  for (const destination of destinations) deliver(destination, CONCURRENCY);
};

describe("slots", () => {
  test("all go to the only destination", () => {
    share = new FairShare({ concurrency: CONCURRENCY, isShared: false, clock });
    expect(counts(fill("a"))).toEqual({ a: 8 });
  });

  test("all but one go to a destination that is alone with due work, and the last one to the next destination", () => {
    prove("a");
    expect(counts(fill("a"))).toEqual({ a: 7 });
    expect(counts(fill("a", "b"))).toEqual({ a: 0, b: 1 });
  });

  test("a quarter is left for destinations that have answered, however long they have been idle", () => {
    prove("a");
    clock.advance(60_000);
    const hanging = Array.from({ length: 20 }, (_, n) => `hanging-${n}`);
    expect([...fill(...hanging).values()].flat()).toHaveLength(6);
    expect(share.next(["a"])).toBe("a");
  });

  test("a destination that has not answered yet gets one, and one more with each success", () => {
    const [first] = fill("a").get("a") ?? [];
    expect(share.next(["a"])).toBeUndefined();
    if (first !== undefined) share.end(first, "healthy");
    expect(counts(fill("a"))).toEqual({ a: 2 });
  });

  test("a quarter of them is left to others by all those together that have not answered yet", () => {
    const hanging = Array.from({ length: 20 }, (_, n) => `hanging ${n}`);
    const first = [...fill(...hanging).values()].flat();
    expect(first).toHaveLength(8);
    for (const slot of first) share.end(slot, "failed");
    prove("healthy");
    expect([...fill(...hanging).values()].flat()).toHaveLength(6);
    expect(counts(fill("healthy"))).toEqual({ healthy: 2 });
  });

  test("are shared evenly, and a slot that becomes free goes to the destination with fewer", () => {
    prove("a", "b", "c");
    const slots = fill("a", "b");
    expect(counts(slots)).toEqual({ a: 4, b: 4 });
    for (const slot of (slots.get("a") ?? []).slice(0, 2)) share.end(slot, "healthy");
    expect(counts(fill("a", "c"))).toEqual({ a: 0, c: 2 });
  });

  test("a destination that was not used for long has to show anew that it is healthy", () => {
    prove("a");
    clock.advance(10_001);
    expect(counts(fill("a"))).toEqual({ a: 1 });
  });
});

describe("a destination is unhealthy", () => {
  test.each([
    ["while a delivery has taken longer than a second", () => void [share.begin("a"), clock.advance(1001)]],
    ["when the last one took longer than a second", () => deliver("a", 1, "healthy", 1001)],
    ["when half of its last deliveries failed", () => deliver("a", 6, "failed")],
  ])("%s", (_when, happens) => {
    prove("a");
    expect(share.isUnhealthy("a")).toBe(false);
    happens();
    expect(share.isUnhealthy("a")).toBe(true);
  });

  test("from the start if it was unhealthy before, until a delivery succeeds; such ones get half of the slots", () => {
    const unhealthy = Array.from({ length: 10 }, (_, n) => `unhealthy-${n}`);
    const begun = (...others: readonly string[]): number => {
      const wasUnhealthy = (name: string) => unhealthy.includes(name);
      share = new FairShare({ concurrency: CONCURRENCY, isShared: true, wasUnhealthy, clock });
      const slots = fill(...unhealthy, ...others);
      return unhealthy.filter((name) => (slots.get(name) ?? []).length > 0).length;
    };
    expect([begun(), begun("healthy")]).toEqual([4, 1]);

    share = new FairShare({ concurrency: CONCURRENCY, isShared: true, wasUnhealthy: () => true, clock });
    deliver("a", 1, "healthy");
    expect(share.isUnhealthy("a")).toBe(false);
  });

  test("until its deliveries succeed again, or it has not been tried for long", () => {
    deliver("a", 8, "failed");
    deliver("b", 8, "failed");
    deliver("a", 4, "healthy");
    expect(share.isUnhealthy("a")).toBe(false);
    clock.advance(10_001);
    expect(share.isUnhealthy("b")).toBe(false);
  });

  test("also if it fails at once after it was slow, until a delivery succeeds", () => {
    deliver("a", 1, "failed", 5000);
    deliver("a", 2, "failed");
    expect(share.isUnhealthy("a")).toBe(true);
    deliver("a", 1, "healthy");
    expect(share.isUnhealthy("a")).toBe(false);
  });

  test("but not for one delivery that hangs while others succeed", () => {
    prove("a");
    share.begin("a");
    for (let n = 0; n < 30; n += 1) {
      clock.advance(100);
      deliver("a", 1);
      expect(share.isUnhealthy("a")).toBe(false);
    }
    clock.advance(1001);
    expect(share.isUnhealthy("a")).toBe(true);
  });
});

describe("while others want slots", () => {
  test("all slow destinations together have one of eight", () => {
    prove("a", "b", "c");
    const hanging = ["a", "b"].map((destination) => share.begin(destination));
    clock.advance(1001);
    expect(counts(fill("a", "b", "c"))).toEqual({ a: 0, b: 0, c: 6 });
    for (const slot of hanging) share.end(slot, "failed");
    expect(counts(fill("a", "b", "c"))).toEqual({ a: 1, b: 0, c: 1 });
  });

  test("failing ones have one of eight, also beside a hanging one", () => {
    prove("c");
    share.begin("a");
    clock.advance(1001);
    for (const each of ["b", "d"]) deliver(each, 8, "failed");
    expect(counts(fill("b", "c", "d"))).toEqual({ b: 1, c: 6, d: 0 });
  });

  test("slow ones share one slot in turns", () => {
    prove("c");
    deliver("a", 1, "failed", 2000);
    deliver("b", 1, "failed", 2000);
    share.next(["c"]);
    const [first] = fill("a", "b", "c").get("a") ?? [];
    clock.advance(1001);
    deliver("c", 1);
    expect(counts(fill("a", "b", "c"))).toEqual({ a: 0, b: 0, c: 0 });
    if (first !== undefined) share.end(first, "failed");
    expect(counts(fill("a", "b", "c"))).toEqual({ a: 0, b: 1, c: 0 });
  });
});

test("a single destination is seen to be unhealthy, and may use every slot", () => {
  share = new FairShare({ concurrency: CONCURRENCY, isShared: false, clock });
  deliver("a", 8, "failed");
  expect([share.isUnhealthy("a"), share.isShared]).toEqual([true, false]);
  expect(counts(fill("a"))).toEqual({ a: 8 });
});

test("a destination that is unhealthy and alone may use nearly all slots", () => {
  prove("a");
  deliver("a", 8, "failed");
  expect(counts(fill("a"))).toEqual({ a: 7 });
});

test("a destination that has recovered is healthy, whatever hangs since before, and begins with one slot", () => {
  prove("a");
  deliver("a", 8, "failed");
  share.begin("a");
  clock.advance(1001);
  expect(share.isUnhealthy("a")).toBe(true);
  share.forget("a");
  expect(share.isUnhealthy("a")).toBe(false);
  expect(counts(fill("a"))).toEqual({ a: 0 });
});

test("deliveries of the last whole second are counted, or those of the running one if they are more", () => {
  clock.advance(1000 - (clock.monotonic() % 1000));
  deliver("a", 4, "healthy", 1);
  expect(share.perSecond("a")).toBe(4);
  deliver("a", 6, "healthy", 1);
  clock.advance(900);
  deliver("a", 1, "healthy", 1);
  clock.advance(100);
  expect(share.perSecond("a")).toBe(11);
  deliver("a", 3, "healthy", 1);
  expect(share.perSecond("a")).toBe(11);
  clock.advance(1000);
  expect(share.perSecond("a")).toBe(3);
  clock.advance(1000);
  expect(share.perSecond("a")).toBe(0);
});
