import { describe, expect, test } from "@jest/globals";
import { never, setUpCapture } from "./captureSetup.ts";

describe("the position of a capture", () => {
  test("is saved at most once in five seconds while it moves, and at the stop", async () => {
    const { capture, changes, state, time, connect } = setUpCapture();
    await connect();
    for (let second = 1; second <= 12; second += 1) {
      changes.last.events.reached(`0/${second}`);
      await time.advance(1000);
    }
    expect(state.saved).toEqual(["0/1", "0/6", "0/11"]);
    await capture.stop(never);
    expect(state.saved).toEqual(["0/1", "0/6", "0/11", "0/12"]);
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
    const stop = capture.stop(never);
    await time.advance(0);
    expect([state.saved, state.closed]).toEqual([[], 0]);
    finish();
    await stop;
    expect([state.saved.at(-1), state.overlapped, state.closed]).toEqual(["0/3", false, 1]);
  });

  test("that cannot be saved is a warning of a capture that goes on, and is tried again", async () => {
    const { capture, changes, state, seen, time, lines, connect } = setUpCapture();
    await connect();
    lines.length = 0;
    state.saveFault = new Error("ENOSPC: no space left");
    changes.last.events.reached("0/2");
    changes.last.events.inserted(0);
    await time.advance(5000);
    await capture.check();
    expect(seen.wakes).toBeGreaterThan(0);
    expect(lines).toMatchObject([{ level: "warn", fields: { reason: "ENOSPC: no space left" } }]);

    state.saveFault = undefined;
    changes.last.events.reached("0/3");
    await time.advance(0);
    expect(state.saved).toEqual(["0/3"]);
    await capture.stop(never);
  });

  test("that a stop cannot save is a warning, and the state is given up", async () => {
    const { capture, changes, state, lines, connect } = setUpCapture();
    await connect();
    state.saveFault = new Error("EROFS: read-only file system");
    changes.last.events.reached("0/2");
    await capture.stop(never);
    expect(lines).toContainEqual(
      expect.objectContaining({ level: "warn", fields: { reason: "EROFS: read-only file system" } }),
    );
    expect(state.closed).toBe(1);
  });
});
