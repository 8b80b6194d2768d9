import { describe, expect, test } from "@jest/globals";
import {
  InterruptedError,
  NoDestinationColumnError,
  Replay,
  type ReplayOptions,
} from "../../../../src/core/operations/replay.ts";
import { NO_FILTER, type ReplayRequest } from "../../../../src/core/operations/replayRequest.ts";
import { deliveryId } from "../../../../src/model/deliveries.ts";
import { StoppingError, StoreError } from "../../../../src/model/errors.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
import type { FinishedRow, ReplayFilter, ReplayScope, ReplayStore } from "../../../../src/ports/finishedRows.ts";
import { sleep } from "../../../../src/time/wait.ts";
import { recordingAudit, recordingLog } from "../../../support/recorders.ts";

const SCOPE: ReplayScope = { finishedUntil: "2026-01-05T08:30:00.000000Z", lastSequence: "0" };
const never = new AbortController().signal;

/** A store over rows in memory that writes down what it is asked. Its filter knows topics only. */
class MemoryReplayStore implements Omit<ReplayStore, "receiveAgain"> {
  destinationRemedy: string | undefined;
  readonly calls: string[] = [];
  readonly filters: ReplayFilter[] = [];
  /** Ids per call of `move`. */
  readonly moves: (readonly MessageId[])[] = [];
  /** Of the same calls. */
  readonly destinations: (string | undefined)[] = [];
  /** Errors of the next calls, one each; undefined lets a call through. */
  readonly failures: (Error | undefined)[] = [];
  /** Answers of `untried`, in turn; then 0. */
  readonly untriedAnswers: number[] = [];
  /** Called before each `move`. */
  onMove = (): void => {};
  readonly #rows: readonly FinishedRow[];

  constructor(rows: readonly FinishedRow[]) {
    this.#rows = rows;
  }

  async begin(): Promise<ReplayScope> {
    this.#called("begin");
    return SCOPE;
  }

  async page(_scope: ReplayScope, filter: ReplayFilter, after: string | null, limit: number) {
    this.#called("page");
    this.filters.push(filter);
    const from = after === null ? 0 : Number(after);
    const next = from + limit;
    return {
      rows: this.#rows.slice(from, next).filter((row) => filter.topics?.includes(row.topic ?? "") ?? true),
      next: next < this.#rows.length ? String(next) : null,
    };
  }

  async find(_scope: ReplayScope, filter: ReplayFilter, ids: readonly MessageId[]) {
    this.#called(`find ${ids.length}`);
    this.filters.push(filter);
    return this.#rows.filter((row) => ids.includes(row.id) && (filter.topics?.includes(row.topic ?? "") ?? true));
  }

  async move(scope: ReplayScope, ids: readonly MessageId[], _by: string, to?: string) {
    this.onMove();
    this.destinations.push(to);
    this.#called("move");
    expect(scope).toBe(SCOPE);
    this.moves.push(ids);
    return { changed: ids.length };
  }

  async add(ids: readonly MessageId[], to: string) {
    this.#called(`add ${to}`);
    this.moves.push(ids);
    return { changed: ids.length };
  }

  async untried(ids: readonly MessageId[]): Promise<number> {
    this.#called(`untried ${ids.length}`);
    return this.untriedAnswers.shift() ?? 0;
  }

  #called(name: string): void {
    this.calls.push(name);
    const failure = this.failures.shift();
    if (failure !== undefined) throw failure;
  }
}

