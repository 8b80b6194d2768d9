import { describe, expect, test } from "@jest/globals";
import { StoppingError } from "../../../src/model/errors.ts";
import { Loop, type LoopOptions, type PassResult } from "../../../src/runtime/loop.ts";
import { manualTime, settle } from "../../support/manualTime.ts";

const never = new AbortController().signal;

/** A loop over manual time whose passes are answered one by one from `results`, then `idle`. */
function setup(results: (PassResult | Error)[] = [], overrides: Partial<LoopOptions> = {}) {
  const time = manualTime();
  const errors: { error: unknown; failures: number; delayMs: number }[] = [];
  const state = { passes: 0 };
  const loop = new Loop({
    name: "poller",
    pass: async () => {
      state.passes += 1;
      const result = results.shift() ?? "idle";
      if (result instanceof Error) throw result;
      return result;
    },
    intervalMs: 100,
    staleAfterMs: 1000,
    onError: (error, failures, delayMs) => errors.push({ error, failures, delayMs }),
    clock: time.clock,
    timer: time.timer,
    random: () => 0,
    ...overrides,
  });
  return { loop, time, errors, state };
}

/** A loop that may rest for 50 ms, whose passes take as long as told. */
function restingLoop(tookMs: () => number) {
  const time = manualTime();
  let passedMs = 0;
  const clock = { now: () => time.clock.now(), monotonic: () => time.clock.monotonic() + passedMs };
  const results: PassResult[] = [];
  const state = { passes: 0 };
  const pass = async (): Promise<PassResult> => {
    state.passes += 1;
    passedMs += tookMs();
    return results.shift() ?? "idle";
  };
  const { loop } = setup([], { pass, clock, timer: time.timer, maxRestMs: 50 });
  return { time, loop, state, results };
}

/** A pass that ends when told to. */
function heldPass() {
  const held: { finish: (result?: PassResult) => void; fail: (error: Error) => void; signal: AbortSignal }[] = [];
  const pass = (signal: AbortSignal) =>
    new Promise<PassResult>((resolve, reject) => {
      held.push({ finish: (result = "idle") => resolve(result), fail: reject, signal });
    });
  return { held, pass };
}

