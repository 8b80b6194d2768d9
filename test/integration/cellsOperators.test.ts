import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { severalCells } from "../../src/adapters/stores/cells/index.ts";
import { InboxReplay } from "../../src/core/finished/inboxReplay.ts";
import { Parked } from "../../src/core/finished/parked.ts";
import { Replay } from "../../src/core/finished/replay.ts";
import { ReplayJobs } from "../../src/core/finished/replayJobs.ts";
import { httpPlan } from "../../src/core/receipt/attributes.ts";
import { tail } from "../../src/core/trace/tail.ts";
import { Trace } from "../../src/core/trace/trace.ts";
import { StoreError } from "../../src/model/errors.ts";
import type { MessageId } from "../../src/model/rows.ts";
import type { LeftRow } from "../../src/ports/finishedRows.ts";
import type { MessagePage } from "../../src/ports/messageStore.ts";
import type { OperatorStore } from "../../src/ports/operatorStore.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, failed, inboxRow, parked, relayRequest } from "../conformance/store/harness.ts";
import { cellsOf, composed, twoCells } from "../support/cells.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type PostgresHarness, postgresHarnesses } from "../support/postgresHarness.ts";
import { recordingAudit, recordingMetrics, silentLog } from "../support/recorders.ts";

failOnLeaks();

const withCells = twoCells(postgresHarnesses());
const ALICE = "alice";
const NEVER = new AbortController().signal;
const idsOf = (rows: readonly { readonly id: MessageId }[]): readonly MessageId[] => rows.map(({ id }) => id);

/** Every row of pages of a few rows, one page after the other. */
async function everyRow(read: (before: string | null) => Promise<MessagePage>) {
  const rows = [];
  for (let before: string | null = null, pages = 0; pages < 100; pages += 1) {
    const page: MessagePage = await read(before);
    rows.push(...page.rows);
    before = page.next;
    if (before === null) return rows;
  }
  throw new Error("the pages do not end");
}

/** Parks every row of an outbox. */
async function parkAll({ store }: PostgresHarness): Promise<void> {
  const { rows } = await store.outbox.claim(claimRequest());
  await store.outbox.settle(rows.map(parked));
}

