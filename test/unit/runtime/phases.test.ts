import { describe, expect, test } from "@jest/globals";
import { errorText, StoppingError } from "../../../src/model/errors.ts";
import type { Service } from "../../../src/ports/runtime.ts";
import { startInOrder, stopPhases } from "../../../src/runtime/shutdown.ts";
import { manualTime, settle } from "../../support/manualTime.ts";
import { recordedLog } from "./recordedLog.ts";

const notStopping = new AbortController().signal;

/** Tools over manual time, and a maker of services that note what happens to them. */
function setup() {
  const time = manualTime();
  const { log, lines } = recordedLog();
  const events: string[] = [];
  const service = (name: string, overrides: Partial<Service> = {}): Service => ({
    name,
    start: async () => {
      events.push(`start ${name}`);
    },
    stop: async () => {
      events.push(`stop ${name}`);
    },
    ...overrides,
  });
  return { time, lines, events, service, tools: { log, clock: time.clock, timer: time.timer, graceMs: 2000 } };
}

const aborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

describe("stopping in phases", () => {
  test("stops a phase only when the one before it has ended, and the services of a phase beside each other", async () => {
    const { events, service, tools } = setup();
    const release: (() => void)[] = [];
    const slow = (name: string) =>
      service(name, {
        stop: async () => {
          events.push(`stopping ${name}`);
          await new Promise<void>((resolve) => release.push(resolve));
          events.push(`stopped ${name}`);
        },
      });
    const stopping = stopPhases(
      [
        { name: "work", services: [slow("poller"), slow("relay")], timeoutMs: 1000 },
        { name: "connections", services: [service("pool")], timeoutMs: 1000 },
      ],
      tools,
    );
    await settle();
    expect(events).toEqual(["stopping poller", "stopping relay"]);
    for (const done of release) done();
    await stopping;
    expect(events).toEqual(["stopping poller", "stopping relay", "stopped poller", "stopped relay", "stop pool"]);
  });

  test("logs each phase with its duration and sets no timer that outlives it", async () => {
    const { time, lines, service, tools } = setup();
    await stopPhases([{ name: "http", services: [service("server")], timeoutMs: 5000 }], tools);
    expect(lines).toEqual([
      { level: "info", message: "shutdown phase done", fields: { phase: "http", durationMs: 0 } },
    ]);
    expect(time.pending()).toEqual([]);
  });

  test("tells a service to drop what is left when the time of its phase is over", async () => {
    const { time, lines, service, tools } = setup();
    const reasons: unknown[] = [];
    const poller = service("poller", {
      stop: async (cutoff) => {
        await aborted(cutoff);
        reasons.push(cutoff.reason);
      },
    });
    const stopping = stopPhases([{ name: "work", services: [service("relay"), poller], timeoutMs: 30_000 }], tools);
    await time.advance(30_000);
    await stopping;
    expect(reasons).toEqual([expect.any(StoppingError)]);
    expect(lines).toEqual([
      {
        level: "warn",
        message: "shutdown phase cut short",
        fields: { phase: "work", durationMs: 30_000, cutShort: ["poller"] },
      },
    ]);
    expect(time.pending()).toEqual([]);
  });

  test("continues without a service that does not even stop after the cutoff", async () => {
    const { time, events, service, tools } = setup();
    const stuck = service("stuck", { stop: () => new Promise(() => {}) });
    const stopping = stopPhases(
      [
        { name: "work", services: [stuck], timeoutMs: 1000 },
        { name: "connections", services: [service("pool")], timeoutMs: 1000 },
      ],
      tools,
    ).catch((error: unknown) => error);
    await time.advance(3000);
    expect(errorText(await stopping)).toBe(
      "the shutdown had 1 error: stopping stuck failed (it did not stop within 2000 ms after the cutoff)",
    );
    expect(events).toEqual(["stop pool"]);
    expect(time.pending()).toEqual([]);
  });

  test("runs every phase even when services fail, and gives all errors together", async () => {
    const { events, lines, service, tools } = setup();
    const rejecting = service("first", { stop: () => Promise.reject(new Error("one")) });
    const throwing = service("second", {
      stop: () => {
        throw new Error("two");
      },
    });
    const error: unknown = await stopPhases(
      [
        { name: "a", services: [rejecting, service("beside")], timeoutMs: 1000 },
        { name: "b", services: [throwing], timeoutMs: 1000 },
        { name: "c", services: [service("last")], timeoutMs: 1000 },
      ],
      tools,
    ).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(AggregateError);
    expect(errorText(error)).toBe(
      "the shutdown had 2 errors: stopping first failed (one); stopping second failed (two)",
    );
    expect(events).toEqual(["stop beside", "stop last"]);
    expect(lines.map((line) => line.level)).toEqual(["error", "error", "info"]);
  });
});

describe("starting in order", () => {
  test("starts one service after another", async () => {
    const { events, service, tools } = setup();
    await startInOrder([service("store"), service("poller"), service("http")], 1000, notStopping, tools);
    expect(events).toEqual(["start store", "start poller", "start http"]);
  });

  test("stops what was begun in reverse order when a start fails, and throws what that start threw", async () => {
    const { events, service, tools } = setup();
    const failure = new Error("port taken");
    const http = service("http", { start: () => Promise.reject(failure) });
    const services = [service("store"), service("poller"), http, service("never")];
    await expect(startInOrder(services, 1000, notStopping, tools)).rejects.toBe(failure);
    expect(events).toEqual(["start store", "start poller", "stop http", "stop poller", "stop store"]);
  });

  test("tells of both when undoing a failed start fails as well", async () => {
    const { service, tools } = setup();
    const store = service("store", { stop: () => Promise.reject(new Error("still busy")) });
    const http = service("http", { start: () => Promise.reject(new Error("port taken")) });
    const error: unknown = await startInOrder([store, http], 1000, notStopping, tools).catch(
      (thrown: unknown) => thrown,
    );
    expect(errorText(error)).toBe(
      "the start failed, and stopping what had started failed too: port taken; stopping store failed (still busy)",
    );
  });

  test("gives up a start that is under way when the process has to stop", async () => {
    const { events, service, tools } = setup();
    const controller = new AbortController();
    const slow = service("store", { start: () => new Promise(() => {}) });
    const starting = startInOrder([slow, service("poller")], 1000, controller.signal, tools);
    const failed = expect(starting).rejects.toThrow(StoppingError);
    controller.abort(new StoppingError());
    await failed;
    expect(events).toEqual(["stop store"]);
  });
});
