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
  test("deletes a batch a pass, range by range, each from where its last batch ended, with pauses by its time", async () => {
    const took = [20, 100, 1, 0, 400];
    const ranges = [took.map((tookMs) => ({ deleted: 1000, tookMs })), [{ deleted: 7, tookMs: 30 }]];
    const { retention, store, pauses, lines, calls, clock } = setUp(ranges);

    await retention.pass();
    expect(calls).toEqual(["cleanupDeleted(outbox, 1000)"]);
    expect(await passes(retention)).toBe(5);

    expect(store.asked).toEqual(["0.0", "0.1", "0.2", "0.3", "0.4", "1.0"].map((position) => [position, 1000]));
    // Three times as long as the batch, from ten ms to a second; none after the last one.
    expect(pauses).toEqual([60, 300, 10, 10, 1000]);
    const fields = { table: "outbox", policy: "AGE", deleted: 5007, durationMs: 1931 };
    expect(lines).toEqual([{ level: "info", message: "retention", fields }]);
    expect(calls.slice(-2)).toEqual([
      "cleanupDuration(outbox, 1.931)",
      `cleanupLastRun(outbox, ${clock.now() / 1000})`,
    ]);
    expect(store.plans).toEqual([AGE]);
    await retention.pass();
    expect(store.plans).toHaveLength(2);
  });

  test.each<[string, Batch[][]]>([
    ["no range", []],
    ["nothing left in its range", [[{ deleted: 0 }]]],
  ])("a sweep that finds %s is done, silent, and counts as run; a single run says so", async (_, script) => {
    const { retention, lines, calls, pauses } = setUp(script);

    expect(await retention.pass()).toBe("idle");
    expect([lines, pauses]).toEqual([[], []]);
    expect(calls).toContainEqual(expect.stringMatching(/^cleanupLastRun/));

    await retention.runOnce();
    expect(lines).toMatchObject([{ message: "retention", fields: { table: "outbox", deleted: 0 } }]);
  });

  test("a failed plan or batch fails its pass, and the next pass tries it again", async () => {
    const broken = new Error("connection lost");
    const { retention, store, lines, calls } = setUp([[{ deleted: 1000 }, broken, { deleted: 1000 }, { deleted: 1 }]]);
    const plan = store.plan.bind(store);
    store.plan = async () => {
      store.plan = plan;
      throw broken;
    };

    await expect(retention.pass()).rejects.toBe(broken);
    await retention.pass();
    await expect(retention.pass()).rejects.toBe(broken);
    expect(calls).not.toContainEqual(expect.stringMatching(/^cleanupLastRun/));
    await passes(retention);

    expect(store.plans).toHaveLength(1);
    expect(store.asked.map(([position]) => position)).toEqual(["0.0", "0.1", "0.1", "0.2"]);
    expect(lines).toMatchObject([{ fields: { deleted: 2001 } }]);
  });

  test("a stop ends the pause at once and says what was deleted so far", async () => {
    const stop = new AbortController();
    const { retention, lines } = setUp([[{ deleted: 1000 }, { deleted: 1000 }]], {
      stopping: stop.signal,
      async wait(_, signal) {
        stop.abort(new StoppingError());
        throw signal.reason;
      },
    });

    expect(await retention.pass()).toBe("again");
    expect(lines).toMatchObject([{ level: "info", message: "retention interrupted", fields: { deleted: 1000 } }]);
  });

  test("once sweeps to the end at the same pace, or to its first failed batch or a stop, and says what it deleted", async () => {
    const whole = setUp([[{ deleted: 1000, tookMs: 20 }, { deleted: 4 }], [{ deleted: 7 }]]);
    await whole.retention.runOnce();
    expect([whole.store.plans.length, whole.store.asked.length, whole.pauses]).toEqual([1, 3, [60, 10]]);
    expect(whole.lines).toMatchObject([{ level: "info", message: "retention", fields: { deleted: 1011 } }]);

    const broken = new Error("permission denied");
    const failed = setUp([[{ deleted: 1000 }, broken, { deleted: 1 }]]);
    await expect(failed.retention.runOnce()).rejects.toBe(broken);
    expect(failed.lines).toMatchObject([{ message: "retention interrupted", fields: { deleted: 1000 } }]);

    const stopped = setUp([[{ deleted: 1000 }, { deleted: 1000 }, { deleted: 1000 }]]);
    stopped.store.onBatch = () => {
      if (stopped.store.asked.length === 2) stopped.stopping.abort(new StoppingError());
    };
    await stopped.retention.runOnce();
    expect(stopped.lines).toMatchObject([{ message: "retention interrupted", fields: { deleted: 2000 } }]);
  });
});
