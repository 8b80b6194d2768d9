import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { InboxReplay } from "../../src/core/operations/inboxReplay.ts";
import { Parked } from "../../src/core/operations/parked.ts";
import { Replay } from "../../src/core/operations/replay.ts";
import { tail } from "../../src/core/operations/tail.ts";
import { Trace } from "../../src/core/operations/trace.ts";
import { httpPlan } from "../../src/core/receipt/attributes.ts";
import { StoreError } from "../../src/model/errors.ts";
import type { MessageId } from "../../src/model/rows.ts";
import type { MessagePage } from "../../src/ports/messageStore.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, failed, inboxRow, parked, relayRequest } from "../conformance/store/harness.ts";
import { composed, twoCells } from "../support/cells.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { insertExpanded } from "../support/lists.ts";
import { type PostgresHarness, postgresHarnesses } from "../support/postgresHarness.ts";
import { recordingAudit, recordingMetrics, silentLog } from "../support/recorders.ts";

failOnLeaks();

const withCells = twoCells(postgresHarnesses());
const ALICE = "alice";
const NEVER = new AbortController().signal;
const idsOf = (rows: readonly { readonly id: MessageId }[]): readonly MessageId[] => rows.map(({ id }) => id);
const statesOf = async (harness: PostgresHarness) =>
  (await harness.outboxRows()).map(({ state, attempt }) => `${state} ${attempt}`);

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
        expect(rows.map(({ topic }) => Number(topic))).toEqual([...ages.a, ...ages.b].toSorted((x, y) => x - y));
        expect(rows.map(({ cell }) => cell).filter((cell) => cell === "b")).toHaveLength(ages.b.length);
      }
      const whole = await store.messages.outboxPage({}, null, 100);
      for (const [n, { position }] of whole.rows.entries()) {
        const rest = await everyRow((before) => store.messages.outboxPage({}, before ?? position, 4));
        expect(idsOf(rest)).toEqual(idsOf(whole.rows.slice(n + 1)));
      }
    });
  });

  test("are found and traced by the core as those of one database", async () => {
    await withCells(async ({ a, b, store }) => {
      const [first, second] = [inboxRow({ correlationId: "c-1" }), inboxRow({ correlationId: "c-1" })];
      for (const [harness, row] of [
        [a, first],
        [b, second],
      ] as const) {
        await harness.store.inbox.insert([row]);
        await harness.store.inbox.relay(relayRequest());
      }
      const trace = new Trace({
        store,
        settings: {
          destinationOf: ({ topic }) => topic ?? undefined,
          listOf: () => undefined,
          destinations: {},
          sources: { orders: { consumption: "push" } },
          isRelayEnabled: true,
        },
        hiddenPaths: [],
        secrets: { mask: (text) => text },
        clock: systemClock,
      });
      const { messages, cursor } = await trace.list({ correlationId: "c-1" }, undefined, 1);
      const rest = await trace.list({ correlationId: "c-1" }, cursor ?? undefined, 10);
      const found = [...messages, ...rest.messages].map(({ id, cell }) => `${id} ${cell}`);
      expect(found.toSorted()).toEqual([`${first.id} a`, `${second.id} b`].toSorted());
      expect((await trace.timeline(second.id))?.timeline).toMatchObject({ id: second.id, cell: "b", state: "pending" });
      expect((await trace.meantMessages("c-1")).ids).toHaveLength(2);
      expect((await trace.meantMessages(second.idempotencyKey)).ids).toEqual([second.id]);
      expect(await trace.timeline(randomUUID() as MessageId)).toBeUndefined();
    });
  });
});

const tools = { audit: recordingAudit().audit, log: silentLog, redact: (text: string) => text };

test("parked rows of two cells are walked cell by cell, and changed in their cell", async () => {
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
      destinationOf: () => undefined,
      onFreed: () => {},
      wait: async () => {},
    });
    expect(idsOf(await rows.list({}, 100))).toEqual([...inA, ...inB]);
    expect((await rows.list({}, 7)).map(({ cell }) => cell)).toEqual([..."aaaaabb"]);
    expect(await rows.retry({ topic: "odd" }, ALICE, NEVER)).toEqual({ changed: 4 });
    const ids = [inA[0], inB[2]] as readonly MessageId[];
    expect(await rows.discard({ ids }, ALICE, "gone", NEVER)).toEqual({ changed: 2 });
    expect(await statesOf(a)).toEqual(["dead 1", "pending 0", "pending 1", "pending 0", "pending 1"]);
    expect(await statesOf(b)).toEqual(["pending 1", "pending 0", "dead 1", "pending 0", "pending 1"]);
  });
});

