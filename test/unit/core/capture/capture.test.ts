import { describe, expect, test } from "@jest/globals";
import { Capture } from "../../../../src/core/capture/capture.ts";
import type { LogEvents } from "../../../../src/ports/capture.ts";
import { Backoff } from "../../../../src/time/wait.ts";
import { manualTime } from "../../../support/manualTime.ts";
import { recordingLog, recordingMetrics } from "../../../support/recorders.ts";

/** One call of `follow`, which lasts until the test ends it or, unless it is deaf, its signal aborts. */
interface Follow {
  readonly from: string | null;
  readonly events: LogEvents;
  readonly signal: AbortSignal;
  end(error?: Error): void;
}

/** A capture over a scripted log and stored position, in time that moves by hand. */
function setUp({ retryMs = 100, saved = null as string | null, isDeaf = false } = {}) {
  const time = manualTime(0);
  const follows: Follow[] = [];
  const saves: string[] = [];
  const wakesAt: number[] = [];
  const faults: { read?: Error; save?: Error } = {};
  const { metrics, calls } = recordingMetrics();
  const { log, lines } = recordingLog();
  const capture = new Capture({
    changes: {
      follow: (from, events, signal) =>
        new Promise((resolve, reject) => {
          follows.push({ from, events, signal, end: (error) => (error === undefined ? resolve() : reject(error)) });
          if (!isDeaf) signal.addEventListener("abort", () => resolve());
        }),
    },
    positions: {
      async read() {
        if (faults.read !== undefined) throw faults.read;
        return saved;
      },
      async save(position) {
        if (faults.save !== undefined) throw faults.save;
        saves.push(position);
      },
    },
    wake: () => wakesAt.push(time.clock.now()),
    backoff: new Backoff(() => 0, { firstMs: retryMs, longestMs: 100_000 }),
    timer: time.timer,
    clock: time.clock,
    metrics,
    log,
  });
  const last = () => follows.at(-1) as Follow;
  /** Starts it and brings it to its first connection, with all wakes of that behind it. */
  const connect = async () => {
    await capture.start();
    await time.advance(0);
    last().events.following();
    await time.advance(1000);
    wakesAt.length = 0;
  };
  /** Ends the present connection with a failure. */
  const fail = async (reason: string) => {
    last().end(new Error(reason));
    await time.advance(0);
  };
  return { time, follows, saves, faults, calls, lines, wakesAt, capture, last, connect, fail };
}

const never = new AbortController().signal;

describe("following the log", () => {
  test("begins at the saved position, and after a failure resumes from the one reached", async () => {
    const { capture, follows, time, last, connect, fail } = setUp({ saved: "0/10" });
    await connect();
    await capture.start();
    last().events.reached("0/20");
    await fail("cut");
    await time.advance(99);
    expect(follows).toHaveLength(1);
    await time.advance(1);
    expect(follows.map(({ from }) => from)).toEqual(["0/10", "0/20"]);
    await capture.stop(never);
  });

  test("waits for a state directory that can be used", async () => {
    const { capture, follows, faults, lines, time } = setUp();
    faults.read = new Error("EACCES: permission denied");
    await capture.start();
    await time.advance(0);
    await expect(capture.check()).rejects.toThrow("EACCES: permission denied");
    expect(lines).toMatchObject([{ level: "warn", fields: { reason: "EACCES: permission denied", retryMs: 100 } }]);
    delete faults.read;
    await time.advance(100);
    expect(follows).toHaveLength(1);
    await capture.stop(never);
  });

  test("is retried after longer and longer waits; a connection that held begins anew", async () => {
    const { capture, lines, time, last, connect, fail } = setUp();
    await connect();
    for (const reason of ["a", "b", "c"]) {
      await fail(reason);
      await time.advance(1000);
    }
    last().events.following();
    await time.advance(10_000);
    await fail("d");
    expect(lines.flatMap(({ fields }) => fields.retryMs ?? [])).toEqual([100, 200, 400, 100]);
    await capture.stop(never);
  });

  test("warns once for a reason, until it follows again", async () => {
    const { capture, lines, time, last, connect, fail } = setUp({ retryMs: 60_000 });
    await connect();
    for (const reason of ["connection refused", "connection refused", "slot lost"]) {
      await fail(reason);
      await time.advance(100_000);
    }
    last().events.following();
    await fail("slot lost");
    expect(lines.map(({ level, message, fields }) => [level, fields.reason ?? message])).toEqual([
      ["info", "change capture follows the database's log"],
      ["warn", "connection refused"],
      ["debug", "connection refused"],
      ["warn", "slot lost"],
      ["info", "change capture follows the database's log again"],
      ["warn", "slot lost"],
    ]);
    expect(lines[1]).toEqual({
      level: "warn",
      message: "change capture does not follow the database's log; delivery continues by polling",
      fields: { reason: "connection refused", failures: 1, retryMs: 60_000 },
    });
    await capture.stop(never);
  });
});