const idOf = (n: number): MessageId => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}` as MessageId;

/** A row whose sequence lies beyond what a JavaScript number holds exactly. */
function finishedRow(n: number, topic = "orders"): FinishedRow {
  const sequence = String(9_007_199_254_740_993n + BigInt(n));
  const createdAt = new Date(n);
  return {
    id: idOf(n),
    sequence,
    topic,
    destination: null,
    isPinned: false,
    key: null,
    state: "dead",
    attempt: 5,
    createdAt,
    lastError: null,
  };
}

const rowsOf = (count: number, topic?: string) => Array.from({ length: count }, (_, n) => finishedRow(n, topic));

function setup(rows: readonly FinishedRow[], overrides: Partial<ReplayOptions> = {}) {
  const store = new MemoryReplayStore(rows);
  const { log, lines } = recordingLog();
  const waits: number[] = [];
  let wakes = 0;
  const replay = new Replay({
    inbox: {} as never,
    store,
    destinationOf: ({ topic, destination }) => destination ?? (topic?.startsWith("orders") ? "billing" : undefined),
    listOf: () => undefined,
    onMoved: () => {
      wakes += 1;
    },
    redact: (text) => text,
    audit: recordingAudit().audit,
    log,
    batchSize: 10,
    wait: async (ms) => {
      waits.push(ms);
    },
    ...overrides,
  });
  return { store, lines, waits, replay, wakes: () => wakes };
}

describe("a replay", () => {
  test("moves page after page in the order of sequence, wakes the pollers after each, and logs count and filter once", async () => {
    const { store, lines, replay, wakes } = setup(rowsOf(25));

    expect(await replay.run({ topic: "orders", createdAfter: "2026-01-05T08:30:00.000000Z" }, "alice", never)).toEqual({
      moved: 25,
    });

    expect(store.moves.flat()).toEqual(rowsOf(25).map((row) => row.id));
    expect(store.moves.map((ids) => ids.length)).toEqual([10, 10, 5]);
    expect(wakes()).toBe(3);
    expect(lines).toEqual([
      {
        level: "info",
        message: "replay",
        fields: { moved: 25, filter: { topic: "orders", createdAfter: "2026-01-05T08:30:00.000000Z" }, by: "alice" },
      },
    ]);
  });

  test("moves nothing for pages on which nothing matches", async () => {
    const { store, replay, wakes } = setup([...rowsOf(25, "other"), finishedRow(30)]);

    expect(await replay.run({ topic: "orders" }, "alice", never)).toEqual({ moved: 1 });

    expect(store.calls).toEqual(["begin", "page", "page", "page", "move"]);
    expect(wakes()).toBe(1);
  });

  test("refuses a request without a filter, and asks nobody", async () => {
    const { store, replay } = setup(rowsOf(1));

    await expect(replay.run({}, "alice", never)).rejects.toThrow(NO_FILTER);
    await expect(replay.run({ topic: undefined }, "alice", never)).rejects.toThrow(NO_FILTER);
    await expect(replay.preview({}, 10, never)).rejects.toThrow(NO_FILTER);

    expect(store.calls).toEqual([]);
  });

  test("hands on state, topics and times to the store", async () => {
    const { store, replay } = setup([]);
    const narrow = {
      state: "dead" as const,
      createdAfter: "2026-01-05T08:30:00.000000Z",
      createdBefore: "2026-01-05T09:30:00.000000Z",
      finishedBefore: "2026-01-05T09:40:00.000000Z",
    };

    await replay.run({ topics: ["a", "b"], ...narrow }, "alice", never);
    await replay.run({ topic: "a" }, "alice", never);
    await replay.run({ topic: "b", topics: ["a", "b", "c"] }, "alice", never);
    await replay.run(narrow, "alice", never);

    expect(store.filters).toEqual([
      { topics: ["a", "b"], ...narrow },
      { topics: ["a"] },
      { topics: ["b"] },
      { topics: undefined, ...narrow },
    ]);
  });

  test.each([
    ["topics that are none", { topics: [] }],
    ["ids that are none", { ids: [] }],
    ["a topic that is not among the topics", { topic: "orders", topics: ["other"] }],
  ])("asks no database for %s", async (_, request) => {
    const { store, lines, replay } = setup(rowsOf(3));

    expect(await replay.run(request, "alice", never)).toEqual({ moved: 0 });
    expect(await replay.preview(request, 10, never)).toMatchObject({ count: 0, sample: [], isExact: true });

    expect(store.calls).toEqual([]);
    expect(lines).toHaveLength(1);
  });

  test("takes the rows whose topic the routes send to the destination", async () => {
    const rows = [finishedRow(0, "orders.a"), finishedRow(1, "other"), finishedRow(2, "orders.b")];

    const all = setup(rows);
    await all.replay.run({ destination: "billing" }, "alice", never);
    expect(all.store.moves).toEqual([[idOf(0), idOf(2)]]);

    const both = setup(rows);
    await both.replay.run({ destination: "billing", topics: ["orders.b", "other"] }, "alice", never);
    expect(both.store.moves).toEqual([[idOf(2)]]);

    const named = setup(rows);
    await named.replay.run({ destination: "billing", ids: [idOf(1), idOf(2)] }, "alice", never);
    expect(named.store.moves).toEqual([[idOf(2)]]);

    const unknown = setup(rows);
    expect(await unknown.replay.run({ destination: "nobody" }, "alice", never)).toEqual({ moved: 0 });
  });

  test("takes the rows that an earlier replay sent to the destination, and not the rows that it sent elsewhere", async () => {
    const { store, replay } = setup([
      { ...finishedRow(0, "other"), destination: "billing", isPinned: true },
      { ...finishedRow(1, "orders.a"), destination: "shop", isPinned: true },
    ]);
    await replay.run({ destination: "billing" }, "alice", never);
    expect(store.moves).toEqual([[idOf(0)]]);
  });

  const failed = (n: number, topic: string, lastError: string | null): FinishedRow => ({
    ...finishedRow(n, topic),
    lastError,
  });

  test("takes the dead rows of a reason's group, and those without a destination", async () => {
    const { store, lines, replay } = setup([
      failed(1, "orders", "answered 404: no customer 17"),
      failed(2, "orders", "answered 404: no customer cus_9s6X"),
      failed(3, "orders", "answered 503: no customer 17"),
      failed(4, "other", "answered 404: no customer 18"),
      // Of an attempt before it was sent.
      { ...failed(5, "orders", "answered 404: no customer 17"), state: "sent" },
      failed(6, "orders", null),
    ]);
    const reason = "answered 404: no customer 4711";
    expect(await replay.preview({ reason }, 0, never)).toMatchObject({ count: 3 });
    expect(await replay.run({ reason, destination: "billing" }, "alice", never)).toEqual({ moved: 2 });
    expect(await replay.run({ reason, destination: null }, "alice", never)).toEqual({ moved: 1 });
    expect(store.moves).toEqual([[idOf(1), idOf(2)], [idOf(4)]]);
    await replay.preview({ reason, state: "sent" }, 0, never);
    expect(store.filters.map(({ state }) => state)).toEqual(["dead", "dead", "dead", "sent"]);
    const filter = { reason: "answered 404: no customer #", destination: null };
    expect(lines[1]?.fields).toMatchObject({ moved: 1, filter });
    await expect(replay.run({ destination: null }, "alice", never)).rejects.toThrow(NO_FILTER);
  });

  test("counts them by reason, topic and destination, as the filter takes them", async () => {
    const token = "s3cr3t";
    const redact = (text: string) => text.replaceAll(token, "***");
    const { replay } = setup(
      [
        failed(1, "other", `answered 401: ${token}`),
        ...rowsOf(30).map((row, n) => ({ ...row, lastError: `answered 503: case ${n}` })),
        { ...failed(31, "orders", "answered 503: case 2"), state: "sent" },
      ],
      { redact },
    );
    const { groups } = await replay.preview({ topics: ["orders", "other"] }, 0, never);
    expect(groups).toEqual([
      { reason: "answered 503: case #", topic: "orders", destination: "billing", count: 30 },
      { reason: "answered 401: ***", topic: "other", destination: null, count: 1 },
      { reason: null, topic: "orders", destination: "billing", count: 1 },
    ]);
    for (const { reason, topic, destination, count } of groups.slice(0, 2)) {
      expect(await replay.preview({ reason: reason ?? "", topic: topic ?? "", destination }, 0, never)).toMatchObject({
        count,
      });
    }
  });

  test("moves rows to another destination, which alone is no filter, and only if the outbox has the column", async () => {
    const { store, replay, lines } = setup(rowsOf(2));
    await expect(replay.run({ toDestination: "shop" }, "alice", never)).rejects.toThrow(NO_FILTER);
    await replay.run({ topic: "orders", toDestination: "shop" }, "alice", never);
    expect(store.destinations).toEqual(["shop"]);
    expect(lines.at(-1)?.fields).toMatchObject({ filter: { topic: "orders", toDestination: "shop" } });

    store.destinationRemedy = "ALTER TABLE o ADD c;";
    const refused = replay.run({ topic: "orders", toDestination: "shop" }, "alice", never);
    await expect(refused).rejects.toThrow(/svc migrate.*\n *ALTER TABLE o ADD c;$/);
    await expect(refused).rejects.toBeInstanceOf(NoDestinationColumnError);
    await replay.run({ topic: "orders" }, "alice", never);
    expect(store.destinations).toEqual(["shop", undefined]);
  });

  test("looks named rows up in slices, each once, and moves them in the order of sequence over all slices", async () => {
    const { store, lines, replay } = setup(rowsOf(30));
    const ids = [...rowsOf(25).map((row) => row.id), idOf(99)].toReversed();

    expect(await replay.run({ ids: [...ids, ...ids] }, "alice", never)).toEqual({ moved: 25 });

    expect(store.calls.slice(0, 5)).toEqual(["begin", "find 10", "find 10", "find 6", "move"]);
    expect(store.moves.flat()).toEqual(rowsOf(25).map((row) => row.id));
    expect(lines[0]?.fields).toEqual({ moved: 25, filter: { ids: 52 }, by: "alice" });
  });

  test("moves no more rows a second than asked for, and tells its progress", async () => {
    const { store, waits, replay } = setup(rowsOf(10));
    const progress: number[] = [];
    const pace = { perSecond: 8, onProgress: (moved: number) => void progress.push(moved) };
    expect(await replay.run({ topic: "orders" }, "alice", never, pace)).toEqual({ moved: 10 });
    expect(store.moves.map(({ length }) => length)).toEqual([2, 2, 2, 2, 2]);
    expect(waits).toEqual(Array(5).fill(250));
    expect(progress).toEqual([0, 2, 4, 6, 8, 10]);
  });
});

describe("a replay and the pollers", () => {
  const sum = (waits: readonly number[]) => waits.reduce((total, ms) => total + ms, 0);

  test("it continues when all of the last batch has been tried, looking less and less often", async () => {
    const { store, waits, replay } = setup(rowsOf(20));
    store.untriedAnswers.push(10, 9, 5, 0);

    await replay.run({ topic: "orders" }, "alice", never);

    const looks = Array.from({ length: 4 }, () => "untried 10");
    expect(store.calls).toEqual(["begin", "page", "move", "page", ...looks, "move"]);
    expect(waits.map(Math.round)).toEqual([50, 60, 72, 86]);
  });

  test("it gathers small batches before it looks", async () => {
    const rows = rowsOf(60).map((row, n) => (n % 5 === 0 ? row : { ...row, topic: "other" }));
    const { store, replay } = setup(rows);

    await replay.run({ topic: "orders" }, "alice", never);

    expect(store.moves.map((ids) => ids.length)).toEqual([2, 2, 2, 2, 2, 2]);
    expect(store.calls.filter((call) => call.startsWith("untried"))).toEqual(["untried 10"]);
  });

  test("it waits as long as it takes while something is delivered", async () => {
    const { store, waits, replay } = setup(rowsOf(20));
    for (let left = 9; left >= 0; left -= 1) store.untriedAnswers.push(left, left);

    await replay.run({ topic: "orders" }, "alice", never);

    expect(store.calls.filter((call) => call.startsWith("untried"))).toHaveLength(19);
    expect(sum(waits)).toBeGreaterThan(4000);
  });

  test.each([
    ["the rest waits behind rows in backoff", 5],
    ["there is no poller", 10],
  ])("it continues after two seconds without progress: %s", async (_why, untried) => {
    const { store, waits, replay } = setup(rowsOf(30));
    store.untried = async () => untried;

    expect(await replay.run({ topic: "orders" }, "alice", never)).toEqual({ moved: 30 });

    expect(sum(waits)).toBeGreaterThanOrEqual(2 * 2000);
    expect(sum(waits)).toBeLessThan(2 * 2600);
  });
});

describe("a replay that is interrupted", () => {
  test("stops between two batches, and tells what was moved and why it ended", async () => {
    const stopping = new AbortController();
    const { store, lines, replay } = setup(rowsOf(30));
    store.onMove = () => {
      if (store.moves.length === 1) stopping.abort(new StoppingError());
    };

    const failure = await replay.run({ topic: "orders" }, "alice", stopping.signal).catch((error: unknown) => error);

    expect(failure).toBeInstanceOf(InterruptedError);
    const finishedBefore = SCOPE.finishedUntil;
    expect(failure).toMatchObject({ done: { moved: 20 }, cause: stopping.signal.reason, finishedBefore });
    expect(store.moves).toHaveLength(2);
    expect(lines).toEqual([
      {
        level: "warn",
        message: "replay ended early",
        fields: {
          moved: 20,
          filter: { topic: "orders" },
          by: "alice",
          finishedBefore,
          reason: "the service is stopping",
        },
      },
    ]);
  });

  const EARLIER = "2026-01-05T08:29:59.000000Z";
  test.each<[string, Partial<ReplayRequest>, boolean, string | undefined]>([
    ["has the time of its start", {}, true, SCOPE.finishedUntil],
    ["keeps the start of the first", { finishedBefore: EARLIER }, true, EARLIER],
    [
      "began before the time it was given",
      { finishedBefore: "2026-01-05T08:30:01.000000Z" },
      true,
      SCOPE.finishedUntil,
    ],
    ["has no time if it did not begin", {}, false, undefined],
    ["keeps the start of the first if it did not begin", { finishedBefore: EARLIER }, false, EARLIER],
    ["has no time if it adds deliveries, which are added once", { add: "shop" }, true, undefined],
  ])("before a row is moved %s", async (_what, fields, isBegun, finishedBefore) => {
    const gone = new StoreError("unavailable", "gone");
    const { store, replay } = setup(rowsOf(3));
    if (isBegun) store.failures.push(undefined);
    store.failures.push(...Array(6).fill(gone));

    const failure = await replay.run({ topic: "orders", ...fields }, "alice", never).catch((error: unknown) => error);

    expect(failure).toMatchObject({ done: { moved: 0 }, cause: gone });
    expect((failure as InterruptedError).finishedBefore).toBe(finishedBefore);
    expect(String(failure)).toContain("after 0 rows were moved; those of the last batch may be moved too");
  });

  test("does not begin when it was aborted before", async () => {
    const { store, replay } = setup(rowsOf(3));

    await expect(
      replay.run({ topic: "orders" }, "alice", AbortSignal.abort(new StoppingError())),
    ).rejects.toMatchObject({
      done: { moved: 0 },
      cause: expect.any(StoppingError),
    });

    expect(store.calls).toEqual([]);
  });

  test.each(["wait for a database that is gone", "wait for the pollers"])("ends a %s at once", async (what) => {
    const stopping = new AbortController();
    const reason = new StoppingError();
    const wait = async () => stopping.abort(reason);
    const { store, replay } = setup(rowsOf(30), { wait });
    if (what.includes("database")) store.failures.push(undefined, undefined, new StoreError("unavailable", "gone"));
    else store.untriedAnswers.push(10);

    await expect(replay.run({ topic: "orders" }, "alice", stopping.signal)).rejects.toMatchObject({
      done: { moved: what.includes("database") ? 0 : 10 },
      cause: reason,
    });
  });

  test("waits by the clock of the service, and an abort ends that wait", async () => {
    const stopping = new AbortController();
    const { store, replay } = setup(rowsOf(3), { wait: sleep });
    store.failures.push(new StoreError("unavailable", "gone"));

    const run = replay.run({ topic: "orders" }, "alice", stopping.signal);
    const reason = new StoppingError();
    stopping.abort(reason);

    await expect(run).rejects.toMatchObject({ done: { moved: 0 }, cause: reason });
    expect(store.calls).toEqual(["begin"]);
  });
});

describe("a replay whose database fails", () => {
  const unavailable = new StoreError("unavailable", "replay.move: connection lost");
  const contention = new StoreError("contention", "replay.move: deadlock");

  test("tries the batch again after growing waits", async () => {
    const { store, waits, replay, lines } = setup(rowsOf(5));
    store.failures.push(undefined, undefined, unavailable, contention, unavailable);

    expect(await replay.run({ topic: "orders" }, "alice", never)).toEqual({ moved: 5 });

    expect(store.calls).toEqual(["begin", "page", "move", "move", "move", "move"]);
    expect(waits).toEqual([200, 400, 800]);
    expect(lines.map((line) => line.message)).toEqual(["replay"]);
  });

  test("gives up in the end, and tells what was moved", async () => {
    const { store, replay, lines } = setup(rowsOf(20));
    store.failures.push(...[undefined, undefined, undefined, undefined, undefined], ...Array(6).fill(unavailable));

    const failure = await replay.run({ topic: "orders" }, "alice", never).catch((error: unknown) => error);

    expect(failure).toMatchObject({ name: "InterruptedError", done: { moved: 10 }, cause: unavailable });
    expect(String(failure)).toContain(
      "ended early, after 10 rows were moved; those of the last batch may be moved too",
    );
    expect(store.calls.filter((call) => call === "move")).toHaveLength(7);
    expect(lines).toEqual([
      expect.objectContaining({
        level: "warn",
        fields: expect.objectContaining({ moved: 10, reason: `unavailable ${unavailable.message}` }),
      }),
    ]);
  });

  test("does not try again what fails again", async () => {
    const schema = new StoreError("schema", "replay.page: the column topic does not exist");
    const { store, waits, replay } = setup(rowsOf(5));
    store.failures.push(undefined, schema);

    await expect(replay.run({ topic: "orders" }, "alice", never)).rejects.toMatchObject({
      done: { moved: 0 },
      cause: schema,
    });

    expect(waits).toEqual([]);
  });
});

test("an addition is paced by its deliveries, and counts these", async () => {
  const asked: (readonly MessageId[])[] = [];
  const { store, replay, wakes } = setup(rowsOf(15), { listOf: () => ["billing", "fraud"] });
  store.untried = async (ids) => {
    asked.push(ids);
    return 0;
  };

  expect(await replay.run({ topic: "orders", add: "fraud" }, "alice", never)).toEqual({ moved: 15 });

  expect(store.calls).toEqual(["begin", "page", "add fraud", "page", "add fraud"]);
  expect(store.filters[0]).toMatchObject({ add: "fraud", topics: ["orders"] });
  expect(asked).toEqual([rowsOf(10).map(({ id }) => deliveryId(id, "fraud"))]);
  expect(wakes()).toBe(2);
});

describe("a preview", () => {
  test("counts every row that matches, shows the first ones, and changes and logs nothing", async () => {
    const rows = rowsOf(40).map((row, n) => (n % 2 === 0 ? row : { ...row, topic: "other" }));
    const { store, lines, replay } = setup(rows);

    const { count, sample } = await replay.preview({ topic: "orders" }, 7, never);

    expect(count).toBe(20);
    expect(sample).toEqual(rows.filter((row) => row.topic === "orders").slice(0, 7));
    expect(store.calls).toEqual(["begin", "page", "page", "page", "page"]);
    expect(lines).toEqual([]);
  });

  test("ends with the signal's reason", async () => {
    const { replay } = setup(rowsOf(3));
    const reason = new StoppingError();

    await expect(replay.preview({ topic: "orders" }, 7, AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});
