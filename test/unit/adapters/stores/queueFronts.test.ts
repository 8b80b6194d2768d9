import { beforeEach, describe, expect, test } from "@jest/globals";
import { QueueFront } from "../../../../src/adapters/stores/sql/queueFronts.ts";
import { ManualClock } from "../../../support/recorders.ts";

const FREE = { candidates: 10, heldBack: 0, gap: 0, isFull: true };
const BLOCKED = { candidates: 10, heldBack: 6, gap: 0, isFull: true };
const NOTHING = { candidates: 0, heldBack: 0, gap: 0, isFull: false };

describe("the front of a queue", () => {
  let clock: ManualClock;
  let front: QueueFront;

  beforeEach(() => {
    clock = new ManualClock();
    front = new QueueFront(clock);
  });

  /** The front is blocked, and claims have come to a position. */
  function passedTo(end: string, tookMs = 0): void {
    front.claimedInOrder(BLOCKED, "100", tookMs);
    front.claimedStretch(false, { first: undefined, end, tookMs: 0 });
  }

  test("is open at first, and while most rows of a claim are free or none is due", () => {
    expect(front.isOpen).toBe(true);
    front.claimedInOrder(FREE, "100", 1);
    front.claimedInOrder({ ...BLOCKED, heldBack: 5 }, "100", 1);
    front.claimedInOrder({ ...BLOCKED, isFull: false }, "100", 1);
    front.claimedInOrder(NOTHING, "100", 1);
    expect(front.isOpen).toBe(true);
  });

  test.each([
    ["most rows of a claim wait behind others", BLOCKED],
    ["the claim has read past thousands of rows", { ...FREE, gap: 5001 }],
  ])("is blocked when %s: claims continue from the mark, stretch by stretch", (_, found) => {
    front.claimedInOrder(found, "100", 1);
    expect(front.isOpen).toBe(false);
    expect(front.stretch("100")).toEqual({ from: "100", isSweep: false });
    front.claimedStretch(false, { first: undefined, end: "6000", tookMs: 1 });
    expect(front.stretch("100")).toEqual({ from: "6000", isSweep: false });
    front.claimedStretch(false, { first: "6500", end: "11000", tookMs: 1 });
    expect(front.stretch("100")).toEqual({ from: "6500", isSweep: false });
    expect(front.stretch("7000")).toEqual({ from: "7000", isSweep: false });
  });

  test("is blocked when more than a thousand rows were put off", () => {
    for (let n = 0; n < 1001; n += 1) front.putOff();
    front.claimedInOrder(FREE, "100", 1);
    expect(front.isOpen).toBe(false);
  });

  test("is claimed in order again after a second, and open if it is free by then", () => {
    passedTo("6000");
    clock.advance(999);
    expect(front.isOpen).toBe(false);
    clock.advance(1);
    expect(front.isOpen).toBe(true);
    front.claimedInOrder(FREE, "100", 1);
    clock.advance(1);
    expect(front.isOpen).toBe(true);
  });

  test("is swept stretch by stretch if it is still blocked, for a twentieth of the time", () => {
    passedTo("11000");
    clock.advance(1000);
    front.claimedInOrder(BLOCKED, "100", 1);
    expect(front.stretch("100")).toEqual({ from: "100", isSweep: true });
    front.claimedStretch(true, { first: undefined, end: "6000", tookMs: 10 });
    expect(front.stretch("100")).toEqual({ from: "11000", isSweep: false });
    clock.advance(200);
    expect(front.stretch("100")).toEqual({ from: "6000", isSweep: true });
    front.claimedStretch(true, { first: undefined, end: "12000", tookMs: 100 });
    clock.advance(1999);
    expect([front.isOpen, front.stretch("100")]).toEqual([false, { from: "11000", isSweep: false }]);
    clock.advance(1);
    expect(front.isOpen).toBe(true);
  });

  test("begins at the first row that a sweep found", () => {
    passedTo("11000");
    clock.advance(1000);
    front.claimedInOrder(BLOCKED, "100", 1);
    front.claimedStretch(true, { first: "400", end: "6000", tookMs: 1 });
    expect(front.stretch("100")).toEqual({ from: "400", isSweep: false });
  });

  test("is swept up to its last row if those up to the position are finished", () => {
    passedTo("11000");
    clock.advance(1000);
    front.claimedInOrder(BLOCKED, "100", 1);
    front.claimedStretch(true, { first: undefined, end: "400", isRead: true, tookMs: 0 });
    expect(front.stretch("100")).toEqual({ from: "11000", isSweep: false });
    clock.advance(1000);
    expect(front.isOpen).toBe(true);
  });

  test("is swept soon when rows in it are free", () => {
    passedTo("11000", 10);
    front.sweepSoon();
    clock.advance(39);
    expect(front.isOpen).toBe(false);
    clock.advance(1);
    expect(front.isOpen).toBe(true);
  });

  test("rests after a claim that found nothing, until it is swept soon", () => {
    passedTo("6000");
    front.claimedStretch(false, { first: undefined, end: "6000", tookMs: 5 });
    expect(front.isRested).toBe(false);
    clock.advance(50);
    expect(front.isRested).toBe(true);
    front.claimedStretch(false, { first: undefined, end: "6000", tookMs: 5 });
    front.sweepSoon();
    expect(front.isRested).toBe(true);
  });
});