describe("messages of two cells", () => {
  test("are listed once each, newest first, from wherever a page ended", async () => {
    await withCells(async ({ a, b, store }) => {
      const ages = { a: [10, 20, 21, 50, 60, 80], b: [15, 20, 30, 31, 32, 33, 34, 90] };
      for (const [harness, secondsAgo] of [
        [a, ages.a],
        [b, ages.b],
      ] as const) {
        for (const age of secondsAgo.toReversed()) {
          const made = await harness.insertOutbox([{ topic: `${age}` }]);
          await harness.finishOutbox(made, { state: "sent", createdMsAgo: age * 1000 });
        }
      }
      for (const limit of [1, 3, 100]) {
        const rows = await everyRow((before) => store.messages.outboxPage({}, before, limit));
        const shown = rows.map(({ topic }) => Number(topic));
        expect(shown).toEqual([...ages.a, ...ages.b].toSorted((x, y) => x - y));
        expect(rows.map(({ cell }) => cell).filter((cell) => cell === "b")).toHaveLength(ages.b.length);
      }
      // A page that ends with any row goes on behind it.
      const [whole] = [await store.messages.outboxPage({}, null, 100)];
      for (const [n, { position }] of whole.rows.entries()) {
        const rest = await everyRow((before) => store.messages.outboxPage({}, before ?? position, 4));
        expect(idsOf(rest)).toEqual(idsOf(whole.rows.slice(n + 1)));
      }
    });
  });

  test("have one inbox row where a copy of it was moved, and the cell of the outbox row", async () => {
    await withCells(async ({ a, b, store }) => {
      const received = Array.from({ length: 9 }, () => inboxRow());
      await a.store.inbox.insert(received.slice(0, 7));
      await a.store.inbox.relay(relayRequest());
      await b.store.inbox.insert(received.slice(5));
      await b.finishInbox(idsOf(received.slice(5, 7)), { state: "processed" });
      // A copy has the time of its original, to the microsecond; the others have times of the same millisecond.
      for (const [n, { id }] of received.entries()) {
        const at = `2025-01-31T12:00:00.${n % 2 === 0 ? "5" : "6"}${String((n * 37) % 100).padStart(5, "0")}Z`;
        for (const { database } of [a, b])
          await database.query("UPDATE inbox SET created_at = $2 WHERE id = $1", [id, at]);
      }
      for (const limit of [1, 2, 100]) {
        const search = { pullSources: [] };
        const rows = await everyRow((before) => store.messages.inboxPage(search, before, limit));
        expect(idsOf(rows).toSorted()).toEqual(idsOf(received).toSorted());
      }
      const [, , , , , moved] = received;
      const shown = await store.messages.get(moved?.id as MessageId, true);
      expect(shown).toMatchObject({
        cell: "a",
        outbox: { id: moved?.id },
        inbox: { id: moved?.id, payload: moved?.payload },
      });
      const fresh = await store.messages.get(received[8]?.id as MessageId, false);
      expect(fresh).toMatchObject({ cell: "b", outbox: undefined, inbox: { id: received[8]?.id } });
      expect(await store.messages.get(randomUUID() as MessageId, false)).toMatchObject({
        inbox: undefined,
        outbox: undefined,
      });
      expect(await store.messages.byIdempotencyKey(["orders"], moved?.idempotencyKey ?? "")).toEqual([moved?.id]);
    });
  });

  test("are found and traced by the core as those of one database", async () => {
    await withCells(async ({ a, b, store }) => {
      const [first, second] = [inboxRow({ correlationId: "c-1" }), inboxRow({ correlationId: "c-1" })];
      await a.store.inbox.insert([first]);
      await a.store.inbox.relay(relayRequest());
      await b.store.inbox.insert([second]);
      await b.store.inbox.relay(relayRequest());
      const trace = new Trace({
        store,
        settings: {
          destinationOf: ({ topic }) => topic ?? undefined,
          destinations: {},
          sources: { orders: {} },
          isRelayEnabled: true,
        },
        hiddenPaths: [],
        secrets: { mask: (text) => text },
        pullSources: [],
        clock: systemClock,
      });
      const { messages, cursor } = await trace.list({ correlationId: "c-1" }, undefined, 1);
      const rest = await trace.list({ correlationId: "c-1" }, cursor ?? undefined, 10);
      expect([...messages, ...rest.messages].map(({ id, cell }) => [id, cell]).toSorted()).toEqual(
        [
          [first.id, "a"],
          [second.id, "b"],
        ].toSorted(),
      );
      expect((await trace.timeline(second.id))?.timeline).toMatchObject({ id: second.id, cell: "b", state: "pending" });
      expect((await trace.meant("c-1")).ids).toHaveLength(2);
    });
  });
});

const tools = { audit: recordingAudit().audit, log: silentLog, redact: (text: string) => text };

describe("parked rows of two cells", () => {
  test("are walked cell by cell, and changed where they are", async () => {
    await withCells(async ({ a, b, store }) => {
      const topics = (harness: PostgresHarness) =>
        harness.insertOutbox(Array.from({ length: 5 }, (_, n) => ({ topic: n % 2 ? "odd" : "even" })));
      const [inA, inB] = [await topics(a), await topics(b)];
      await parkAll(a);
      await parkAll(b);
      const rows = new Parked({
        ...tools,
        store: store.parked,
        replay: store.replay,
        onFreed: () => {},
        batchSize: 2,
        now: () => 0,
        wait: async () => {},
      });
      expect(idsOf(await rows.list({}, 100))).toEqual([...inA, ...inB]);
      expect((await rows.list({}, 7)).map(({ cell }) => cell)).toEqual([..."aaaaabb"]);
      expect(await rows.retry({ topic: "odd" }, ALICE, NEVER)).toEqual({ changed: 4 });
      expect(await rows.discard({ ids: [inA[0], inB[2]] as readonly MessageId[] }, ALICE, "gone", NEVER)).toEqual({
        changed: 2,
      });
      const states = async (harness: PostgresHarness) =>
        (await harness.outboxRows()).map(({ state, attempt }) => `${state} ${attempt}`);
      expect(await states(a)).toEqual(["dead 1", "pending 0", "pending 1", "pending 0", "pending 1"]);
      expect(await states(b)).toEqual(["pending 1", "pending 0", "dead 1", "pending 0", "pending 1"]);
      // Rows that nobody has listed are looked up.
      const anew = composed([a, b]);
      expect(await anew.parked.discardPending([inA[2], inB[0]] as readonly MessageId[], ALICE, "gone")).toBe(2);
    });
  });
});

