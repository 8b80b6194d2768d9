import { describe, expect, test } from "@jest/globals";
import { healthOf, openCells, type RunningCell } from "../../../roles/data.ts";
import { Health } from "../../../src/core/health.ts";
import { ConfigError, StoreError } from "../../../src/model/errors.ts";
import type { HealthComponent } from "../../../src/ports/runtime.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../support/recorders.ts";

const component = (name: string, check: () => Promise<void>): HealthComponent => ({
  name,
  decidesReadiness: name !== "capture",
  check,
});
const up = async () => {};
const down = () => Promise.reject(new Error("no connection"));
const hanging = () => new Promise<void>(() => {});

async function readiness(cells: Readonly<Record<string, readonly HealthComponent[]>>) {
  const running = Object.entries(cells).map(([name, components]) => ({ name, health: () => components }));
  const health = new Health(() => healthOf(running as unknown as RunningCell[]), {
    log: recordingLog().log,
    metrics: recordingMetrics().metrics,
    clock: new ManualClock(),
  });
  const { ready, body } = await health.readiness();
  return { ready, ...Object.fromEntries(Object.entries(body.components).map(([name, { status }]) => [name, status])) };
}

describe("the health of a process with several cells", () => {
  test("is good while one cell is well, and tells which one is not", async () => {
    const a = [component("database", up), component("outbox-poller", up)];
    const b = [component("database", down)];
    expect(await readiness({ a, b })).toEqual({
      ready: true,
      database: "up",
      "outbox-poller": "up",
      "database.a": "up",
      "outbox-poller.a": "up",
      "database.b": "down",
    });
  });

  test("does not wait for a cell that hangs", async () => {
    const startedAt = performance.now();
    expect(await readiness({ a: [component("database", up)], b: [component("database", hanging)] })).toMatchObject({
      ready: true,
      "database.b": "down",
    });
    expect(performance.now() - startedAt).toBeLessThan(2000);
  });

  test("is bad when no cell is well", async () => {
    expect(await readiness({ a: [component("database", down)], b: [component("database", down)] })).toMatchObject({
      ready: false,
      database: "down",
    });
  });

  test("does not depend on what decides nothing", async () => {
    const [a, b] = [[component("database", up), component("capture", down)], [component("database", up)]];
    expect(await readiness({ a, b })).toMatchObject({ ready: true, capture: "down", "capture.a": "down" });
  });
});

describe("opening several cells", () => {
  /** A cell whose attempts end so, one after another. */
  function cell(...attempts: readonly (Error | undefined)[]) {
    const left = [...attempts];
    const state = { isOpen: false, later: 0 };
    const open = async () => {
      const failure = left.shift();
      if (failure !== undefined) throw failure;
      state.isOpen = true;
    };
    const keepOpening = async () => {
      state.later += 1;
    };
    const running = {
      open,
      keepOpening,
      get isOpen() {
        return state.isOpen;
      },
    };
    return { state, running: running as unknown as RunningCell };
  }
  const away = new StoreError("unavailable", "no database answers");

  test("continues without a cell that is away, which is tried again", async () => {
    const [a, b] = [cell(undefined), cell(away)];
    await openCells([a.running, b.running]);
    expect([a.state, b.state]).toEqual([
      { isOpen: true, later: 0 },
      { isOpen: false, later: 1 },
    ]);
  });

  test("fails when all are away, or when the tables of one do not fit", async () => {
    await expect(openCells([cell(away).running, cell(away).running])).rejects.toThrow("no database answers");
    const unfit = new ConfigError([{ path: "database.inboxTableName", message: "does not exist" }]);
    await expect(openCells([cell(undefined).running, cell(unfit).running])).rejects.toThrow("does not exist");
  });
});