describe("wakes", () => {
  test("come at each event, and 20 and 250 ms after it: the rows come into sight after their commit", async () => {
    const { capture, time, wakesAt, last, connect } = setUp();
    await connect();
    const from = time.clock.now();
    last().events.inserted(from);
    await time.advance(10);
    last().events.inserted(from);
    await time.advance(1000);
    expect(wakesAt.map((at) => at - from)).toEqual([0, 10, 20, 40, 250, 500]);
    expect(time.pending()).toEqual([]);
    await capture.stop(never);
  });

  test("come at each connection and at its end: rows may have been missed, and the poller's wait changes", async () => {
    const { capture, time, wakesAt, last, connect, fail } = setUp();
    await connect();
    expect(capture.capturing).toBe(true);
    await fail("cut");
    expect(capture.capturing).toBe(false);
    await time.advance(100);
    expect(wakesAt).toHaveLength(1);
    last().events.following();
    expect(wakesAt).toHaveLength(2);
    await capture.stop(never);
  });

  test("are measured by the age of the commit, which is never negative", async () => {
    const { capture, calls, time, last, connect } = setUp();
    await connect();
    last().events.inserted(time.clock.now() - 1500);
    last().events.inserted(time.clock.now() + 200);
    expect(calls).toEqual(["captureLag(1.5)", "captureLag(0)"]);
    await capture.stop(never);
  });
});

describe("the position", () => {
  test("is saved at most once in five seconds while it moves, and at the stop", async () => {
    const { capture, saves, time, last, connect } = setUp();
    await connect();
    for (let second = 1; second <= 12; second += 1) {
      last().events.reached(`0/${second}`);
      await time.advance(1000);
    }
    expect(saves).toEqual(["0/1", "0/6", "0/11"]);
    await capture.stop(never);
    expect(saves).toEqual(["0/1", "0/6", "0/11", "0/12"]);
  });

  test("that cannot be saved is a warning; capture continues", async () => {
    const { capture, saves, faults, lines, time, last, connect } = setUp();
    await connect();
    faults.save = new Error("ENOSPC: no space left");
    last().events.reached("0/2");
    await time.advance(5000);
    await capture.check();
    expect(lines.at(-1)).toMatchObject({ level: "warn", fields: { reason: "ENOSPC: no space left" } });
    delete faults.save;
    last().events.reached("0/3");
    await capture.stop(never);
    expect(saves.at(-1)).toBe("0/3");
  });
});

test("the health check says what is wrong at each time, and decides no readiness", async () => {
  const { capture, time, last, fail } = setUp();
  expect([capture.name, capture.decidesReadiness]).toEqual(["outbox-capture", false]);
  await expect(capture.check()).rejects.toThrow("has not been started");
  await capture.start();
  await time.advance(0);
  await expect(capture.check()).rejects.toThrow("has not connected yet");
  last().events.following();
  await capture.check();
  await fail("wal_level is replica");
  await expect(capture.check()).rejects.toThrow("wal_level is replica");
  await capture.stop(never);
  await expect(capture.check()).rejects.toThrow("was stopped");
});

describe("a stop", () => {
  test("ends the connection and saves the last position", async () => {
    const { capture, saves, follows, time, wakesAt, last, connect } = setUp();
    await connect();
    const { signal, events } = last();
    signal.addEventListener("abort", () => events.reached("0/21"));
    events.reached("0/20");
    events.inserted(0);
    await Promise.all([capture.stop(never), capture.stop(never)]);
    expect([saves[0], saves.at(-1)]).toEqual(["0/20", "0/21"]);
    expect(time.pending()).toEqual([]);
    await time.advance(60_000);
    expect([wakesAt.length, follows.length]).toEqual([1, 1]);
  });

  test("waits for the connection to end, until the cutoff; nothing counts after that", async () => {
    const { capture, saves, calls, time, last, connect } = setUp({ isDeaf: true });
    await connect();
    last().events.reached("0/20");
    const cutoff = new AbortController();
    let isStopped = false;
    const stop = capture.stop(cutoff.signal).then(() => {
      isStopped = true;
    });
    await time.advance(60_000);
    expect(isStopped).toBe(false);
    cutoff.abort(new Error("the time to stop is over"));
    await stop;
    expect([saves.at(-1), capture.capturing]).toEqual(["0/20", false]);
    last().events.following();
    last().events.inserted(0);
    last().end();
    await time.advance(60_000);
    expect([capture.capturing, calls]).toEqual([false, []]);
  });
});