function replaysOver(store: OperatorStore) {
  const replay = new Replay({
    inbox: {} as never,
    ...tools,
    store: store.replay,
    destinationOf: () => "orders",
    onMoved: () => {},
    batchSize: 2,
    wait: async () => {},
  });
  const jobs = new ReplayJobs({
    ...tools,
    store: store.jobs,
    replay,
    newId: randomUUID,
    now: () => systemClock.monotonic(),
  });
  return { replay, jobs };
}

describe("a replay of the inbox over two cells", () => {
  test("moves a row once if a copy of it was moved, in one cell, and finds the rows of both", async () => {
    await withCells(async ({ a, b, store }) => {
      const received = Array.from({ length: 5 }, () => inboxRow({ state: "dead", lastError: "no JSON" }));
      await a.store.inbox.insert(received.slice(0, 3));
      await b.store.inbox.insert(received.slice(2));
      const inbox = new InboxReplay({
        messages: store.messages,
        store: store.replay,
        sources: [
          {
            source: "orders",
            settings: { consumption: "push" },
            attributes: httpPlan({ idempotencyKeyPath: "$.n" }),
            clock: systemClock,
            metrics: recordingMetrics().metrics,
            log: silentLog,
          },
        ],
        redact: (text) => text,
      });
      const run = async (createdBefore?: string) => {
        let count = 0;
        const rows: LeftRow[] = [];
        for await (const { moved, left } of inbox.moves({ source: "orders", createdBefore }, (work) => work())) {
          count += moved;
          rows.push(...left);
        }
        return [count, rows];
      };
      expect(await run("2000-01-01T00:00:00.000000Z")).toEqual([0, []]);
      expect(await run("9999-01-01T00:00:00.000000Z")).toEqual([5, []]);
      await a.store.inbox.relay(relayRequest());
      await b.store.inbox.relay(relayRequest());
      expect(await run()).toEqual([0, [{ id: received[2]?.id, reason: "it is no longer dead" }]]);
      expect(idsOf(await a.outboxRows())).toEqual(idsOf(received.slice(0, 3)));
      expect(idsOf(await b.outboxRows())).toEqual(idsOf(received.slice(3)));
    });
  });
});

