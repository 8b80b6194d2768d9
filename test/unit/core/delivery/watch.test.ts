import { describe, expect, test } from "@jest/globals";
import { OutboxWatch } from "../../../../src/core/delivery/watch.ts";
import { manualTime } from "../../../support/manualTime.ts";

const POLL_MS = 100;

/** A watch whose database and poller a test sets by hand; `rows` are claimed by the next pass. */
function setup({ isWatched = true, fleetFactor = 1 } = {}) {
  const time = manualTime();
  const state = {
    isWatched,
    isOverdue: false,
    nextPassWithinMs: Number.POSITIVE_INFINITY,
    rows: 0,
  };
  let [glances, claims, preparations, claimed] = [0, 0, 0, 0];
  const watch = new OutboxWatch({
    store: {
      isOutboxWatched: () => state.isWatched,
      async glanceAtOutbox() {
        glances += 1;
        return { isOverdue: state.isOverdue, isWatched: state.isWatched };
      },
    },
    poller: {
      async pass() {
        claims += 1;
        claimed += state.rows;
        state.rows = 0;
        return "idle";
      },
      get claimed() {
        return claimed;
      },
      get nextPassWithinMs() {
        return state.nextPassWithinMs;
      },
    },
    pollIntervalMs: () => POLL_MS,
    fleetFactor: () => fleetFactor,
    beforeClaims: async () => {
      preparations += 1;
    },
    clock: time.clock,
  });
  /** A receipt claims so many rows. */
  const claim = (rows: number): void => {
    claimed += rows;
  };
  /** What its loop does: a wait, then a pass. @returns the length of the wait in ms */
  const turn = async (): Promise<number> => {
    const ms = watch.waitMs();
    await time.advance(ms);
    await watch.pass();
    return ms;
  };
  /** Turns until it rests. @returns how many there were, the last of them a glance */
  const turnsAwake = async (): Promise<number> => {
    for (let turns = 0; turns < 1000; turns += 1) if ((await turn()) > POLL_MS) return turns;
    throw new Error("it does not rest any more");
  };
  const seen = () => ({ glances, claims });
  return { watch, time, state, turn, claim, turnsAwake, seen, preparations: () => preparations };
}

describe("a poller that shares the watch over the outbox", () => {
  test("claims at each poll interval while no other one watches", async () => {
    const { turn, seen, preparations } = setup({ isWatched: false });

    expect([await turn(), await turn()]).toEqual([POLL_MS, POLL_MS]);

    expect(seen()).toEqual({ glances: 0, claims: 2 });
    expect(preparations()).toBe(2);
  });

  test("glances once a second, and claims nothing, while another one watches", async () => {
    const { turn, seen, preparations } = setup();

    expect([await turn(), await turn()]).toEqual([1000, 1000]);

    expect(seen()).toEqual({ glances: 2, claims: 0 });
    expect(preparations()).toBe(0);
  });

  test("glances less often in a large fleet", async () => {
    const { turn, seen } = setup({ fleetFactor: 3.5 });

    expect([await turn(), await turn()]).toEqual([3500, 3500]);

    expect(seen()).toEqual({ glances: 2, claims: 0 });
  });

  test("claims at once if rows come in its own process, and before the time that it has set itself", async () => {
    const { watch, state, turn, seen, preparations } = setup();
    watch.waitMs();
    watch.endRest();
    await watch.pass();
    expect(seen()).toEqual({ glances: 0, claims: 1 });

    state.nextPassWithinMs = 70;
    expect(await turn()).toBe(70);
    expect(seen()).toEqual({ glances: 0, claims: 2 });
    expect(preparations()).toBe(2);
  });

  test("claims from its next turn on when the watcher has gone during its rest", async () => {
    const { watch, state, seen } = setup();
    watch.waitMs();
    state.isWatched = false;
    await watch.pass();

    expect(seen()).toEqual({ glances: 0, claims: 1 });
    expect(watch.waitMs()).toBe(POLL_MS);
  });

  test("claims what the watcher has left, and polls for as long as that is likely to happen again", async () => {
    const { state, turn, turnsAwake, seen } = setup();
    const awakeMs = async () => {
      Object.assign(state, { isOverdue: true, rows: 1 });
      expect(await turn()).toBe(1000);
      state.isOverdue = false;
      return (await turnsAwake()) * POLL_MS;
    };

    const first = await awakeMs();
    const second = await awakeMs();
    expect([first, second]).toEqual([2500, 5000]);
    for (let n = 0; n < 10; n += 1) await turn();
    expect(await awakeMs()).toBe(first);
    expect(seen().claims).toBe((first + second + first) / POLL_MS + 3);
  });

  test("rests on if what is overdue cannot be claimed", async () => {
    const { state, turn, seen } = setup();
    state.isOverdue = true;

    expect([await turn(), await turn(), await turn()]).toEqual([1000, 1000, 1000]);
    expect(seen()).toEqual({ glances: 3, claims: 3 });
  });

  test("is idle when it may rest and has claimed nothing for two seconds", async () => {
    const { watch, state, time } = setup();
    expect(watch.isIdle).toBe(true);

    state.rows = 1;
    await watch.pass();
    await time.advance(1999);
    expect(watch.isIdle).toBe(false);
    await time.advance(1);
    expect(watch.isIdle).toBe(true);
    state.isWatched = false;
    expect(watch.isIdle).toBe(false);
  });

  test("is not idle while receipts claim", async () => {
    const { watch, claim, time } = setup();
    expect(watch.isIdle).toBe(true);
    claim(3);
    expect(watch.isIdle).toBe(false);
    await time.advance(2000);
    expect(watch.isIdle).toBe(true);
  });
});