describe("a loop", () => {
  test("passes at its start and then after each interval", async () => {
    const { loop, time, state } = setup();
    await loop.start();
    await settle();
    expect(state.passes).toBe(1);
    await time.advance(99);
    expect(state.passes).toBe(1);
    await time.advance(1);
    expect(state.passes).toBe(2);
    await loop.stop(never);
    expect(time.pending()).toEqual([]);
  });

  test("rests after an idle pass for as long as it took, whatever wakes it meanwhile", async () => {
    const took = [40, 1000, 0, 0.4, 0];
    const { time, loop, state } = restingLoop(() => took.shift() ?? 0);
    await loop.start();
    await settle();
    loop.wake();
    await settle();
    loop.wake();
    expect([state.passes, time.pending()]).toEqual([1, [40]]);
    await time.advance(39);
    expect(state.passes).toBe(1);
    // The second pass takes 1,000 ms: that is more than it may rest.
    await time.advance(1);
    expect(state.passes).toBe(2);
    loop.wake();
    await settle();
    expect(time.pending()).toEqual([50]);
    await time.advance(50);
    expect(state.passes).toBe(3);
    for (const passes of [4, 5]) {
      loop.wake();
      await settle();
      expect(state.passes).toBe(passes);
    }
    await loop.stop(never);
    expect(time.pending()).toEqual([]);
  });

  test("does not rest after a full pass: the next begins with the wake", async () => {
    const { time, loop, state, results } = restingLoop(() => 40);
    results.push("full");
    await loop.start();
    await settle();
    expect(state.passes).toBe(1);
    loop.wake();
    await settle();
    expect(state.passes).toBe(2);
    await time.advance(100);
    await loop.stop(never);
  });

  test("asks for its interval before each wait", async () => {
    const intervals = [100, 500, 100];
    const { loop, time, state } = setup([], { intervalMs: () => intervals.shift() ?? 100 });
    await loop.start();
    await settle();
    await time.advance(100);
    expect(state.passes).toBe(2);
    await time.advance(399);
    expect(state.passes).toBe(2);
    await time.advance(1);
    expect(state.passes).toBe(3);
    await loop.stop(never);
  });

  test("wakes together with the other loops of its interval, whenever each of them was started", async () => {
    const time = manualTime();
    const shared = { clock: time.clock, timer: time.timer };
    const [early, late] = [setup([], shared), setup([], shared)];
    await early.loop.start();
    await time.advance(37);
    await late.loop.start();
    await settle();
    expect([early.state.passes, late.state.passes]).toEqual([1, 1]);
    await time.advance(62);
    expect([early.state.passes, late.state.passes]).toEqual([1, 1]);
    await time.advance(1);
    expect([early.state.passes, late.state.passes]).toEqual([2, 2]);
    await time.advance(100);
    expect([early.state.passes, late.state.passes]).toEqual([3, 3]);
    await early.loop.stop(never);
    await late.loop.stop(never);
  });

  test("does not pass twice for a timer that is early", async () => {
    const { loop, time, state } = setup();
    await loop.start();
    await settle();
    await time.advance(95);
    loop.wake();
    await settle();
    expect(state.passes).toBe(2);
    await time.advance(104);
    expect(state.passes).toBe(2);
    await time.advance(1);
    expect(state.passes).toBe(3);
    await loop.stop(never);
  });

  test("passes again at once while there is more work", async () => {
    const { loop, time, state } = setup(["again", "again", "idle"]);
    await loop.start();
    await settle(10);
    expect(state.passes).toBe(3);
    expect(time.pending()).toEqual([100]);
    await loop.stop(never);
  });

  test("lets the event loop turn between passes that never wait, so that it can be stopped", async () => {
    const { loop } = setup([], { pass: async () => "again" });
    await loop.start();
    await settle();
    await loop.stop(never);
    await expect(loop.check()).rejects.toThrow("poller is stopped");
  });

  test("passes now when it is woken while it waits", async () => {
    const { loop, state } = setup();
    await loop.start();
    await settle();
    loop.wake();
    await settle();
    expect(state.passes).toBe(2);
    await loop.stop(never);
  });

  test("does not lose a wake that comes during a pass", async () => {
    const { held, pass } = heldPass();
    const { loop } = setup([], { pass });
    await loop.start();
    loop.wake();
    held[0]?.finish("idle");
    await settle();
    expect(held).toHaveLength(2);
    held[1]?.finish("idle");
    await settle();
    expect(held).toHaveLength(2);
    await loop.stop(never);
  });

  test("runs one pass at a time", async () => {
    const { held, pass } = heldPass();
    const { loop, time } = setup([], { pass });
    await loop.start();
    await loop.start();
    for (let count = 0; count < 5; count += 1) loop.wake();
    await time.advance(1000);
    expect(held).toHaveLength(1);
    const stopped = loop.stop(never);
    held[0]?.finish();
    await stopped;
  });
});

describe("a failed pass", () => {
  test("is reported and tried again after a growing wait, which a success sets back", async () => {
    const failure = new Error("no connection");
    const { loop, time, errors } = setup([failure, failure, failure, "idle", failure]);
    await loop.start();
    await settle();
    await time.advance(100);
    await time.advance(200);
    await time.advance(400);
    await time.advance(100);
    expect(errors).toEqual([
      { error: failure, failures: 1, delayMs: 100 },
      { error: failure, failures: 2, delayMs: 200 },
      { error: failure, failures: 3, delayMs: 400 },
      { error: failure, failures: 1, delayMs: 100 },
    ]);
    await loop.stop(never);
  });

  test("is not tried earlier because of a wake", async () => {
    const { loop, time, state } = setup([new Error("no connection")]);
    await loop.start();
    await settle();
    loop.wake();
    await settle();
    expect(state.passes).toBe(1);
    await time.advance(100);
    expect(state.passes).toBe(2);
    await loop.stop(never);
  });
});