describe("a replay over two cells", () => {
  test("moves the rows of both, each in the order of its cell, and goes on from any position", async () => {
    await withCells(async ({ a, b, store }) => {
      const made = [
        await a.insertOutbox(Array(5).fill({ key: "k" })),
        await b.insertOutbox(Array(5).fill({ key: "k" })),
      ] as const;
      await a.finishOutbox(made[0], { state: "dead", finishedMsAgo: 1000 });
      await b.finishOutbox(made[1], { state: "dead", finishedMsAgo: 1000 });
      const scope = await store.replay.begin();
      const first = await store.replay.page(scope, {}, null, 7);
      const rest = await store.replay.page(scope, {}, first.next, 7);
      expect([first.rows.length, rest.rows.length, rest.next]).toEqual([7, 3, null]);
      expect(idsOf([...first.rows, ...rest.rows])).toEqual(made.flat());
      const { replay, jobs } = replaysOver(store);
      const held = await jobs.start({ state: "dead" }, ALICE, null, NEVER);
      expect(await jobs.get(held.id)).toMatchObject({ total: 10, filter: { state: "dead" }, cell: "a" });
      const interrupted = new AbortController();
      await jobs.execute(held, interrupted.signal, (moved) => moved >= 6 && interrupted.abort());
      expect(await jobs.get(held.id)).toMatchObject({ state: "interrupted", moved: 6 });
      expect((await b.outboxRows()).map(({ state }) => state)).toEqual(["pending", "dead", "dead", "dead", "dead"]);

      // Its scope names the cells: their order in the configuration may change, and any process goes on.
      const other = severalCells(cellsOf([a.store, b.store]).toReversed(), systemClock, silentLog);
      const { jobs: anywhere } = replaysOver(other);
      const again = await anywhere.resume(held.id, ALICE);
      expect(await anywhere.execute(again ?? held, NEVER)).toMatchObject({ state: "done", moved: 10 });
      expect((await store.jobs.list(10)).map(({ id, cell }) => [id, cell])).toEqual([[held.id, "a"]]);
      expect(await a.store.jobs.list(10)).toHaveLength(1);
      expect(await b.store.jobs.list(10)).toEqual([]);

      await a.finishOutbox(made[0], { state: "sent" });
      await b.finishOutbox(made[1], { state: "sent" });
      const named = [...made[1].slice(1, 4), ...made[0].slice(3)];
      const { sample } = await replay.preview({ ids: named }, 10, NEVER);
      expect(idsOf(sample)).toEqual([...made[0].slice(3), ...made[1].slice(1, 4)]);
      expect(await replay.run({ ids: named }, ALICE, NEVER)).toEqual({ moved: 5 });
    });
  });
});

test("rows are changed where they are, while the tables of another cell are locked, and errors name that one", async () => {
  await withCells(async ({ a, b }) => {
    const [id] = await a.insertOutbox([{ topic: "orders" }]);
    await parkAll(a);
    const locked = () => Promise.reject(new StoreError("contention", "canceling statement due to lock timeout"));
    const messages = { ...b.store.messages, inOutbox: locked, outboxPage: locked };
    const store = composed([a, { ...b, store: { ...b.store, messages } }]);
    await expect(store.messages.outboxPage({}, null, 10)).rejects.toMatchObject({
      message: "the operation failed in the cell b",
      cells: ["b"],
    });
    await expect(store.parked.retry([randomUUID() as MessageId], ALICE)).rejects.toThrow(
      "the operation failed in the cell b; 0 rows were changed in the other cells",
    );
    expect(await store.parked.retry([id as MessageId], ALICE)).toBe(1);
  });
});

test("a replay job whose cell does not answer its start is in no other cell", async () => {
  await withCells(async ({ a, b }) => {
    const scope = await a.store.replay.begin();
    const job = { id: randomUUID(), by: ALICE, filter: "{}", perSecond: null, total: null, scope };
    const add = async (...values: Parameters<typeof a.store.jobs.add>) => {
      await a.store.jobs.add(...values);
      throw new StoreError("unavailable", "jobs.add: the connection broke");
    };
    const store = composed([{ ...a, store: { ...a.store, jobs: { ...a.store.jobs, add } } }, b]);
    await expect(store.jobs.add(job, randomUUID())).rejects.toMatchObject({ code: "unavailable" });
    expect((await store.jobs.list(10)).map(({ id, cell }) => [id, cell])).toEqual([[job.id, "a"]]);
    expect(await store.jobs.cancel(job.id)).toBe(true);
  });
});

