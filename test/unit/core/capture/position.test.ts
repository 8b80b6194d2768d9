import { describe, expect, test } from "@jest/globals";
import { never, setUpCapture } from "./captureSetup.ts";

describe("the position of a capture", () => {
  test("is saved at most once in five seconds, and only when it has changed", async () => {
    const { capture, changes, state, time, connect } = setUpCapture();
    state.position = "0/1";
    await connect();
    changes.last.events.reached("0/1");
    await time.advance(60_000);
    expect(state.saved).toEqual([]);

    for (let second = 2; second <= 13; second += 1) {
      changes.last.events.reached(`0/${second}`);
      await time.advance(1000);
    }
    expect(state.saved).toEqual(["0/6", "0/11"]);
    await time.advance(60_000);
    expect(state.saved).toEqual(["0/6", "0/11", "0/13"]);
    await capture.stop(never);
    expect(state.saved).toHaveLength(3);
  });

  test("is never saved twice at a time, not even by a stop", async () => {
    const { capture, changes, state, time, connect } = setUpCapture();
    await connect();
    let finish = () => {};
    state.saveGate = new Promise((resolve) => {
      finish = resolve;
    });
    changes.last.events.reached("0/2");
    await time.advance(5000);
    changes.last.events.reached("0/3");
    await time.advance(60_000);
    const stop = capture.stop(never);
    await time.advance(0);
    expect([state.saved, state.closed]).toEqual([[], 0]);
    finish();
    await stop;
    expect([state.saved, state.overlapped, state.closed]).toEqual([["0/2", "0/3"], false, 1]);
  });

  test("that cannot be saved is a fault of a capture that goes on, and is tried again", async () => {
    const { capture, changes, state, seen, time, lines, connect } = setUpCapture();
    await connect();
    lines.length = 0;
    state.saveFault = new Error("ENOSPC: no space left");
    changes.last.events.reached("0/2");
    await time.advance(5000);
    await expect(capture.check()).rejects.toThrow("ENOSPC");
    expect(capture.capturing).toBe(true);
    changes.last.events.inserted(0);
    await time.advance(0);
    expect(seen.wakes).toBe(1);

    await time.advance(10_000);
    expect(lines.map(({ level, fields }) => [level, fields.reason])).toEqual([
      ["warn", "ENOSPC: no space left"],
      ["debug", "ENOSPC: no space left"],
      ["debug", "ENOSPC: no space left"],
    ]);

    state.saveFault = undefined;
    await time.advance(5000);
    await capture.check();
    expect(state.saved).toEqual(["0/2"]);
    expect(lines.at(-1)).toEqual({
      level: "info",
      message: "the position of change capture is saved again",
      fields: { awayMs: 15_000 },
    });
    await capture.stop(never);
  });

  test("that a stop cannot save is a warning, and the state is given up", async () => {
    const { capture, changes, state, lines, connect } = setUpCapture();
    await connect();
    state.saveFault = new Error("EROFS: read-only file system");
    changes.last.events.reached("0/2");
    await capture.stop(never);
    expect(lines.at(-1)).toMatchObject({ level: "warn", fields: { reason: "EROFS: read-only file system" } });
    expect(state.closed).toBe(1);
  });
});
