import { describe, expect, test } from "@jest/globals";
import { Retention, type RetentionOptions } from "../../../../src/core/operations/retention.ts";
import { StoppingError } from "../../../../src/model/errors.ts";
import type { RetentionPolicy, RetentionRange, RetentionStore } from "../../../../src/ports/finishedRows.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const AGE: RetentionPolicy = { table: "outbox", kind: "AGE", maxAgeMs: 60_000 };

/** What one batch of the script does: rows deleted in so many ms, or a failure. */
type Batch = { readonly deleted: number; readonly tookMs?: number } | Error;

/** A store whose plan has as many ranges as the script has lists, and whose batches go by the script. */
class ScriptedRetention implements RetentionStore {
  readonly plans: RetentionPolicy[] = [];
  readonly asked: [position: string, limit: number][] = [];
  readonly #script: (readonly Batch[])[];
  readonly #clock: ManualClock;
  onBatch = (): void => {};

  constructor(script: (readonly Batch[])[], clock: ManualClock) {
    this.#script = script;
    this.#clock = clock;
  }

  async plan(policy: RetentionPolicy): Promise<readonly RetentionRange[]> {
    this.plans.push(policy);
    return this.#script.map((_, n) => ({ table: policy.table, state: "sent", from: [`${n}.0`], until: ["end"] }));
  }

  async deleteBatch(range: RetentionRange, limit: number) {
    const [at = ""] = range.from ?? [];
    const [list = 0, batch = 0] = at.split(".").map(Number);
    this.asked.push([at, limit]);
    this.onBatch();
    const batches = this.#script[list] as Batch[];
    const result = batches[batch];
    if (result === undefined) throw new Error(`the script has no batch ${at}`);
    if (result instanceof Error) {
      // Fails once.
      batches.splice(batch, 1);
      throw result;
    }
    this.#clock.advance(result.tookMs ?? 0);
    const isLast = batches.length === batch + 1;
    return {
      deleted: result.deleted,
      refused: 0,
      rest: isLast ? null : { ...range, from: [`${list}.${batch + 1}`] },
    };
  }
}

function setUp(script: (readonly Batch[])[], overrides: Partial<RetentionOptions> = {}) {
  const clock = new ManualClock();
  const store = new ScriptedRetention(script, clock);
  const { metrics, calls } = recordingMetrics();
  const { log, lines } = recordingLog();
  const stopping = new AbortController();
  const pauses: number[] = [];
  const retention = new Retention({
    store,
    policy: AGE,
    batchSize: 1000,
    stopping: stopping.signal,
    async wait(ms) {
      pauses.push(ms);
      clock.advance(ms);
    },
    clock,
    metrics,
    log,
    ...overrides,
  });
  return { clock, store, calls, lines, stopping, pauses, retention };
}

/** Passes until the sweep is done. @returns how many there were */
async function passes(retention: Retention): Promise<number> {
  for (let count = 1; ; count += 1) {
    if ((await retention.pass()) === "idle") return count;
  }
}