describe("what operators see of two cells", () => {
  const beat = (roles: readonly string[]) => ({ name: "host-1", version: "1", roles, upMs: 0 });
  const counts = { received: 0, duplicate: 0, filtered: 0, sent: 2, failed: 0, dead: 1 };
  const figures = { kind: "destination", name: "orders", minutesAgo: 0, ...counts } as const;

  test("is one installation: processes once, figures and backlogs added", async () => {
    await withCells(async ({ a, b, store }) => {
      await a.store.operations.beat(beat(["poller"]), [figures]);
      await b.store.operations.beat(beat(["poller", "relay"]), [figures, { ...figures, name: "bills" }]);
      expect(await store.operations.processes()).toMatchObject([{ name: "host-1", roles: ["poller", "relay"] }]);
      const shown = (await store.operations.figures(5)).filter(({ name }) => name === "orders");
      expect(shown.reduce((sum, { sent }) => sum + sent, 0)).toBe(4);
      await a.insertOutbox([
        { topic: "orders", key: "k", dueInMs: -50_000 },
        { topic: "bills", key: "l" },
      ]);
      await b.insertOutbox([{ topic: "orders", key: "k" }, { topic: "orders" }]);
      await a.database.query(
        "UPDATE outbox SET created_at = scheduled_at WHERE scheduled_at < now() - interval '40 s'",
      );
      const { byDestination, oldestPendingAgeMs, ...sums } = await store.outbox.backlog();
      expect(sums).toEqual({ pending: 4, blockedKeys: 0, parked: 0 });
      expect(oldestPendingAgeMs).toBeGreaterThanOrEqual(50_000);
      expect(byDestination.get("orders")).toMatchObject({ pending: 3 });
      await parkAll(a);
      await parkAll(b);
      const blocked = await store.operations.blockedKeys(10, 10);
      expect(blocked.map(({ key, cell }) => `${key} ${cell}`).toSorted()).toEqual(["k a", "k b", "l a"]);
      await a.store.inbox.insert([inboxRow()]);
      await b.store.inbox.insert([inboxRow(), inboxRow({ source: "bills" })]);
      const backlog = await store.operations.inboxBacklog([], 100);
      expect(new Map(backlog.map(({ source, pending }) => [source, pending]))).toEqual(
        new Map([
          ["orders", 2],
          ["bills", 1],
        ]),
      );
      expect((await store.operations.deadRows(10)).length).toBe(0);
    });
  });

  test("has the key first whose retry is due next, and parked ones last", async () => {
    await withCells(async ({ a, b, store }) => {
      const fail = async (harness: PostgresHarness, key: string, dueInMs: number | undefined) => {
        await harness.insertOutbox([{ key }]);
        const { rows } = await harness.store.outbox.claim(claimRequest());
        await harness.store.outbox.settle(
          rows.map((row) => (dueInMs === undefined ? parked(row) : failed(row, dueInMs))),
        );
      };
      await fail(a, "third", 60_000);
      await fail(b, "second", 50_000);
      await fail(a, "parked", undefined);
      await fail(a, "first", 40_000);
      await fail(b, "fourth", 70_000);
      const keys = (await store.operations.blockedKeys(10, 10)).map(({ key, cell }) => `${key} ${cell}`);
      expect(keys).toEqual(["first a", "second b", "third a", "fourth b", "parked a"]);
      expect((await store.operations.blockedKeys(2, 10)).map(({ key }) => key)).toEqual(["first", "second"]);
    });
  });

  test("is one audit log, page by page", async () => {
    await withCells(async ({ a, b, store }) => {
      const entry = (target: string) => ({ actor: ALICE, action: "pause", target, detail: null });
      for (const [harness, target] of [
        [a, "1"],
        [b, "2"],
        [a, "3"],
        [b, "4"],
        [b, "5"],
      ] as const) {
        await harness.store.operations.addAudit(entry(target));
      }
      await store.operations.addAudit(entry("6"));
      expect(await a.store.operations.audit(null, 1)).toMatchObject([{ target: "6" }]);
      // Written within a millisecond, they would be in no order.
      for (const { database } of [a, b]) {
        await database.query(
          "UPDATE outbox_audit SET at = timestamptz '2025-01-31Z' + target::int * interval '1 second'",
        );
      }
      const seen: (string | null)[] = [];
      const ids = new Set<string>();
      for (let before: string | null = null, pages = 0; pages < 10; pages += 1) {
        const entries = await store.operations.audit(before, 2);
        seen.push(...entries.map(({ target }) => target));
        for (const { id } of entries) ids.add(id);
        if (entries.length < 2) break;
        before = entries.at(-1)?.position ?? null;
      }
      expect(seen).toEqual(["6", "5", "4", "3", "2", "1"]);
      expect(ids.size).toBe(6);
    });
  });

  test("is what happens in both, as it happens", async () => {
    await withCells(async ({ a, b, store }) => {
      const [first] = await a.insertOutbox([{}]);
      const [second] = await b.insertOutbox([{}]);
      await parkAll(a);
      await parkAll(b);
      await store.parked.retry([first as MessageId], ALICE);
      const ended = new AbortController();
      const seen: string[] = [];
      const following = tail(10, {
        histories: store.cells.histories.map(({ history }) => history),
        pause: async () => true,
        onAway: () => {},
        signal: ended.signal,
      });
      for await (const { id, event, cell } of following) {
        seen.push(`${id} ${event} ${cell}`);
        // The sequences of the second cell are as low as those of the first.
        if (seen.length === 1) await store.parked.retry([second as MessageId], ALICE);
        else ended.abort();
      }
      expect(seen).toEqual([`${first} retried a`, `${second} retried b`]);
      const history = await store.history.of(second as MessageId, 10);
      expect(history.map(({ event, cell }) => `${event} ${cell}`)).toEqual(["retried b"]);
      const since = async (after: string | null, limit: number) => await store.history.since(after, limit);
      const [entry, next] = await since("0", 10);
      expect([entry?.id, next?.id]).toEqual([first, second]);
      expect((await since(entry?.sequence ?? null, 10)).map(({ id }) => id)).toEqual([second]);
      expect((await since(null, 1)).map(({ id }) => id)).toEqual([second]);
    });
  });
});

