import { describe, expect, test } from "@jest/globals";
import type { ReceiverReport } from "../../../../src/core/destinations/breaker.ts";
import { Ramp } from "../../../../src/core/destinations/breaker.ts";
import { DestinationGates, type DestinationLimits } from "../../../../src/core/destinations/gates.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { ClaimToken, MessageId } from "../../../../src/model/rows.ts";
import { gatesOf } from "../../../support/gates.ts";
import { manualTime } from "../../../support/manualTime.ts";
import { MemoryDestinations } from "../../../support/memoryDestinations.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const BREAKER = { failureRatio: 0.5, minimumAttempts: 4, windowMs: 30_000, openMs: 5000, maxOpenMs: 20_000 };
const HEALTHY: ReceiverReport = { receiver: "healthy" };
const FAILED: ReceiverReport = { receiver: "failed", reason: "status 500" };
const ROW = "row" as MessageId;
const never = () => false;

/** Replicas with one destination, `billing`, whose state they share in memory. */
function setup(limits: DestinationLimits, replicas = 1) {
  const time = manualTime(0);
  const store = new MemoryDestinations(time.clock.monotonic);
  let tokens = 0;
  let rows = 0;
  const fleet = Array.from({ length: replicas }, () => {
    const { metrics, calls } = recordingMetrics();
    const { log, lines } = recordingLog();
    const told: string[] = [];
    const gates = new DestinationGates({
      limits: { billing: limits },
      concurrency: 8,
      store,
      newToken: () => {
        tokens += 1;
        return `probe-${tokens}` as ClaimToken;
      },
      random: () => 0,
      metrics,
      log,
      ...time,
    });
    gates.listen({ onChange: () => told.push("change"), onClose: (name) => told.push(`${name} closed`) });
    const refresh = () => gates.refresh(never);
    const may = (waiting = 1) => gates.mayBegin("billing", waiting);
    const deliver = async (report: ReceiverReport) => {
      const pass = await gates.enter("billing");
      if (pass === undefined) return "not begun";
      rows += 1;
      gates.leave("billing", pass, `row-${rows}` as MessageId, report);
      await time.advance(0);
      return pass.isProbe ? "probe" : "begun";
    };
    return { gates, calls, lines, told, refresh, may, deliver };
  });
  const refreshAll = async () => {
    for (const { refresh } of fleet) await refresh();
    await time.advance(0);
  };
  /** A refresh of all some time later. */
  const later = async (ms: number) => {
    await time.advance(ms);
    await refreshAll();
  };
  return { time, store, fleet, refreshAll, later, one: fleet[0] as (typeof fleet)[number] };
}

/** The same, with a breaker that the first replica has opened. */
async function openBreaker(replicas = 1): Promise<ReturnType<typeof setup>> {
  const made = setup({ circuitBreaker: BREAKER }, replicas);
  await made.refreshAll();
  for (let n = 0; n < 4; n += 1) await made.one.deliver(FAILED);
  await made.refreshAll();
  return made;
}