test("a replay of the inbox finds the rows of both cells, and writes each in its cell", async () => {
  await withCells(async ({ a, b, store }) => {
    const received = Array.from({ length: 5 }, () => inboxRow({ state: "dead", lastError: "no JSON" }));
    await a.store.inbox.insert(received.slice(0, 3));
    await b.store.inbox.insert(received.slice(3));
    const source = {
      source: "orders",
      settings: { consumption: "push" },
      attributes: httpPlan({ idempotencyKeyPath: "$.n" }),
      clock: systemClock,
      metrics: recordingMetrics().metrics,
      log: silentLog,
    } as const;
    const inbox = new InboxReplay({ ...tools, messages: store.messages, store: store.replay, sources: () => [source] });
    const run = async (createdBefore: string) => {
      let count = 0;
      for await (const { changed } of inbox.moves({ source: "orders", createdBefore }, (work) => work()))
        count += changed;
      return count;
    };
    expect(await run("2000-01-01T00:00:00.000000Z")).toBe(0);
    expect(await run("9999-01-01T00:00:00.000000Z")).toBe(5);
    for (const harness of [a, b]) await harness.store.inbox.relay(relayRequest());
    expect(idsOf(await a.outboxRows())).toEqual(idsOf(received.slice(0, 3)));
    expect(idsOf(await b.outboxRows())).toEqual(idsOf(received.slice(3)));
  });
});

test("a replay moves the rows of both cells, each in the order of its cell", async () => {
  await withCells(async ({ a, b, store }) => {
    const made = [
      await a.insertOutbox(Array(5).fill({ key: "k" })),
      await b.insertOutbox(Array(5).fill({ key: "k" })),
    ] as const;
    for (const [n, harness] of [a, b].entries())
      await harness.finishOutbox(made[n] ?? [], { state: "dead", finishedMsAgo: 1000 });
    const own = { ...tools, destinationOf: () => "orders", listOf: () => undefined, onMoved: () => {} };
    const replay = new Replay({ ...own, batchSize: 2, wait: async () => {}, inbox: {} as never, store: store.replay });
    const interrupted = new AbortController();
    const onProgress = (moved: number) => moved >= 6 && interrupted.abort();
    const request = { state: "dead" } as const;
    await expect(replay.run(request, ALICE, interrupted.signal, { onProgress })).rejects.toThrow("after 7 rows");
    expect(await statesOf(b)).toEqual(["pending 0", "pending 0", "dead 0", "dead 0", "dead 0"]);
    expect(await replay.run(request, ALICE, NEVER)).toEqual({ moved: 3 });

    await a.finishOutbox(made[0], { state: "sent" });
    await b.finishOutbox(made[1], { state: "sent" });
    const named = [...made[1].slice(1, 4), ...made[0].slice(3)];
    const { sample } = await replay.preview({ ids: named }, 10, NEVER);
    expect(idsOf(sample)).toEqual([...made[0].slice(3), ...made[1].slice(1, 4)]);
    expect(await replay.run({ ids: named }, ALICE, NEVER)).toEqual({ moved: 5 });
  });
});

test("an addition of two cells adds each delivery in the cell of its message", async () => {
  await withCells(async ({ a, b, store }) => {
    for (const { database } of [a, a, b, b]) await insertExpanded(database, { deliveries: { billing: "sent" } });
    const own = { ...tools, destinationOf: () => undefined, listOf: () => ["fraud"], onMoved: () => {}, batchSize: 1 };
    const replay = new Replay({ ...own, wait: async () => {}, inbox: {} as never, store: store.replay });
    const request = { topic: "orders", add: "fraud" };
    for (const moved of [4, 0]) expect(await replay.run(request, ALICE, NEVER)).toEqual({ moved });
    for (const harness of [a, b]) {
      const made = await harness.database.query(
        "SELECT m.expanded_to::jsonb AS list FROM outbox d JOIN outbox m ON m.sequence = d.message_sequence WHERE d.destination = 'fraud'",
      );
      expect(made).toEqual(Array(2).fill({ list: ["billing", "fraud"] }));
    }
  });
});

