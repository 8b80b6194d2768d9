import { describe, expect, test } from "@jest/globals";
import { Backoff } from "../../../../src/time/backoff.ts";
import { never, setUpCapture } from "./captureSetup.ts";

const aborted = AbortSignal.abort(new Error("the time to stop is over"));

describe("following the log", () => {
  test("begins at the saved position", async () => {
    const { capture, changes, state, time } = setUpCapture();
    state.position = "0/10";
    await capture.start();
    await time.advance(0);

    expect(state.opened).toBe(1);
    expect(changes.follows.map(({ from }) => from)).toEqual(["0/10"]);
    await capture.stop(never);
  });

  test("starts once, and returns before the state is open", async () => {
    const { capture, state, changes, time } = setUpCapture();
    state.openGate = new Promise(() => {});
    await capture.start();
    await capture.start();
    await time.advance(0);

    expect(state.opened).toBe(1);
    expect(changes.follows).toEqual([]);
    await capture.stop(aborted);
  });

  test("captures from the connection to its end, and tells each change once", async () => {
    const { capture, changes, seen, time, lines } = setUpCapture();
    await capture.start();
    await time.advance(0);
    expect(capture.capturing).toBe(false);

    changes.last.events.following();
    changes.last.events.following();
    expect(capture.capturing).toBe(true);
    expect(lines).toEqual([{ level: "info", message: "change capture follows the database's log", fields: {} }]);

    changes.last.end(new Error("cut"));
    await time.advance(0);
    expect(capture.capturing).toBe(false);
    expect(seen.changes).toEqual([true, false]);
    await capture.stop(never);
    expect(seen.changes).toEqual([true, false]);
  });

  test("goes on after a failure, from the position reached, with the state still open", async () => {
    const { capture, changes, state, time, connect, fail } = setUpCapture();
    await connect();
    changes.last.events.reached("0/20");
    await fail("cut");
    await time.advance(99);
    expect(changes.follows).toHaveLength(1);
    await time.advance(1);

    expect(changes.follows.map(({ from }) => from)).toEqual([null, "0/20"]);
    expect(state.opened).toBe(1);
    expect(state.closed).toBe(0);
    await capture.stop(never);
  });

  test("tries the state again when it cannot be opened", async () => {
    const { capture, changes, state, time, lines } = setUpCapture();
    state.openFault = new Error("owned by process 12");
    await capture.start();
    await time.advance(0);
    await expect(capture.check()).rejects.toThrow("owned by process 12");
    expect(lines[0]).toMatchObject({ level: "warn", fields: { reason: "owned by process 12", retryMs: 100 } });

    state.openFault = undefined;
    await time.advance(100);
    expect(changes.follows).toHaveLength(1);
    await capture.stop(never);
  });
});

describe("failures in a row", () => {
  test("wait longer and longer; a connection that held begins a new row", async () => {
    const { capture, changes, seen, time, connect, fail } = setUpCapture();
    await connect();
    await time.advance(10_000);
    for (const reason of ["a", "b", "c"]) {
      await fail(reason);
      await time.advance(1000);
    }
    expect(seen.backoffs).toEqual([1, 2, 3]);

    changes.last.events.following();
    await time.advance(10_000);
    await fail("d");
    expect(seen.backoffs).toEqual([1, 2, 3, 1]);
    await capture.stop(never);
  });

  test("are one warning until the reason changes", async () => {
    const { capture, changes, time, lines, connect, fail } = setUpCapture({
      backoff: new Backoff(() => 0, { firstMs: 60_000, longestMs: 60_000 }),
    });
    await connect();
    lines.length = 0;
    for (const reason of ["connection refused", "connection refused", "slot lost"]) {
      await fail(reason);
      await time.advance(60_000);
    }
    expect(lines.map(({ level, fields }) => [level, fields.reason])).toEqual([
      ["warn", "connection refused"],
      ["debug", "connection refused"],
      ["warn", "slot lost"],
    ]);
    expect(lines[0]).toEqual({
      level: "warn",
      message: "change capture does not follow the database's log; delivery goes on by polling",
      fields: { reason: "connection refused", failures: 1, retryMs: 60_000 },
    });

    changes.last.events.following();
    expect(lines.at(-1)).toEqual({
      level: "info",
      message: "change capture follows the database's log again",
      fields: {},
    });
    await fail("slot lost");
    expect(lines.at(-1)?.level).toBe("warn");
    await capture.stop(never);
  });
});