describe("destinations of two cells", () => {
  const pause = { by: ALICE, reason: "they migrate", forMs: undefined };

  test("are paused and resumed in both, and show the worst of both", async () => {
    await withCells(async ({ a, b, store }) => {
      await b.store.destinations.pause("billing", { ...pause, reason: "earlier" });
      await a.store.destinations.pause("billing", { ...pause, reason: "later" });
      await a.store.destinations.pause("shop", pause);
      await a.store.destinations.resume("shop");
      await b.store.destinations.pause("shop", pause);
      await store.destinations.pause("audit", pause);
      for (const { store: own } of [a, b])
        expect((await own.destinations.states()).some(({ name, pause: is }) => name === "audit" && is !== null)).toBe(
          true,
        );
      const opening = {
        probe: null,
        openMs: 60_000,
        maxOpenMs: 60_000,
        factor: 1,
        atLeastMs: 0,
        stableAfterMs: 1000,
        reason: "answered 503",
      };
      await b.store.destinations.open("audit", opening);
      const states = new Map((await store.destinations.states()).map((each) => [each.name, each]));
      expect(states.get("billing")?.pause).toMatchObject({ reason: "earlier" });
      expect(states.get("shop")?.pause).toMatchObject({ by: ALICE });
      expect(states.get("audit")).toMatchObject({ breaker: { state: "open", reason: "answered 503" } });
      expect(await store.destinations.resume("billing")).toBe(true);
      expect(await store.destinations.resume("billing")).toBe(false);
      expect(await b.store.destinations.resume("billing")).toBe(false);
    });
  });

  test("say where a pause is in force when one cell fails", async () => {
    await withCells(async ({ a, b, store }) => {
      await b.database.query("ALTER TABLE outbox_destination RENAME TO moved_away");
      try {
        await expect(store.destinations.pause("audit", pause)).rejects.toMatchObject({
          name: "StoreError",
          cells: ["b"],
          message: "the operation failed in the cell b; audit is paused in the cell a alone: repeat it",
        });
        expect(await a.store.destinations.states()).toHaveLength(1);
        await store.schema.checkColumns(["destinations"]);
        expect(store.destinations.isAvailable).toBe(false);
        await expect(store.schema.checkColumns(["destinations"], { destinations: true })).rejects.toThrow(/cell b, /);
      } finally {
        await b.database.query("ALTER TABLE moved_away RENAME TO outbox_destination");
      }
      await store.schema.checkColumns(["destinations"]);
      expect(store.destinations.isAvailable).toBe(true);
    });
  });
});
