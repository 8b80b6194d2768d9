import { afterEach, beforeEach, describe, expect, jest, test } from "@jest/globals";
import { ConfigError, StoreError } from "../../../src/model/errors.ts";
import { createLog, type LogOptions, parseLogLevel, prettyLine } from "../../../src/runtime/log.ts";

/** A log whose lines are kept, parsed. */
function setup(overrides: Partial<LogOptions> = {}) {
  const written: string[] = [];
  const { log, flush } = createLog({
    level: "info",
    roles: ["poller", "relay"],
    replica: "host-7",
    output: { write: (line) => written.push(line) },
    ...overrides,
  });
  return { log, flush, written, lines: () => written.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

describe("a log line", () => {
  test("is one JSON object with time, level, service, roles and replica", () => {
    const { log, lines, written } = setup();
    log.info({ destination: "orders" }, "delivery attempted");
    expect(written[0]?.endsWith("}\n")).toBe(true);
    expect(lines()).toEqual([
      {
        level: "info",
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        service: "svc",
        roles: ["poller", "relay"],
        replica: "host-7",
        destination: "orders",
        msg: "delivery attempted",
      },
    ]);
  });

  test("names the host and the process as the replica by default", () => {
    const written: string[] = [];
    const { log } = createLog({ level: "info", roles: [], output: { write: (line) => written.push(line) } });
    log.info({}, "started");
    expect(JSON.parse(written[0] ?? "").replica).toMatch(new RegExp(`.-${process.pid}$`));
  });

  test("of a child carries the child's fields", () => {
    const { log, lines } = setup();
    log.child({ component: "poller" }).child({ destination: "orders" }).warn({ count: 2 }, "slow");
    expect(lines()[0]).toMatchObject({ level: "warn", component: "poller", destination: "orders", count: 2 });
  });

  test("below the level is left out", () => {
    const { log, lines } = setup({ level: "warn" });
    log.debug({}, "a");
    log.info({}, "b");
    log.warn({}, "c");
    log.error({}, "d");
    expect(lines().map((line) => line.msg)).toEqual(["c", "d"]);
  });

  test("holds no character that nobody sees, and is the same JSON", () => {
    const { log, lines, written } = setup();
    const topic = "a\u001b[31m\u007f\u0085\u009b\u200b\u202e\u2028\u2066\ufeffz";
    log.info({ topic, key: { deep: topic } }, "delivery attempted");
    expect(written[0]).toMatch(/^[\x20-\x7e]*\n$/);
    expect(lines()[0]).toMatchObject({ topic, key: { deep: topic } });
  });

  test("shows none on a terminal either", () => {
    const { log, written } = setup();
    log.info({ topic: "a\u001b[31m\u007f\u009b\u202ez" }, "delivery attempted");
    const shown = prettyLine(written[0] ?? "");
    // The colours are its own.
    expect(shown.split("delivery attempted")[1]).toContain("a\\u001b[31m\\u007f\\u009b\\u202ez");
    expect(shown).not.toMatch(/[\u007f-\u009f\u202e]/);
  });

  test("shows an error as its text with its causes, and its code", () => {
    const { log, lines } = setup();
    const cause = new Error("connection refused");
    log.error({ error: new StoreError("unavailable", "claim failed", { cause }) }, "poller pass failed");
    log.error({ err: new TypeError("no code") }, "odd");
    log.error({ error: "only text" }, "odd");
    expect(lines()[0]?.error).toEqual({
      message: expect.stringContaining("claim failed (connection refused)"),
      code: "unavailable",
    });
    expect(lines()[1]?.err).toEqual({ message: "no code" });
    expect(lines()[2]?.error).toEqual({ message: "only text" });
  });
});

describe("errors while the database does not answer", () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());
  const away = (what: string) => ({ err: new StoreError("unavailable", what) });

  test("are one line, and one a minute with how many more there were", () => {
    const { log, lines } = setup();
    for (let n = 0; n < 50; n += 1) log.error(away(`first ${n}`), "claim failed");
    log.error({ rows: 2, code: "unavailable", reason: "insert" }, "received messages could not be stored");
    log.error({ err: new StoreError("schema", "no table") }, "relay pass failed");
    log.warn(away("w"), "cannot LISTEN");
    expect(lines().map(({ msg }) => msg)).toEqual(["claim failed", "relay pass failed", "cannot LISTEN"]);
    jest.advanceTimersByTime(60_000);
    expect(lines().slice(3)).toMatchObject([{ level: "error", code: "unavailable", more: 50, reason: "insert" }]);
    log.error(away("second"), "claim failed");
    jest.advanceTimersByTime(60_000);
    expect(lines().slice(4)).toMatchObject([{ more: 1, reason: expect.stringContaining("second") }]);
    // A minute without any ends it: the next outage has its line at once.
    jest.advanceTimersByTime(60_000);
    log.error(away("third"), "claim failed");
    expect(lines().slice(5)).toMatchObject([{ msg: "claim failed" }]);
  });

  test("are counted for each cell", () => {
    const { log, lines } = setup();
    const [a, b] = [log.child({ cell: "a" }), log.child({ cell: "b" })];
    for (const cell of [a, a, b, a]) cell.error(away("x"), "claim failed");
    jest.advanceTimersByTime(60_000);
    expect(lines().map(({ cell, more }) => [cell, more])).toEqual([
      ["a", undefined],
      ["b", undefined],
      ["a", 2],
    ]);
  });
});

describe("redaction", () => {
  const redact = (text: string) => text.replaceAll("hunter2", "***");

  test("takes secrets out of reasons, errors, messages of causes and stacks", () => {
    const { log, written } = setup({ redact });
    const error = new Error("login failed", { cause: new Error("password hunter2 refused") });
    log.warn({ reason: "answer: hunter2" }, "delivery failed");
    log.error({ error }, "a");
    log.error({ err: "token hunter2" }, "b");
    log.error({ error: "hunter2", stack: "Error: hunter2\n  at x" }, "c");
    log.child({ error: "hunter2" }).info({}, "d");
    expect(written).toHaveLength(5);
    expect(written.join("")).not.toContain("hunter2");
    expect(written.join("")).toContain("password *** refused");
  });

  test("leaves other fields unchanged", () => {
    const { log, lines } = setup({ redact });
    log.info({ destination: "hunter2", count: 1 }, "x");
    expect(lines()[0]).toMatchObject({ destination: "hunter2", count: 1 });
  });
});

describe("flushing", () => {
  test("writes out the output's buffer and survives an output that is gone", () => {
    let flushed = 0;
    setup({
      output: {
        write: () => {},
        flush: () => {
          flushed += 1;
        },
      },
    }).flush();
    expect(flushed).toBe(1);
    const gone = () => {
      throw new Error("EPIPE");
    };
    expect(() => setup({ output: { write: () => {}, flush: gone } }).flush()).not.toThrow();
  });
});

describe("LOG_LEVEL", () => {
  test.each([
    [undefined, "info"],
    ["", "info"],
    ["debug", "debug"],
    ["WARN", "warn"],
    [" fatal ", "fatal"],
  ])("%j means %s", (value, level) => {
    expect(parseLogLevel(value)).toBe(level);
  });

  test("with an unknown value is a configuration error that lists the levels", () => {
    expect(() => parseLogLevel("verbose")).toThrow(ConfigError);
    expect(() => parseLogLevel("verbose")).toThrow(
      'LOG_LEVEL: found "verbose", expected one of trace, debug, info, warn, error, fatal',
    );
  });
});