describe("a lost ownership", () => {
  test("ends the connection, saves nothing more, and is tried again", async () => {
    const { capture, changes, state, seen, time, lines, connect } = setUpCapture();
    await connect();
    changes.last.events.reached("0/20");
    await time.advance(0);
    changes.last.events.reached("0/21");
    state.position = "0/30";
    state.lose(new Error("taken over by process 7"));
    await time.advance(0);

    expect(changes.last.signal.aborted).toBe(true);
    expect(seen.changes).toEqual([true, false]);
    expect([state.closed, state.saved]).toEqual([1, ["0/20"]]);
    expect(lines.at(-1)).toMatchObject({ level: "warn", fields: { reason: "taken over by process 7" } });
    await expect(capture.check()).rejects.toThrow("taken over by process 7");

    await time.advance(100);
    expect(state.opened).toBe(2);
    expect(changes.last.from).toBe("0/30");
    await time.advance(10_000);
    expect(state.saved).toEqual(["0/20"]);
    await capture.stop(never);
    expect(state.closed).toBe(2);
  });

  test("between two connections is found before the next one", async () => {
    const { capture, changes, state, time, connect, fail } = setUpCapture();
    await connect();
    await fail("cut");
    state.lose(new Error("taken over"));
    await time.advance(100);
    expect(changes.follows).toHaveLength(1);
    expect(state.closed).toBe(1);
    await time.advance(200);
    expect(state.opened).toBe(2);
    expect(changes.follows).toHaveLength(2);
    await capture.stop(never);
  });
});

describe("wakes", () => {
  test("come at each connection: rows may have been missed before it", async () => {
    const { capture, changes, seen, time, connect, fail } = setUpCapture();
    await connect();
    await fail("cut");
    await time.advance(100);
    expect(seen.wakes).toBe(0);
    changes.last.events.following();
    await time.advance(0);
    expect(seen.wakes).toBe(1);
    await capture.stop(never);
  });

  test("are measured by the age of the commit, which is never negative", async () => {
    const { capture, changes, calls, time, connect } = setUpCapture();
    await connect();
    const now = time.clock.now();
    changes.last.events.inserted(now - 1500);
    changes.last.events.inserted(now + 200);
    expect(calls).toEqual(["captureLag(1.5)", "captureLag(0)"]);
    await capture.stop(never);
  });
});

describe("the health check", () => {
  test("says what is wrong at each time, and decides no readiness", async () => {
    const { capture, changes, time, fail } = setUpCapture();
    expect([capture.name, capture.decidesReadiness]).toEqual(["outbox-capture", false]);
    await expect(capture.check()).rejects.toThrow("has not been started");
    await capture.start();
    await time.advance(0);
    await expect(capture.check()).rejects.toThrow("has not connected yet");
    changes.last.events.following();
    await capture.check();
    await fail("wal_level is replica");
    await expect(capture.check()).rejects.toThrow("wal_level is replica");
    await capture.stop(never);
    await expect(capture.check()).rejects.toThrow("was stopped");
  });
});

describe("a stop", () => {
  test("ends the connection, saves the last position and gives the state up", async () => {
    const { capture, changes, state, seen, time, connect } = setUpCapture();
    await connect();
    const { last } = changes;
    last.signal.addEventListener("abort", () => last.events.reached("0/21"));
    last.events.reached("0/20");
    last.events.inserted(0);
    await Promise.all([capture.stop(never), capture.stop(never)]);
    expect([state.saved, state.closed]).toEqual([["0/20", "0/21"], 1]);
    expect(time.pending()).toEqual([]);
    await time.advance(60_000);
    expect(seen.wakes).toBe(0);
    expect(changes.follows).toHaveLength(1);
  });

  test("waits for the connection to end, until the cutoff", async () => {
    const { capture, changes, state, seen, calls, time, connect } = setUpCapture();
    await connect();
    changes.deaf = true;
    changes.last.events.reached("0/20");
    const cutoff = new AbortController();
    let stopped = false;
    const stop = capture.stop(cutoff.signal).then(() => {
      stopped = true;
    });
    await time.advance(60_000);
    expect(stopped).toBe(false);
    cutoff.abort(new Error("the time to stop is over"));
    await stop;
    expect([state.saved.at(-1), state.closed, capture.capturing]).toEqual(["0/20", 1, false]);
    expect(seen.changes).toEqual([true, false]);

    changes.last.events.following();
    changes.last.events.inserted(0);
    changes.last.events.reached("0/30");
    changes.last.end();
    await time.advance(60_000);
    expect([state.saved.at(-1), capture.capturing, calls]).toEqual(["0/20", false, []]);
    expect(changes.follows).toHaveLength(1);
  });

  test("while the state opens gives it up again", async () => {
    const { capture, changes, state, time } = setUpCapture();
    let opened = () => {};
    state.openGate = new Promise((resolve) => {
      opened = resolve;
    });
    await capture.start();
    await time.advance(0);
    const stop = capture.stop(never);
    opened();
    await stop;
    expect([state.closed, state.saved]).toEqual([1, []]);
    expect(changes.follows).toEqual([]);
  });
});
