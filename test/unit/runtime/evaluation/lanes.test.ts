import { describe, expect, test } from "@jest/globals";
import type { Evaluation } from "../../../../src/ports/evaluator.ts";
import { type LaneBounds, Lanes } from "../../../../src/runtime/evaluation/lanes.ts";

const evaluation = (lane: string, input: string, refusable = false): Evaluation => ({
  lane,
  expression: "$",
  input,
  bindings: {},
  timeoutMs: 100,
  maxDepth: 100,
  refusable,
});

/** Lanes with the order in which their evaluations run; an evaluation takes as long as its input says. */
function setup(bounds?: LaneBounds) {
  const lanes = new Lanes(bounds);
  const add = (lane: string, ...inputs: readonly string[]) =>
    inputs.map((input) => lanes.add(evaluation(lane, input), () => {}));
  /** Runs up to `count` evaluations, or what there is. */
  const run = (count = 1000, { apart = false, now = 0 } = {}): string[] => {
    const order: string[] = [];
    for (let job = lanes.next(apart, now); job !== undefined; job = lanes.next(apart, now)) {
      if (order.length === count) break;
      lanes.take(job, apart, now);
      lanes.ended(job, Number(job.evaluation.input));
      order.push(job.lane.name);
    }
    return order;
  };
  return { lanes, add, run };
}

const times = (count: number, input: string): readonly string[] => Array<string>(count).fill(input);

describe("lanes", () => {
  test("give the evaluations of one in their order", () => {
    const { lanes, add } = setup();
    add("a", "1", "2", "3");
    const order: string[] = [];
    for (let job = lanes.next(false, 0); job !== undefined; job = lanes.next(false, 0)) {
      order.push(job.evaluation.input);
      lanes.take(job, false, 0);
    }
    expect(order).toEqual(["1", "2", "3"]);
  });

  test("share the time and not the number of evaluations", () => {
    const { add, run } = setup();
    add("slow", ...times(100, "90"));
    add("quick", ...times(1000, "1"));
    const order = run(500);
    const slow = order.filter((lane) => lane === "slow").length;
    // 6 of 90 ms beside 494 of 1 ms.
    expect(slow).toBeGreaterThanOrEqual(5);
    expect(slow).toBeLessThanOrEqual(7);
  });

  test("owe nothing to an idle one", () => {
    const { add, run } = setup();
    add("quick", "1");
    run();
    add("busy", ...times(100, "10"));
    run();
    add("quick", ...times(100, "10"));
    add("busy", ...times(100, "10"));
    const order = run(20);
    expect(order.filter((lane) => lane === "busy").length).toBeGreaterThanOrEqual(9);
  });

  test("do not forget what one has had when it is empty for a moment", () => {
    const { add, run } = setup();
    add("quick", ...times(1000, "1"));
    const order: string[] = [];
    for (let n = 0; n < 100; n++) {
      add("slow", "90");
      order.push(...run(3));
      if (order.filter((lane) => lane === "slow").length === n + 1) continue;
      break;
    }
    expect(order.filter((lane) => lane === "slow").length).toBeLessThan(10);
  });

  test("take back what was not run, in front and in its order", () => {
    const { lanes, add } = setup();
    add("a", "1", "2", "3");
    const taken = [1, 2].flatMap(() => {
      const job = lanes.next(false, 0);
      if (job !== undefined) lanes.take(job, false, 0);
      return job ?? [];
    });
    lanes.putBack(taken);
    expect(lanes.drain("all", 0).map((job) => job.evaluation.input)).toEqual(["1", "2", "3"]);
  });
});

describe("a lane that offended", () => {
  test("rests, is then served apart in turn with others of its kind, and with all others in the end", () => {
    const { lanes, add, run } = setup();
    add("bad", ...times(20, "1"));
    add("worse", ...times(20, "1"));
    add("good", ...times(3, "1"));
    for (const name of ["bad", "worse"]) {
      const job = lanes.next(false, 0);
      if (job?.lane.name === name) lanes.offended(job.lane, 350, 0);
    }
    expect(run()).toEqual(["good", "good", "good"]);
    expect(run(10, { apart: true, now: 349 })).toEqual([]);
    expect(lanes.restsUntil(349)).toBe(350);
    const turns = [351, 352, 353, 354].flatMap((now) => run(1, { apart: true, now }));
    expect(turns).toEqual(["bad", "worse", "bad", "worse"]);
    const end = lanes.apartUntil(351) ?? 0;
    expect(end).toBeGreaterThan(5000);
    expect(lanes.apartUntil(end)).toBeUndefined();
    expect(run(2, { now: end }).sort()).toEqual(["bad", "worse"]);
  });
});

describe("the bounds of what waits", () => {
  const offer = (lanes: Lanes, lane: string, input: string) => lanes.add(evaluation(lane, input, true), () => {});

  test("leave room for others when one floods the queue", () => {
    const { lanes } = setup({ count: 100, length: 1_000_000 });
    const flood = times(200, "x").filter((input) => offer(lanes, "flood", input)).length;
    expect(flood).toBe(50);
    expect(times(200, "x").filter((input) => offer(lanes, "other", input)).length).toBe(25);
    expect(offer(lanes, "third", "x")).toBe(true);
  });

  test("count characters too", () => {
    const { lanes } = setup({ count: 1000, length: 1000 });
    const flood = times(200, "x".repeat(100)).filter((input) => offer(lanes, "flood", input)).length;
    expect(flood).toBe(5);
    expect(offer(lanes, "other", "x".repeat(400))).toBe(true);
  });

  test("let one in that is larger than all of them when its lane is empty", () => {
    const { lanes } = setup({ count: 10, length: 10 });
    expect(offer(lanes, "a", "x".repeat(1000))).toBe(true);
    expect(offer(lanes, "a", "x")).toBe(false);
    expect(offer(lanes, "b", "x")).toBe(true);
  });

  test("refuse nothing of callers that bound by themselves what they ask for, and do not count it", () => {
    const { lanes, add } = setup({ count: 10, length: 10 });
    expect(add("deliveries", ...times(100, "xxx"))).not.toContain(false);
    expect(offer(lanes, "a", "x")).toBe(true);
    expect(offer(lanes, "a", "x")).toBe(true);
  });

  test("are free again when what waited was taken", () => {
    const { lanes, run } = setup({ count: 4, length: 1000 });
    expect([1, 2, 3].map(() => offer(lanes, "a", "1"))).toEqual([true, true, false]);
    run();
    expect(offer(lanes, "a", "1")).toBe(true);
  });
});