describe("stopping a loop", () => {
  test("lets the running pass finish and starts no other", async () => {
    const { held, pass } = heldPass();
    const { loop } = setup([], { pass });
    await loop.start();
    let stopped = false;
    const stopping = loop.stop(never).then(() => {
      stopped = true;
    });
    await settle();
    expect(stopped).toBe(false);
    expect(held[0]?.signal.aborted).toBe(false);
    held[0]?.finish("again");
    await stopping;
    expect(held).toHaveLength(1);
  });

  test("aborts the running pass when the cutoff comes, which is no failure", async () => {
    const { held, pass } = heldPass();
    const { loop, errors } = setup([], { pass });
    await loop.start();
    const cutoff = new AbortController();
    const stopping = loop.stop(cutoff.signal);
    const reason = new StoppingError("30 s are over");
    cutoff.abort(reason);
    expect(held[0]?.signal.reason).toBe(reason);
    held[0]?.fail(reason);
    await stopping;
    expect(errors).toEqual([]);
  });

  test("works before the start, which then does nothing, and twice", async () => {
    const { loop, state } = setup();
    await loop.stop(never);
    await loop.start();
    await settle();
    expect(state.passes).toBe(0);
    await loop.stop(never);
    await expect(loop.check()).rejects.toThrow("poller is stopped");
  });

  test("works in every order with starts and wakes, and never leaves anything running", async () => {
    // A fixed sequence, so that a failure can be repeated.
    let seed = 42;
    const random = () => {
      seed = (seed * 1103515245 + 12345) % 2 ** 31;
      return seed / 2 ** 31;
    };
    for (let round = 0; round < 300; round += 1) {
      let active = 0;
      let overlapped = false;
      const { loop, time } = setup([], {
        pass: async () => {
          active += 1;
          overlapped ||= active > 1;
          if (random() < 0.5) await settle(1);
          active -= 1;
          if (random() < 0.2) throw new Error("no connection");
          return random() < 0.5 ? "again" : "idle";
        },
      });
      const actions = [
        () => loop.start(),
        () => loop.stop(never),
        async () => loop.wake(),
        () => time.advance(50),
        () => settle(1),
      ];
      const calls = Array.from({ length: 8 }, () => actions[Math.floor(random() * actions.length)]?.());
      await loop.stop(never);
      expect({ active, overlapped, timers: time.pending().length }).toEqual({
        active: 0,
        overlapped: false,
        timers: 0,
      });
      await Promise.all(calls);
      expect({ active, timers: time.pending().length }).toEqual({ active: 0, timers: 0 });
    }
  });
});

describe("the health of a loop", () => {
  test("is down before the start, up after it, and down when it has stopped", async () => {
    const { loop } = setup();
    await expect(loop.check()).rejects.toThrow("poller is not started");
    await loop.start();
    await loop.check();
    await loop.stop(never);
    await expect(loop.check()).rejects.toThrow("poller is stopped");
  });

  test("is down from a failed pass until the next good one", async () => {
    const { loop, time } = setup([new Error("no connection")]);
    await loop.start();
    await settle();
    await expect(loop.check()).rejects.toThrow("poller failed in its last pass: no connection");
    await time.advance(100);
    await loop.check();
    await loop.stop(never);
  });

  test("is down when no pass has finished for too long", async () => {
    const { held, pass } = heldPass();
    const { loop, time } = setup([], { pass });
    await loop.start();
    await time.advance(1000);
    await loop.check();
    await time.advance(1);
    await expect(loop.check()).rejects.toThrow(
      "poller has finished no pass for 1001 ms (at most 1000 ms are expected)",
    );
    held[0]?.finish();
    await settle();
    await loop.check();
    await loop.stop(never);
  });
});
