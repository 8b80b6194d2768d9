import { EventEmitter } from "node:events";
import { describe, expect, test } from "@jest/globals";
import { StoppingError } from "../../../src/model/errors.ts";
import { handleSignals } from "../../../src/runtime/shutdown.ts";
import { manualTime, settle } from "../../support/manualTime.ts";
import { recordedLog } from "./recordedLog.ts";

/** A process that notes its exit, and a stop that ends when told to. */
function setup() {
  const time = manualTime();
  const { log, lines } = recordedLog();
  const events: string[] = [];
  const fake = Object.assign(new EventEmitter(), { exit: (code: number) => events.push(`exit ${code}`) });
  const stop = { finish: () => {}, fail: (_error: Error) => {}, calls: 0 };
  const handling = handleSignals({
    log,
    flush: () => events.push("flush"),
    stop: () => {
      stop.calls += 1;
      return new Promise<void>((resolve, reject) => {
        stop.finish = resolve;
        stop.fail = reject;
      });
    },
    process: fake,
    clock: time.clock,
  });
  return { time, lines, events, fake, stop, handling };
}

describe("a termination signal", () => {
  test.each(["SIGTERM", "SIGINT"])(
    "%s starts the orderly stop, says so, and ends with code 0 after it",
    async (signal) => {
      const { fake, stop, events, lines, handling } = setup();
      fake.emit(signal, signal);
      expect(stop.calls).toBe(1);
      expect(handling.stopping.reason).toBeInstanceOf(StoppingError);
      expect(lines[0]).toMatchObject({ level: "info", fields: { signal } });
      expect(events).toEqual([]);
      stop.finish();
      await settle();
      expect(events).toEqual(["flush", "exit 0"]);
    },
  );

  test("ends with code 1 when the orderly stop fails", async () => {
    const { fake, stop, events, lines } = setup();
    fake.emit("SIGTERM", "SIGTERM");
    stop.fail(new AggregateError([new Error("pool")], "the shutdown had 1 error"));
    await settle();
    expect(events).toEqual(["flush", "exit 1"]);
    expect(lines.at(-1)).toMatchObject({ level: "error", fields: { error: "the shutdown had 1 error: pool" } });
  });

  test("the second time ends the process at once", async () => {
    const { time, fake, stop, events, lines } = setup();
    fake.emit("SIGTERM", "SIGTERM");
    await time.advance(200);
    fake.emit("SIGTERM", "SIGTERM");
    expect(events).toEqual(["flush", "exit 1"]);
    expect(stop.calls).toBe(1);
    expect(lines.at(-1)).toMatchObject({ level: "warn", fields: { signal: "SIGTERM" } });
  });

  test("that is another one ends the process without any delay", () => {
    const { fake, events } = setup();
    fake.emit("SIGTERM", "SIGTERM");
    fake.emit("SIGINT", "SIGINT");
    expect(events).toEqual(["flush", "exit 1"]);
  });

  test("that arrives twice in one moment counts once, and the log says so", async () => {
    const { time, fake, stop, events, lines } = setup();
    fake.emit("SIGINT", "SIGINT");
    await time.advance(50);
    fake.emit("SIGINT", "SIGINT");
    expect(events).toEqual([]);
    expect(stop.calls).toBe(1);
    expect(lines.at(-1)).toMatchObject({ level: "info", message: expect.stringContaining("counts as one") });
  });
});

describe("a fault that nobody caught", () => {
  test.each(["uncaughtException", "unhandledRejection"])("%s is logged with its stack and ends with code 1", (kind) => {
    const { fake, events, lines, stop } = setup();
    fake.emit(kind, new Error("broken"), kind);
    expect(lines).toEqual([
      {
        level: "error",
        message: expect.stringContaining("unexpected"),
        fields: { kind, error: "broken", stack: expect.stringContaining("signals.test.ts") },
      },
    ]);
    expect(events).toEqual(["flush", "exit 1"]);
    expect(stop.calls).toBe(0);
  });

  test("may be no error at all", () => {
    const { fake, lines } = setup();
    fake.emit("unhandledRejection", "just text");
    expect(lines[0]?.fields).toMatchObject({ error: "just text", stack: undefined });
  });
});

test("disposing takes every handler off", () => {
  const { fake, handling } = setup();
  expect(fake.eventNames()).toEqual(["SIGTERM", "SIGINT", "uncaughtException", "unhandledRejection"]);
  handling.dispose();
  expect(fake.eventNames()).toEqual([]);
});