describe("retention", () => {
  test("deletes one batch a pass, a range after the other, each from where its last batch ended", async () => {
    const { retention, store } = setUp([[{ deleted: 1000 }, { deleted: 1000 }, { deleted: 5 }], [{ deleted: 7 }]]);

    expect(await passes(retention)).toBe(4);

    expect(store.plans).toEqual([AGE]);
    expect(store.asked).toEqual([
      ["0.0", 1000],
      ["0.1", 1000],
      ["0.2", 1000],
      ["1.0", 1000],
    ]);
  });

  test("plans anew when the sweep is done", async () => {
    const { retention, store } = setUp([[{ deleted: 5 }]]);

    expect([await retention.pass(), await retention.pass()]).toEqual(["idle", "idle"]);

    expect(store.plans).toHaveLength(2);
  });

  test("pauses three times as long as a batch took, at least ten ms and at most a second, and not after the last one", async () => {
    const took = [20, 100, 1, 0, 400, 30];
    const { retention, pauses } = setUp([took.map((tookMs) => ({ deleted: 1000, tookMs }))]);

    await passes(retention);

    expect(pauses).toEqual([60, 300, 10, 10, 1000]);
  });

  test("counts what each batch deleted, and tells time and end of a sweep when it is done", async () => {
    const { retention, calls, clock } = setUp([
      [
        { deleted: 1000, tookMs: 50 },
        { deleted: 3, tookMs: 10 },
      ],
    ]);

    await retention.pass();
    expect(calls).toEqual(["cleanupDeleted(outbox, 1000)"]);
    await retention.pass();

    expect(calls.slice(1)).toEqual([
      "cleanupDeleted(outbox, 3)",
      "cleanupDuration(outbox, 0.21)",
      `cleanupLastRun(outbox, ${clock.now() / 1000})`,
    ]);
  });

  test("logs one line for a sweep that deleted something", async () => {
    const { retention, lines } = setUp([[{ deleted: 1000, tookMs: 50 }], [{ deleted: 3, tookMs: 10 }]]);

    await passes(retention);

    const fields = { table: "outbox", policy: "AGE", deleted: 1003, durationMs: 210 };
    expect(lines).toEqual([{ level: "info", message: "retention", fields }]);
  });

  test.each<[string, Batch[][]]>([
    ["no range", []],
    ["nothing left in its range", [[{ deleted: 0 }]]],
  ])("a sweep that finds %s is done, silent, and counts as run", async (_, script) => {
    const { retention, lines, calls, pauses } = setUp(script);

    expect(await retention.pass()).toBe("idle");

    expect([lines, pauses]).toEqual([[], []]);
    expect(calls).toContainEqual(expect.stringMatching(/^cleanupLastRun/));
  });

  test("a failed batch fails its pass, and the next pass tries it again", async () => {
    const broken = new Error("connection lost");
    const { retention, store, lines, calls } = setUp([[{ deleted: 1000 }, broken, { deleted: 1000 }, { deleted: 1 }]]);

    await retention.pass();
    await expect(retention.pass()).rejects.toBe(broken);
    expect(calls).not.toContainEqual(expect.stringMatching(/^cleanupLastRun/));
    await passes(retention);

    expect(store.plans).toHaveLength(1);
    expect(store.asked.map(([position]) => position)).toEqual(["0.0", "0.1", "0.1", "0.2"]);
    expect(lines).toMatchObject([{ fields: { deleted: 2001 } }]);
  });

  test("a failed plan fails its pass, and the next pass plans again", async () => {
    const { retention, store } = setUp([[{ deleted: 1 }]]);
    const plan = store.plan.bind(store);
    store.plan = async () => {
      store.plan = plan;
      throw new Error("connection lost");
    };

    await expect(retention.pass()).rejects.toThrow("connection lost");

    expect(await retention.pass()).toBe("idle");
  });

  test("a stop ends the pause at once and says what was deleted so far", async () => {
    let paused = (): void => {};
    const inPause = new Promise<void>((resolve) => {
      paused = resolve;
    });
    const { retention, stopping, lines } = setUp([[{ deleted: 1000 }, { deleted: 1000 }]], {
      wait: (_, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason));
          paused();
        }),
    });

    const pass = retention.pass();
    await inPause;
    stopping.abort(new StoppingError());

    expect(await pass).toBe("again");
    expect(lines).toMatchObject([{ level: "info", message: "retention interrupted", fields: { deleted: 1000 } }]);
  });

  test("a wait that fails for another reason is not taken for a stop", async () => {
    const { retention } = setUp([[{ deleted: 1 }, { deleted: 1 }]], {
      wait: () => Promise.reject(new Error("no timer")),
    });

    await expect(retention.pass()).rejects.toThrow("no timer");
  });
});

describe("retention that runs once", () => {
  test("sweeps to the end at the same pace, then says what it deleted", async () => {
    const { retention, store, pauses, lines, calls } = setUp([
      [{ deleted: 1000, tookMs: 20 }, { deleted: 4 }],
      [{ deleted: 7 }],
    ]);

    await retention.runOnce();

    expect([store.plans.length, store.asked.length, pauses]).toEqual([1, 3, [60, 10]]);
    expect(lines).toMatchObject([{ level: "info", message: "retention", fields: { deleted: 1011 } }]);
    expect(calls).toContainEqual(expect.stringMatching(/^cleanupLastRun/));
  });

  test("says so when there was nothing to delete", async () => {
    const { retention, lines } = setUp([]);

    await retention.runOnce();

    expect(lines).toMatchObject([{ message: "retention", fields: { table: "outbox", deleted: 0 } }]);
  });

  test("fails with its first failed batch, and says what it had deleted", async () => {
    const broken = new Error("permission denied");
    const { retention, store, lines } = setUp([[{ deleted: 1000 }, broken, { deleted: 1 }]]);

    await expect(retention.runOnce()).rejects.toBe(broken);

    expect(store.asked).toHaveLength(2);
    expect(lines).toMatchObject([{ message: "retention interrupted", fields: { deleted: 1000 } }]);
  });

  test("ends after the running batch when the process stops", async () => {
    const { retention, store, stopping, lines } = setUp([[{ deleted: 1000 }, { deleted: 1000 }, { deleted: 1000 }]]);
    store.onBatch = () => {
      if (store.asked.length === 2) stopping.abort(new StoppingError());
    };

    await retention.runOnce();

    expect(store.asked).toHaveLength(2);
    expect(lines).toMatchObject([{ message: "retention interrupted", fields: { deleted: 2000 } }]);
  });
});
