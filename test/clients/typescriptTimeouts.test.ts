import { afterEach, describe, expect, jest, test } from "@jest/globals";
import {
  type Claim,
  httpSource,
  type PulledMessage,
  type PullSource,
  type Result,
  worker,
} from "../../clients/typescript/src/index.ts";
import { startBlackHole } from "../support/blackHole.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { within } from "../support/within.ts";

/** The worker and the HTTP source of the client for TypeScript, when an answer does not come. */

afterEach(() => void jest.restoreAllMocks());
failOnLeaks();

const LEASE_MS = 300;
const NEVER = new Promise<never>(() => {});
const MESSAGE: PulledMessage = {
  id: "m-1",
  aggregateId: null,
  eventType: null,
  idempotencyKey: "k-1",
  correlationId: null,
  attempt: 1,
  headers: {},
  json: "{}",
  payload: {},
};

/** One message. `renew` has the number of the renewal, from 1 on. */
class OneMessage implements PullSource<undefined> {
  readonly given: string[] = [];
  renewals = 0;
  #isClaimed = false;
  readonly #waitMs: number;
  readonly #renew: (n: number) => Promise<ReadonlySet<string>>;

  constructor(renew: (n: number) => Promise<ReadonlySet<string>>, waitMs = 0) {
    this.#renew = renew;
    this.#waitMs = waitMs;
  }

  async claim(): Promise<Claim> {
    if (this.#isClaimed) return { token: "", messages: [] };
    this.#isClaimed = true;
    await new Promise((resolve) => setTimeout(resolve, this.#waitMs));
    return { token: "t", messages: [MESSAGE] };
  }
  async renew(): Promise<ReadonlySet<string>> {
    return await this.#renew(++this.renewals);
  }
  async handled(_: Claim, id: string, handle: (tx: undefined) => Promise<void>): Promise<boolean> {
    await handle(undefined);
    this.given.push(`done ${id}`);
    return true;
  }
  async retry(_: Claim, id: string): Promise<"retry"> {
    this.given.push(`retry ${id}`);
    return "retry";
  }
  async release(_: Claim, ids: readonly string[]): Promise<void> {
    this.given.push(`release ${ids.join()}`);
  }
}

/** Runs a worker until its message has ended. */
async function run(source: OneMessage, handler: (signal: AbortSignal) => Promise<void>): Promise<Result> {
  let end: (result: Result) => void = () => {};
  const ended = new Promise<Result>((resolve) => {
    end = resolve;
  });
  const running = worker({
    source,
    leaseMs: LEASE_MS,
    pollMs: 10,
    handler: (_, { signal }) => handler(signal),
    hooks: { ended: (_, result) => end(result) },
  });
  try {
    return await within(20_000, "the message", ended);
  } finally {
    await running.stop();
  }
}

const aborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    signal.addEventListener("abort", () => resolve());
  });

describe("a renewal", () => {
  test("that never answers cancels the handler at the end of the lease", async () => {
    const source = new OneMessage(() => NEVER);
    const startedAt = performance.now();
    let heldMs = 0;
    const result = await run(source, async (signal) => {
      await aborted(signal);
      heldMs = performance.now() - startedAt;
    });
    expect([result, source.given]).toEqual(["lost", []]);
    // A timer may fire a millisecond early.
    expect(heldMs).toBeGreaterThanOrEqual(LEASE_MS - 2);
    expect(source.renewals).toBeGreaterThan(0);
  });

  test("that always fails cancels the handler at the end of the lease, and is logged", async () => {
    const log = jest.spyOn(console, "error").mockImplementation(() => {});
    const failure = new Error("no connection");
    const source = new OneMessage(() => Promise.reject(failure));
    expect(await run(source, aborted)).toBe("lost");
    expect(source.given).toEqual([]);
    expect(log).toHaveBeenCalledWith("a request of the worker failed:", failure);
  });

  test("that never answers does not matter if the next one succeeds", async () => {
    let release = () => {};
    const fifth = new Promise<void>((resolve) => {
      release = resolve;
    });
    const source = new OneMessage(async (n) => {
      if (n === 1) return await NEVER;
      // The lease of the claim is over.
      if (n === 5) release();
      return new Set([MESSAGE.id]);
    });
    expect(await run(source, () => fifth)).toBe("done");
    expect(source.given).toEqual(["done m-1"]);
  });

  test("comes in time after a claim that waited longer than its lease", async () => {
    let release = () => {};
    const second = new Promise<void>((resolve) => {
      release = resolve;
    });
    const renew = async (n: number) => {
      if (n === 2) release();
      return new Set([MESSAGE.id]);
    };
    const source = new OneMessage(renew, LEASE_MS * 1.5);
    expect(await run(source, () => second)).toBe("done");
  });
});

describe("whatever a handler throws", () => {
  test.each([
    ["an error without a text", Object.assign(new Error("x"), { message: undefined })],
    ["a symbol", Symbol("no")],
    ["null", null],
  ])("%s is a failure", async (_, thrown) => {
    const source = new OneMessage(() => NEVER);
    const result = await run(source, async () => {
      throw thrown;
    });
    expect([result, source.given]).toEqual(["retry", ["retry m-1"]]);
  });

  test("what has no text leaves the message to the end of its lease", async () => {
    const log = jest.spyOn(console, "error").mockImplementation(() => {});
    const source = new OneMessage(() => NEVER);
    const thrown: unknown = Object.create(null);
    const result = await run(source, async () => {
      throw thrown;
    });
    expect([result, source.given]).toEqual(["lost", []]);
    expect(log).toHaveBeenCalledTimes(1);
  });
});

describe("a server that never answers", () => {
  /** Lets time run a hundred times as fast. @returns the timeouts of the requests so far, in ms */
  function hasten(): number[] {
    const timeout = AbortSignal.timeout.bind(AbortSignal);
    const found: number[] = [];
    jest.spyOn(AbortSignal, "timeout").mockImplementation((ms) => {
      found.push(ms);
      return timeout(ms / 100);
    });
    return found;
  }

  test("fails each operation after its timeout", async () => {
    await using server = await startBlackHole();
    const timeouts = hasten();
    const source = httpSource({ url: `http://127.0.0.1:${server.port}/pull`, source: "orders", waitMs: 2000 });
    const claim = { token: "t", messages: [MESSAGE] };
    const operations = [
      source.claim(1, LEASE_MS),
      source.renew(claim, ["m-1"], LEASE_MS),
      source.handled(claim, "m-1", async () => {}),
      source.retry(claim, "m-1", 0, "no"),
      source.release(claim, ["m-1"]),
    ].map((operation) => expect(operation).rejects.toMatchObject({ name: "TimeoutError" }));
    await within(20_000, "the operations", Promise.all(operations));
    // `handled` sends nothing before its handler has ended.
    expect(timeouts.toSorted((a, b) => a - b)).toEqual([...Array(4).fill(10_000), 12_000]);
  });

  test("does not keep a worker from its end", async () => {
    await using server = await startBlackHole();
    hasten();
    let fail: (error: unknown) => void = () => {};
    const failed = new Promise<unknown>((resolve) => {
      fail = resolve;
    });
    const running = worker({
      source: httpSource({ url: `http://127.0.0.1:${server.port}/pull`, source: "orders" }),
      handler: async () => {},
      hooks: { failed: fail },
    });
    await server.reached;
    const stopped = running.stop();
    expect(await within(20_000, "the claim", failed)).toMatchObject({ name: "TimeoutError" });
    await within(20_000, "the stop", stopped);
  });
});
