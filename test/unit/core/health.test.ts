import { describe, expect, test } from "@jest/globals";
import { Health, LIVENESS } from "../../../src/core/health.ts";
import type { HealthComponent } from "../../../src/ports/runtime.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../support/recorders.ts";

function setup(components: readonly HealthComponent[], timeoutMs?: number) {
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  const clock = new ManualClock();
  return { lines, calls, clock, health: new Health(() => components, { log, metrics, clock, timeoutMs }) };
}

const component = (name: string, check: HealthComponent["check"], decidesReadiness = true): HealthComponent => ({
  name,
  decidesReadiness,
  check,
});
const up = async () => {};
const down = async () => {
  throw new Error("connection refused");
};

describe("readiness", () => {
  test("is healthy when every component is up", async () => {
    const { health, lines, calls } = setup([component("database", up), component("outbox-poller", up)]);
    const report = await health.readiness();
    expect(report.ready).toBe(true);
    expect(JSON.stringify(report.body)).toBe(
      '{"status":"healthy","components":{"database":{"status":"up"},"outbox-poller":{"status":"up"}}}',
    );
    expect(lines).toEqual([]);
    expect(calls).toEqual(["componentUp(database, true)", "componentUp(outbox-poller, true)"]);
  });

  test("is unhealthy when a component that decides it is down", async () => {
    const { health, calls } = setup([component("database", down), component("outbox-poller", up)]);
    expect(await health.readiness()).toEqual({
      ready: false,
      body: { status: "unhealthy", components: { database: { status: "down" }, "outbox-poller": { status: "up" } } },
    });
    expect(calls).toContain("componentUp(database, false)");
  });

  test("shows a component that does not decide it, and stays healthy", async () => {
    const { health } = setup([component("outbox-capture", down, false)]);
    expect(await health.readiness()).toEqual({
      ready: true,
      body: { status: "healthy", components: { "outbox-capture": { status: "down" } } },
    });
  });

  test("counts a check that does not answer in time as down, and tells it to stop", async () => {
    let signal: AbortSignal | undefined;
    const hanging = (given: AbortSignal) => {
      signal = given;
      return new Promise<never>(() => {});
    };
    const { health, lines } = setup([component("database", hanging), component("outbox-poller", up)], 20);
    const { ready, body } = await health.readiness();
    expect({ ready, database: body.components.database }).toEqual({ ready: false, database: { status: "down" } });
    expect(signal?.aborted).toBe(true);
    expect(lines).toEqual([
      {
        level: "warn",
        message: "component is down",
        fields: { component: "database", reason: "the check timed out after 20 ms" },
      },
    ]);
  });

  test("counts a check that throws before it returns a promise as down", async () => {
    const broken = (): Promise<void> => {
      throw new Error("no pool");
    };
    expect((await setup([component("database", broken)]).health.readiness()).ready).toBe(false);
  });

  test("logs each change once, with its reason", async () => {
    let fault: Error | undefined = new Error("connection refused");
    const { health, lines } = setup([
      component("database", async () => {
        if (fault !== undefined) throw fault;
      }),
    ]);
    await health.readiness();
    await health.readiness();
    fault = undefined;
    await health.readiness();
    await health.readiness();
    expect(lines).toEqual([
      { level: "warn", message: "component is down", fields: { component: "database", reason: "connection refused" } },
      { level: "info", message: "component is up again", fields: { component: "database" } },
    ]);
  });

  test("logs another reason for the same outage, at most every 30 seconds", async () => {
    let reason = "the server does not support SSL connections";
    const { health, lines, clock } = setup([
      component("database", async () => {
        throw new Error(reason);
      }),
    ]);
    const reasons = () => lines.map(({ message, fields }) => `${message}: ${fields.reason}`);
    await health.readiness();
    reason = "connection refused";
    clock.ms += 29_999;
    await health.readiness();
    expect(reasons()).toEqual(["component is down: the server does not support SSL connections"]);
    clock.ms += 1;
    await health.readiness();
    expect(reasons().slice(1)).toEqual(["component is down: connection refused"]);

    clock.ms += 60_000;
    await health.readiness();
    for (let probe = 0; probe < 29; probe++) {
      reason = `port ${probe}: connection refused`;
      clock.ms += 1000;
      await health.readiness();
    }
    expect(reasons().slice(2)).toEqual(["component is down: port 0: connection refused"]);
  });

  test("logs a new outage at once, however soon it follows", async () => {
    let fault: Error | undefined = new Error("connection refused");
    const { health, lines } = setup([
      component("database", async () => {
        if (fault !== undefined) throw fault;
      }),
    ]);
    await health.readiness();
    fault = undefined;
    await health.readiness();
    fault = new Error("too many connections");
    await health.readiness();
    expect(lines.map(({ message }) => message)).toEqual([
      "component is down",
      "component is up again",
      "component is down",
    ]);
  });

  test("shares one run between probes that come at the same time", async () => {
    let checks = 0;
    const { health } = setup([
      component("database", async () => {
        checks++;
      }),
    ]);
    await Promise.all([health.readiness(), health.readiness(), health.readiness()]);
    expect(checks).toBe(1);
    await health.readiness();
    expect(checks).toBe(2);
  });
});

test("without probes the components are checked every 30 seconds, from the start to the stop", async () => {
  let due: readonly [ms: number, check: () => void] | undefined;
  const timer = (ms: number, check: () => void) => {
    due = [ms, check];
    return () => {
      due = undefined;
    };
  };
  const { health, lines } = setup([component("outbox-poller", down)]);
  const watch = health.watch(timer);
  await watch.start();
  expect([lines, due?.[0]]).toEqual([[], 30_000]);
  due?.[1]();
  await health.readiness();
  expect(lines).toMatchObject([{ message: "component is down" }]);
  expect(due).toBeDefined();
  await watch.stop(new AbortController().signal);
  expect(due).toBeUndefined();
});

test("liveness says that the process is up and nothing else", () => {
  expect(JSON.stringify(LIVENESS)).toBe('{"status":"healthy","components":{"process":{"status":"up"}}}');
});
