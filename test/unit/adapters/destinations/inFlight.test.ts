import { describe, expect, test } from "@jest/globals";
import { InFlight } from "../../../../src/adapters/destinations/pendingPublish.ts";
import { eventually } from "../../../support/eventually.ts";

/** Members that write down how they end. */
function setup() {
  const inFlight = new InFlight();
  const ends: string[] = [];
  const add = (name: string, deadlineMs: number, signal = new AbortController().signal) => {
    const end = (how: string) => {
      ends.push(`${name} ${how}`);
      inFlight.delete(member);
    };
    const member = {
      deadline: performance.now() + deadlineMs,
      signal,
      expire: () => end("expired"),
      fail: (reason: unknown) => end(String(reason)),
    };
    inFlight.add(member);
    return member;
  };
  return { inFlight, ends, add };
}

const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;

describe("the publishes under way of a broker destination", () => {
  test("expire in their order, unless they ended before", async () => {
    const { inFlight, ends, add } = setup();
    add("a", 5);
    const b = add("b", 10);
    add("c", 15);
    add("d", 60_000);
    inFlight.delete(b);
    await eventually(() => expect(ends).toEqual(["a expired", "c expired"]));
    inFlight.failAll("closed");
    expect(ends).toEqual(["a expired", "c expired", "d closed"]);
  });

  test("do not expire if an earlier one has ended them", async () => {
    const { inFlight, ends, add } = setup();
    const a = add("a", 5);
    const others = [add("b", 5), add("c", 60_000)];
    const { expire } = a;
    a.expire = () => {
      expire();
      for (const other of others) inFlight.delete(other);
    };
    await eventually(() => expect(ends).toEqual(["a expired"]));
    const left = timers();
    add("d", 60_000);
    expect(timers()).toBe(left + 1);
    inFlight.failAll("closed");
    expect(ends).toEqual(["a expired", "d closed"]);
  });

  test("fail with the reason of their own signal", () => {
    const { inFlight, ends, add } = setup();
    const [one, two] = [new AbortController(), new AbortController()];
    add("a", 60_000, one.signal);
    add("b", 60_000, two.signal);
    add("c", 60_000, one.signal);
    one.abort("stop");
    expect(ends).toEqual(["a stop", "c stop"]);
    two.abort("lost");
    expect(ends).toEqual(["a stop", "c stop", "b lost"]);
    inFlight.failAll("closed");
    expect(ends).toHaveLength(3);
  });

  test("put one listener on a signal that many share, and take it off with the last of them", () => {
    const { inFlight, add } = setup();
    const { signal } = new AbortController();
    let listeners = 0;
    const { addEventListener, removeEventListener } = signal;
    signal.addEventListener = (...args: readonly unknown[]) => {
      listeners += 1;
      Reflect.apply(addEventListener, signal, args);
    };
    signal.removeEventListener = (...args: readonly unknown[]) => {
      listeners -= 1;
      Reflect.apply(removeEventListener, signal, args);
    };
    const members = Array.from({ length: 50 }, (_, n) => add(String(n), 60_000, signal));
    expect(listeners).toBe(1);
    for (const member of members) inFlight.delete(member);
    expect(listeners).toBe(0);
    inFlight.failAll("closed");
  });

  test("keep the process alive while there are any, and no longer", () => {
    const before = timers();
    const { inFlight, add } = setup();
    const members = [add("a", 60_000), add("b", 60_000)];
    expect(timers()).toBe(before + 1);
    for (const member of members) inFlight.delete(member);
    expect(timers()).toBe(before);
  });
});
