import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import pg from "pg";
import { severalCells } from "../../src/adapters/stores/cells/index.ts";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import { MessageActions } from "../../src/core/finished/messageActions.ts";
import { Overview } from "../../src/core/operations/overview.ts";
import type { ClaimToken, MessageId } from "../../src/model/rows.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, inboxRow, parked, ROUTING } from "../conformance/store/harness.ts";
import { pullRequest } from "../conformance/store/pullSupport.ts";
import { cellsOf } from "../support/cells.ts";
import { TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { OwnPostgres } from "../support/ownPostgres.ts";
import { DEFAULT_NAMES, migratedDatabase, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingAudit, recordingLog } from "../support/recorders.ts";
import { useServices } from "../support/service.ts";

const services = useServices();

/** A store on a server of the test's own. */
function storeOn(server: OwnPostgres): Store {
  return createPostgresStore(
    {
      endpoints: [{ host: server.host, port: server.port, tls: false }],
      database: "postgres",
      username: "postgres",
      password: new Secret(server.password),
      primaryOnly: false,
      applicationName: "svc",
      connectionTimeoutMs: 60_000,
      poolSize: 4,
      names: DEFAULT_NAMES,
      routing: ROUTING,
    },
    systemClock,
    recordingLog().log,
  );
}

/** Longer than a cell that hangs is left alone. */
const REST_MS = 6000;
const insert = "INSERT INTO outbox (topic, payload, key) VALUES ('orders', '{}', $1) RETURNING id";

/** @returns the result, and how long it took in ms */
async function timed<T>(work: Promise<T>): Promise<{ readonly value: T; readonly ms: number }> {
  const startedAt = performance.now();
  const value = await work;
  return { value, ms: performance.now() - startedAt };
}

/** Parks every row. */
async function parkAll(store: Store): Promise<void> {
  const { rows } = await store.outbox.claim(claimRequest());
  await store.outbox.settle(rows.map(parked));
}

test("a cell whose server hangs is named, and nobody else waits for it", async () => {
  await using near = await migratedDatabase();
  const server = await OwnPostgres.start(services);
  const stores = [postgresStore(near), storeOn(server)] as const;
  const [a, b] = stores;
  try {
    await b.schema.migrate();
    const { log, lines } = recordingLog();
    const clock = new ManualClock();
    const store = severalCells(cellsOf(stores), clock, log);
    await store.schema.checkColumns();
    const [here] = await near.query<{ id: MessageId }>(insert, ["k"]);
    const [there] = await server.query<{ id: MessageId }>(insert, ["k"]);
    const [inA, inB] = [here?.id as MessageId, there?.id as MessageId];
    await parkAll(a);
    await parkAll(b);
    const pulled = () => inboxRow({ consumption: "pull" });
    await a.inbox.insert([pulled()]);
    await b.inbox.insert([pulled()]);
    const pull = () => store.pull.claim(pullRequest({ token: randomUUID() as ClaimToken }));
    expect(await store.parked.list({}, null, 10)).toHaveLength(2);
    expect(store.cells.watch()()).toEqual([]);

    server.suspend();
    // Everybody who asks at the beginning waits for a moment, once.
    const first = await timed(Promise.all([pull(), store.parked.list({}, null, 10), store.messages.get(inA, false)]));
    expect(first.ms).toBeGreaterThan(900);
    expect(first.ms).toBeLessThan(4000);
    const [claimed, listed, found] = first.value;
    expect(claimed.rows).toHaveLength(1);
    expect(listed.map(({ cell }) => cell)).toEqual(["a"]);
    expect(found).toMatchObject({ cell: "a", outbox: { id: inA } });
    expect(store.cells.watch()()).toMatchObject([{ name: "b", reason: expect.stringMatching(/ping/) }]);
    expect(lines.filter(({ message }) => message === "the cell does not answer")).toHaveLength(1);

    await a.inbox.insert([pulled()]);
    const pages = () => Promise.all([store.messages.outboxPage({}, null, 10), pull(), store.outbox.backlog()]);
    const second = await timed(pages());
    // A ratio, for a machine that is busy: nobody waits for the cell, nor for the ping that is due later.
    expect(second.ms).toBeLessThan(first.ms / 2);
    expect(second.value[0].rows.map(({ id }) => id)).toEqual([inA]);
    expect(second.value[1].rows).toHaveLength(1);
    clock.advance(REST_MS);
    expect((await timed(pages())).ms).toBeLessThan(first.ms / 3);

    await expect(store.messages.get(inB, false)).rejects.toMatchObject({ code: "unavailable", cells: ["b"] });
    const { audit } = recordingAudit();
    const actions = new MessageActions({
      store,
      replay: { run: async () => ({ moved: 0 }) },
      onFreed: () => {},
      audit,
      redact: (text) => text,
    });
    expect(await actions.retry(inA, "alice")).toEqual({ kind: "changed" });
    await expect(actions.retry(inB, "alice")).rejects.toMatchObject({ cells: ["b"] });
    // Of rows that this process has not listed it does not know the cell.
    const fresh = severalCells(cellsOf(stores), clock, log);
    await expect(fresh.parked.discardPending([inB], "alice", "gone")).rejects.toThrow(
      "the cell b does not answer; 0 rows were changed in the other cells",
    );
    expect(await fresh.parked.discardPending([inA], "alice", "gone")).toBe(1);
    await expect(
      store.destinations.pause("billing", { by: "alice", reason: "they migrate", forMs: undefined }),
    ).rejects.toThrow("the cell b does not answer; billing is paused in the cell a alone: repeat it");
    const scope = await store.replay.begin();
    await near.query("UPDATE outbox SET state = 'dead', updated_at = now() - interval '1 s'");
    const replayed = await store.replay.begin();
    expect(scope).not.toEqual(replayed);
    const page = await store.replay.page(replayed, {}, null, 10);
    expect(page.rows.map(({ id }) => id)).toEqual([inA]);
    expect((await store.replay.find(replayed, {}, [inA])).map(({ id }) => id)).toEqual([inA]);
    await expect(fresh.replay.find(replayed, {}, [inA, inB])).rejects.toThrow(/the cell b did not answer/);
    await expect(store.replay.page(replayed, {}, page.next, 10)).rejects.toThrow(/the cell b did not answer/);
    const overview = new Overview({
      store,
      settings: {
        destinations: {},
        sources: {},
        destinationOf: () => undefined,
        isRelayEnabled: true,
      },
      clock: systemClock,
    });
    expect((await overview.read(5)).cells).toMatchObject([
      { name: "a", awaySince: null, reason: null },
      { name: "b", awaySince: expect.any(Date), reason: expect.any(String) },
    ]);

    // A command that begins now.
    const own = [postgresStore(near), storeOn(server)];
    const command = severalCells(cellsOf(own), systemClock, log);
    const run = async () => {
      await command.waitUntilReady(60_000, new AbortController().signal);
      await command.schema.checkColumns();
      const rows = await command.parked.list({}, null, 10);
      await command.close();
      return rows;
    };
    const ran = await timed(run());
    expect(ran.value).toEqual([]);
    expect(ran.ms).toBeLessThan(15_000);
    expect(command.cells.watch()()).toMatchObject([{ name: "b" }]);

    server.resume();
    await eventually(async () => {
      clock.advance(REST_MS);
      expect(await store.parked.list({}, null, 10)).toHaveLength(1);
    });
    expect(store.cells.watch()()).toEqual([]);
    expect(await store.messages.get(inB, false)).toMatchObject({ cell: "b" });
    // What was claimed there for nobody is given back.
    await eventually(async () => {
      const { rows } = await b.pull.claim(pullRequest({ token: randomUUID() as ClaimToken }));
      expect(rows).toHaveLength(1);
    });
  } finally {
    server.resume();
    for (const store of stores) await store.close();
  }
}, 90_000);

/** Two cells, and a session that locks tables of the second one, which answers pings meanwhile. */
async function openWithLocker() {
  const [near, slow] = [await migratedDatabase(), await migratedDatabase()];
  const stores = [postgresStore(near), postgresStore(slow)] as const;
  const locker = new pg.Client({ connectionString: slow.url, application_name: TEST_APPLICATION_NAME });
  await locker.connect();
  return {
    databases: [near, slow],
    stores,
    locker,
    async [Symbol.asyncDispose]() {
      await locker.end();
      for (const store of stores) await store.close();
      for (const database of [near, slow]) await database.drop();
    },
  };
}

test("a cell that is slow is waited for, as long as it answers at all", async () => {
  await using cells = await openWithLocker();
  const { databases, stores, locker } = cells;
  let pings = 0;
  const [a, b] = cellsOf(stores);
  if (a === undefined || b === undefined) throw new Error("two cells expected");
  const counted = new Proxy(b.store, {
    get(store, name) {
      if (name === "ping") pings += 1;
      return Reflect.get(store, name);
    },
  });
  const store = severalCells([a, { name: b.name, store: counted }], systemClock, recordingLog().log);
  await store.schema.checkColumns();
  for (const database of databases) await database.query(insert, ["k"]);
  await locker.query("BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE");
  const page = store.messages.outboxPage({}, null, 10);
  await eventually(() => expect(pings).toBe(2));
  await locker.query("COMMIT");
  expect((await page).rows.map(({ cell }) => cell).toSorted()).toEqual(["a", "b"]);
  expect(store.cells.watch()()).toEqual([]);
});

test("pull clients get what a cell has while the table of another one is locked, and close it", async () => {
  await using cells = await openWithLocker();
  const { stores, locker } = cells;
  const open = () => severalCells(cellsOf(stores), systemClock, recordingLog().log).pull;
  const [pull, ofOtherProcess] = [open(), open()];
  const [near, slow] = stores;
  for (const store of [near, near, slow]) await store.inbox.insert([inboxRow({ consumption: "pull" })]);
  await locker.query("BEGIN; LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE");

  // The second claim begins with the locked cell.
  for (let n = 0; n < 2; n += 1) {
    const { token, rows, dead } = await pull.claim(pullRequest({ limit: 1, leaseMs: 4000 }));
    expect([rows.length, dead]).toEqual([1, []]);
    // The lease is not over, so the acknowledgement finds the row; it asks the locked cell too.
    const acknowledged = await ofOtherProcess.acknowledge({ source: "orders", token, ids: null });
    expect(acknowledged).toEqual(rows.map(({ id }) => id));
  }
  // A claim is still under way in the other cell: the next ones pass it over, whichever they begin with.
  for (let n = 0; n < 3; n += 1) {
    const { value, ms } = await timed(pull.claim(pullRequest()));
    expect(value).toMatchObject({ rows: [], dead: [] });
    expect(ms).toBeLessThan(2000);
  }
  await locker.query("COMMIT");
  // The first claim has taken it for nobody, and gives it back.
  await eventually(async () => expect((await pull.claim(pullRequest())).rows).toMatchObject([{ attempt: 1 }]));
});