test("rows are changed in their cell, while the tables of another cell are locked, and errors name that one", async () => {
  await withCells(async ({ a, b }) => {
    const [id] = await a.insertOutbox([{ topic: "orders" }]);
    await parkAll(a);
    const locked = () => Promise.reject(new StoreError("contention", "canceling statement due to lock timeout"));
    const messages = { ...b.store.messages, outboxPage: locked };
    const store = composed([a.store, { ...b.store, messages, parked: { ...b.store.parked, retry: locked } }]);
    await expect(store.messages.outboxPage({}, null, 10)).rejects.toMatchObject({
      message: "the operation failed in the cell b",
      cells: ["b"],
    });
    await expect(store.parked.retry([randomUUID() as MessageId], ALICE)).rejects.toThrow(
      "the operation failed in the cell b; 0 rows were changed in the other cells",
    );
    expect(await store.parked.retry([id as MessageId], ALICE)).toMatchObject({ changed: 1 });
  });
});

describe("what operators see of two cells", () => {
  test("is one installation: backlogs are added", async () => {
    await withCells(async ({ a, b, store }) => {
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
      expect(oldestPendingAgeMs).toBeLessThan(100_000);
      expect(byDestination.get("orders")).toMatchObject({ pending: 3, due: 3 });
      await a.store.inbox.insert([inboxRow()]);
      await b.store.inbox.insert([inboxRow(), inboxRow({ source: "bills" })]);
      const backlog = await store.operations.inboxBacklog([], 100);
      expect(backlog.map(({ source, pending }) => `${source} ${pending}`).toSorted()).toEqual(["bills 1", "orders 2"]);
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
      const keys = (await store.operations.blockedKeys(10, 10)).map(({ key, cell }) => `${key} ${cell}`);
      expect(keys).toEqual(["first a", "second b", "third a", "parked a"]);
      expect((await store.operations.blockedKeys(2, 10)).map(({ key }) => key)).toEqual(["first", "second"]);
    });
  });

  test("has the dead rows and the journals of both, newest first", async () => {
    await withCells(async ({ a, b, store }) => {
      const row = inboxRow();
      await b.store.inbox.insert([row]);
      const noted = { source: "orders", correlationId: "c-1", replica: "host-1" } as const;
      const entry = (ageMs: number) => ({ ...noted, outcome: "filtered", idempotencyKey: `${ageMs}`, ageMs }) as const;
      const duplicate = { ...noted, outcome: "duplicate", idempotencyKey: row.idempotencyKey, ageMs: 0 } as const;
      await a.store.journal.add([entry(3000), entry(1000)]);
      await b.store.journal.add([entry(2000), duplicate]);
      const found = await store.journal.find({ outcome: "filtered", correlationId: "c-1" }, 2);
      expect(found.map(({ idempotencyKey, cell }) => `${idempotencyKey} ${cell}`)).toEqual(["1000 a", "2000 b"]);
      const duplicates = await store.journal.duplicatesOf(row.id, 10);
      expect(duplicates).toMatchObject({ count: 1, entries: [{ messageId: row.id, cell: "b" }] });

      const [older, newer] = [await a.insertOutbox([{}]), await b.insertOutbox([{}])];
      await a.finishOutbox(older, { state: "dead", finishedMsAgo: 2000 });
      await b.finishOutbox(newer, { state: "dead", finishedMsAgo: 1000 });
      expect(idsOf(await store.operations.deadRows(10))).toEqual([...newer, ...older]);
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
      const { histories } = store;
      const following = tail(10, { histories, pause: async () => true, onAway: () => {}, signal: ended.signal });
      for await (const { id, event, cell } of following) {
        seen.push(`${id} ${event} ${cell}`);
        // The sequences of the second cell are as low as those of the first.
        if (seen.length === 1) await store.parked.retry([second as MessageId], ALICE);
        else ended.abort();
      }
      expect(seen).toEqual([`${first} retried a`, `${second} retried b`]);
      const history = await store.history.of(second as MessageId, 10);
      expect(history.map(({ event, cell }) => `${event} ${cell}`)).toEqual(["retried b"]);
    });
  });
});