describe("the gates of destinations", () => {
  test("let nothing through before the shared state is known", async () => {
    const { one, refreshAll } = setup({});
    expect(one.may()).toBe(false);
    expect(one.gates.rowsWanted("billing", () => 0)).toBe(0);
    await refreshAll();
    expect(one.may()).toBe(true);
    expect(one.gates.rowsWanted("billing", () => 0)).toBeUndefined();
    expect(one.told).toEqual(["change"]);
  });

  test("hold a paused destination back until it is resumed, or its time is over", async () => {
    const { one, later, refreshAll, store } = setup({});
    await store.pause("billing", { by: "ops", reason: "migration", forMs: undefined });
    await refreshAll();
    expect(one.may()).toBe(false);
    expect(one.calls).toContain("destinationState(billing, paused)");
    expect(one.gates.isHeld("billing")).toBe(true);
    await store.resume("billing");
    await refreshAll();
    expect(one.gates.isHeld("billing")).toBe(false);
    expect(one.may()).toBe(true);

    await store.pause("billing", { by: "ops", reason: "migration", forMs: 2000 });
    await refreshAll();
    expect(one.may()).toBe(false);
    await later(2000);
    expect(one.may()).toBe(true);
  });

  test("keep to the destination's own concurrency, and few rows of it in the process then", async () => {
    const { one, refreshAll } = setup({ concurrency: 2 });
    await refreshAll();
    const first = await one.gates.enter("billing");
    expect(one.may()).toBe(true);
    await one.gates.enter("billing");
    expect(one.may()).toBe(false);
    expect(one.gates.rowsWanted("billing", () => 0)).toBe(8);
    if (first !== undefined) one.gates.leave("billing", first, ROW, HEALTHY);
    expect(one.may()).toBe(true);
  });

  test("keep to it with a probe, too, while an earlier delivery hangs", async () => {
    const { one, later, refreshAll } = setup({ concurrency: 1, circuitBreaker: BREAKER });
    await refreshAll();
    const hanging = await one.gates.enter("billing");
    for (let n = 0; n < 4; n += 1) await one.deliver(FAILED);
    await refreshAll();
    await later(5000);
    expect(one.may()).toBe(false);
    expect(one.gates.rowsWanted("billing", () => 0)).toBe(0);
    if (hanging !== undefined) one.gates.leave("billing", hanging, ROW, FAILED);
    expect(one.may()).toBe(true);
    expect(one.gates.rowsWanted("billing", () => 0)).toBe(1);
    expect(await one.deliver(HEALTHY)).toBe("probe");
  });

  test("open in every replica when one of them sees the receiver fail", async () => {
    const { fleet, one, refreshAll } = setup({ circuitBreaker: BREAKER }, 2);
    await refreshAll();
    for (let n = 0; n < 4; n += 1) expect(await one.deliver(FAILED)).toBe("begun");
    expect(one.may()).toBe(false);
    await refreshAll();
    expect(fleet.map(({ may }) => may())).toEqual([false, false]);
    expect(fleet.map(({ gates }) => gates.rowsWanted("billing", () => 0))).toEqual([0, 0]);
    expect(fleet.map(({ calls }) => calls.includes("breakerTransition(billing, open)"))).toEqual([true, false]);
    expect(one.lines.map(({ message }) => message)).toEqual([
      "circuit breaker open: no deliveries until a probe succeeds",
    ]);
  });

  test("let one probe through in the fleet, and twice as long nothing after it failed", async () => {
    const { fleet, one, later, refreshAll } = await openBreaker(3);
    await later(5000);
    expect(fleet.map(({ may }) => may())).toEqual([true, true, true]);
    expect(fleet.map(({ gates }) => gates.rowsWanted("billing", () => 0))).toEqual([1, 1, 1]);
    const passes = await Promise.all(fleet.map(({ gates }) => gates.enter("billing")));
    expect(passes.map((pass) => pass?.isProbe)).toEqual([true, undefined, undefined]);

    const [probe] = passes;
    if (probe !== undefined) one.gates.leave("billing", probe, ROW, FAILED);
    await refreshAll();
    await later(9999);
    expect(fleet.map(({ may }) => may())).toEqual([false, false, false]);
    await later(1);
    expect(fleet.map(({ may }) => may())).toEqual([true, true, true]);
  });

  test("wait as long as a failed probe was asked to, up to the longest time that a breaker is open", async () => {
    const { one, later, refreshAll } = await openBreaker();
    await later(5000);
    await one.deliver({ ...FAILED, retryAfterMs: 15_000 });
    await refreshAll();
    await later(14_999);
    expect(one.may()).toBe(false);
    await later(1);
    expect(one.may()).toBe(true);
    await one.deliver({ ...FAILED, retryAfterMs: 86_400_000 });
    await refreshAll();
    await later(BREAKER.maxOpenMs - 1);
    expect(one.may()).toBe(false);
    await later(1);
    expect(one.may()).toBe(true);
  });

  test("tell each change of a breaker, and when the next probe follows", async () => {
    const { one, later, refreshAll } = await openBreaker();
    const probes = [
      [5000, { receiver: "unasked" }],
      [0, { receiver: "unknown", reason: "no stream" }],
      [5000, FAILED],
      [10_000, HEALTHY],
    ] as const;
    for (const [waitMs, report] of probes) {
      await refreshAll();
      await later(waitMs);
      expect(await one.deliver(report)).toBe("probe");
    }
    const destination = "billing";
    const halfOpen = ["info", { destination }, "circuit breaker half-open: sending a probe"];
    const opened = { destination, reason: "4 of 4 deliveries failed within 30000 ms", nextProbeMs: 5000 };
    expect(one.lines.map(({ level, fields, message }) => [level, fields, message])).toEqual([
      ["warn", opened, "circuit breaker open: no deliveries until a probe succeeds"],
      halfOpen,
      ["info", { destination }, "probe not sent: the next row is the probe"],
      halfOpen,
      ["warn", { destination, reason: "no stream", nextProbeMs: 5000 }, "probe undecided"],
      halfOpen,
      ["warn", { destination, reason: "status 500", nextProbeMs: 10_000 }, "probe failed"],
      halfOpen,
      ["info", { destination }, "circuit breaker closed: the probe succeeded"],
    ]);
    expect(one.calls.filter((call) => call.startsWith("breakerTransition"))).toEqual([
      "breakerTransition(billing, open)",
      ...["open", "open", "open", "closed"].flatMap((to) => [
        "breakerTransition(billing, half-open)",
        `breakerTransition(billing, ${to})`,
      ]),
    ]);
  });

  test("wait openMs, not longer, after a probe that decided nothing, and take another row then", async () => {
    const { fleet, one, later, refreshAll } = await openBreaker(2);
    for (let n = 0; n < 3; n += 1) {
      await later(4999);
      expect(fleet.map(({ may }) => may())).toEqual([false, false]);
      await later(1);
      expect(await one.deliver({ receiver: "unknown", reason: "no stream" })).toBe("probe");
      await refreshAll();
    }
    await later(5000);
    expect(one.gates.probed("billing")).toEqual(["row-5", "row-6", "row-7"]);
    await one.deliver(HEALTHY);
    expect(one.gates.probed("billing")).toEqual([]);
  });

  test("close after a probe that succeeds, and let the backlog through little by little", async () => {
    const { fleet, one, later, refreshAll } = await openBreaker(2);
    await later(5000);
    expect(await one.deliver(HEALTHY)).toBe("probe");
    await refreshAll();
    expect(fleet.map(({ told }) => told.includes("billing closed"))).toEqual([true, true]);

    const inFlight = async () => {
      const passes = [];
      while (passes.length < 8 && one.may()) passes.push(await one.gates.enter("billing"));
      for (const pass of passes) if (pass !== undefined) one.gates.leave("billing", pass, ROW, HEALTHY);
      return passes.length;
    };
    expect([await inFlight(), await inFlight(), await inFlight(), await inFlight()]).toEqual([1, 2, 4, 8]);
  });

  test("tell the database what they saw, at most every two seconds", async () => {
    const { one, later, refreshAll, store, time } = setup({});
    await later(10_000);
    await one.deliver(HEALTHY);
    await time.advance(1000);
    await one.deliver(FAILED);
    await refreshAll();
    expect(await store.states()).toMatchObject([
      { lastSuccessAt: new Date(10_000), lastFailureAt: new Date(11_000), lastError: "status 500" },
    ]);
    await time.advance(1000);
    await one.deliver(HEALTHY);
    await refreshAll();
    expect(await store.states()).toMatchObject([{ lastSuccessAt: new Date(10_000) }]);
    await later(1000);
    expect(await store.states()).toMatchObject([{ lastSuccessAt: new Date(12_000) }]);
  });

  test("tell a message that the receiver refused as a failure, and nothing of a delivery that was cut off", async () => {
    const { one, later, store } = setup({});
    await one.deliver({ receiver: "healthy", reason: "answered 400" });
    await later(2000);
    const failed = { lastSuccessAt: null, lastFailureAt: new Date(0), lastError: "answered 400" };
    expect(await store.states()).toMatchObject([failed]);
    await one.refresh();
    expect(one.calls).toContain("destinationState(billing, failing)");
    await one.deliver({ receiver: "unknown", reason: "shutting down", isInterrupted: true });
    await later(2000);
    expect(await store.states()).toMatchObject([failed]);
  });

  test("show what replicas counted and what is parked in the state", async () => {
    const { one, later } = setup({});
    await one.deliver(HEALTHY);
    await later(2000);
    await one.refresh();
    expect(one.calls.at(-1)).toBe("destinationState(billing, ok)");
    const recent = { sent: 1, failed: 0, dead: 0 };
    one.gates.showRecent(new Map([["billing", { recent, parked: 1 }]]));
    await one.refresh();
    expect(one.calls.at(-1)).toBe("destinationState(billing, degraded)");
    one.gates.showRecent(new Map([["billing", { recent: { ...recent, dead: 2 }, parked: 1 }]]));
    await one.refresh();
    expect(one.calls.at(-1)).toBe("destinationState(billing, failing)");
  });

  test("know of a pause while a write to the same destination waits for a lock, and write one at a time", async () => {
    const { one, later, store, time } = await openBreaker();
    expect(one.gates.isHeld("billing")).toBe(true);
    await later(5000);
    await one.gates.enter("billing");
    expect(one.gates.isHeld("billing")).toBe(true);
    await one.deliver(FAILED);
    const waiting: (() => void)[] = [];
    store.renewProbe = async () => await new Promise((resolve) => waiting.push(() => resolve(true)));
    store.report = async () => await new Promise((resolve) => waiting.push(resolve));
    for (let n = 0; n < 5; n += 1) {
      await time.advance(2000);
      await one.refresh();
    }
    expect(waiting).toHaveLength(2);
    await store.pause("billing", { by: "ops", reason: "migration", forMs: undefined });
    await one.refresh();
    expect(one.calls.at(-1)).toBe("destinationState(billing, paused)");

    let hasStopped = false;
    const stop = one.gates.stop().then(() => {
      hasStopped = true;
    });
    await time.advance(0);
    expect(hasStopped).toBe(false);
    for (const end of waiting) end();
    await stop;
  });

  test("fail at the next read after a write failed, whose report is repeated", async () => {
    const { one, later, refreshAll, store } = setup({});
    await refreshAll();
    const { report } = store;
    store.report = async () => {
      throw new StoreError("unavailable", "the connection broke");
    };
    await one.deliver(HEALTHY);
    await later(2000);
    store.report = report;
    await store.pause("billing", { by: "ops", reason: "migration", forMs: undefined });
    await expect(one.refresh()).rejects.toThrow("the connection broke");
    expect(one.may()).toBe(false);
    await later(2000);
    expect(await store.states()).toMatchObject([{ lastSuccessAt: new Date(0) }]);
  });

  test("hold rows back for the rate, and count how long", async () => {
    const { one, refreshAll, time } = setup({ rateLimit: { perSecond: 10, burst: 10 } });
    await refreshAll();
    expect(one.may()).toBe(false);
    expect(one.gates.rowsWanted("billing", () => 0)).toBe(5);
    await time.advance(100);
    expect(await one.deliver(HEALTHY)).toBe("begun");
    expect(one.may()).toBe(false);
    await refreshAll();
    expect(one.calls.filter((call) => call.startsWith("destinationRateLimited")).at(-1)).toBe(
      "destinationRateLimited(billing, 0.1)",
    );
    await one.gates.stop();
  });
});

