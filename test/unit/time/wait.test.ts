import { getEventListeners } from "node:events";
import { describe, expect, test } from "@jest/globals";
import { StoppingError } from "../../../src/model/errors.ts";
import { atMost, sleep, TimeoutError, timeout, waitOrAbort, withTimeout } from "../../../src/time/wait.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { manualTime } from "../../support/manualTime.ts";

const listeners = (signal: AbortSignal) => getEventListeners(signal, "abort").length;
const forever = new Promise<never>(() => {});

describe("waiting with a signal", () => {
  test("gives the value or the error of the promise and leaves no listener behind", async () => {
    const { signal } = new AbortController();
    await expect(waitOrAbort(Promise.resolve(7), signal, "work")).resolves.toBe(7);
    await expect(waitOrAbort(Promise.reject(new Error("broken")), signal, "work")).rejects.toThrow("broken");
    expect(listeners(signal)).toBe(0);
  });

  test("ends with the signal's own reason when it aborts first", async () => {
    const controller = new AbortController();
    const waiting = waitOrAbort(forever, controller.signal, "work");
    const reason = new StoppingError();
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    expect(listeners(controller.signal)).toBe(0);
  });

  test("ends at once when the signal has aborted before", async () => {
    await expect(waitOrAbort(forever, AbortSignal.abort(new StoppingError()), "work")).rejects.toThrow(StoppingError);
  });

  test("names the operation when the reason says nothing", async () => {
    await expect(waitOrAbort(forever, AbortSignal.abort(), "outbox.claim")).rejects.toThrow("outbox.claim was aborted");
  });

  test("takes charge of a promise that fails after the abort", async () => {
    let fail: (error: Error) => void = () => {};
    const late = new Promise<never>((_resolve, reject) => {
      fail = reject;
    });
    await expect(waitOrAbort(late, AbortSignal.abort(new StoppingError()), "work")).rejects.toThrow(StoppingError);
    fail(new Error("late")); // An unhandled rejection would fail the run.
    await new Promise((resolve) => setImmediate(resolve));
  });
});

describe("a timeout", () => {
  test("aborts with an error that names the operation and its limit", async () => {
    const time = manualTime();
    const limit = timeout(30_000, "outbox.claim", undefined, time.timer);
    await time.advance(29_999);
    expect(limit.signal.aborted).toBe(false);
    await time.advance(1);
    expect(limit.signal.reason).toBeInstanceOf(TimeoutError);
    expect(limit.signal.reason).toHaveProperty("message", "outbox.claim timed out after 30000 ms");
  });

  test("aborts with the reason of its parent", () => {
    const parent = new AbortController();
    using limit = timeout(30_000, "outbox.claim", parent.signal);
    const reason = new StoppingError();
    parent.abort(reason);
    expect(limit.signal.reason).toBe(reason);
  });

  test("lets go of its timer and its parent at the end of its scope", () => {
    const time = manualTime();
    const parent = new AbortController();
    {
      using limit = timeout(30_000, "outbox.claim", parent.signal, time.timer);
      expect(time.pending()).toEqual([30_000]);
      expect(listeners(parent.signal)).toBe(1);
      expect(limit.signal.aborted).toBe(false);
    }
    expect(time.pending()).toEqual([]);
    expect(listeners(parent.signal)).toBe(0);
  });

  test("ends the wait for an operation that does not obey its signal", async () => {
    const time = manualTime();
    const waiting = withTimeout(3000, "health check", () => forever, undefined, time.timer);
    const failed = expect(waiting).rejects.toThrow("health check timed out after 3000 ms");
    await time.advance(3000);
    await failed;
  });

  test("passes on what the operation gives, and ends its timer then and when it throws", async () => {
    const time = manualTime();
    await expect(withTimeout(3000, "work", async () => 7, undefined, time.timer)).resolves.toBe(7);
    const broken = () => {
      throw new Error("broken");
    };
    await expect(withTimeout(3000, "work", broken, undefined, time.timer)).rejects.toThrow("broken");
    expect(time.pending()).toEqual([]);
  });
});

describe("sleeping", () => {
  test("takes its time", async () => {
    const time = manualTime();
    let awake = false;
    const sleeping = sleep(50, undefined, time.timer).then(() => {
      awake = true;
    });
    await time.advance(49);
    expect(awake).toBe(false);
    await time.advance(1);
    expect(awake).toBe(true);
    await sleeping;
  });

  test("ends early with the reason of its signal and leaves neither timer nor listener", async () => {
    const time = manualTime();
    const controller = new AbortController();
    const sleeping = sleep(50, controller.signal, time.timer);
    const failed = expect(sleeping).rejects.toThrow(StoppingError);
    controller.abort(new StoppingError());
    await failed;
    expect(time.pending()).toEqual([]);
    expect(listeners(controller.signal)).toBe(0);
  });

  test("sets no timer when its signal has aborted before", async () => {
    const time = manualTime();
    await expect(sleep(50, AbortSignal.abort(new StoppingError()), time.timer)).rejects.toThrow(StoppingError);
    expect(time.pending()).toEqual([]);
  });
});

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