describe("a ramp", () => {
  test("is halved by a failure on the way up, and not at the top", () => {
    const ramp = new Ramp(8);
    ramp.failed();
    expect(ramp.limit).toBe(Infinity);
    ramp.restart();
    for (let n = 0; n < 4; n += 1) ramp.succeeded();
    ramp.failed();
    expect(ramp.limit).toBe(2);
    ramp.failed();
    ramp.failed();
    expect(ramp.limit).toBe(1);
  });
});

test("a table that cannot be read is logged once a minute", () => {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const gates = gatesOf({ clock, log });
  for (let second = 0; second <= 120; second += 1) {
    gates.refreshFailed(new StoreError("schema", "destinations.states: no such table"), second + 1);
    clock.advance(1000);
  }
  expect(lines.map(({ level, fields }) => [level, fields.failures])).toEqual([1, 61, 121].map((n) => ["error", n]));
});

test("tells which destinations replicas last saw unhealthy when the process started, and no later ones", async () => {
  const { time, store, one } = setup({});
  const report = { succeededAgoMs: undefined, failure: undefined, isSlow: false };
  await store.report([
    { ...report, name: "slow", isSlow: true },
    { ...report, name: "failed", failure: { agoMs: 10, reason: "status 500" } },
    { ...report, name: "recovered", succeededAgoMs: 5, failure: { agoMs: 10, reason: "status 500" } },
    { ...report, name: "healthy", succeededAgoMs: 5 },
  ]);
  const unhealthy = () =>
    ["slow", "failed", "recovered", "healthy", "billing"].filter((name) => one.gates.wasUnhealthy(name));
  expect(unhealthy()).toEqual([]);
  await one.refresh();
  expect(unhealthy()).toEqual(["slow", "failed"]);
  await store.report([{ ...report, name: "healthy", isSlow: true }]);
  await time.advance(500);
  await one.refresh();
  expect(unhealthy()).toEqual(["slow", "failed"]);
});
