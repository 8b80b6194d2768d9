import { expect, test } from "@jest/globals";
import pg from "pg";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import { MessageActions } from "../../src/core/operations/messageActions.ts";
import type { MessageId } from "../../src/model/rows.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, inboxRow, parked, ROUTING } from "../conformance/store/harness.ts";
import { pullRequest } from "../conformance/store/pullSupport.ts";
import { composed } from "../support/cells.ts";
import { TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { OwnPostgres } from "../support/ownPostgres.ts";
import { DEFAULT_NAMES, migratedDatabase, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingAudit, recordingLog, silentLog } from "../support/recorders.ts";
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
    silentLog,
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
    const store = composed(stores, { clock, log });
    const ofControl = composed([a], { control: b, clock, log });
    await store.schema.checkColumns();
    const [here] = await near.query<{ id: MessageId }>(insert, ["k"]);
    const [there] = await server.query<{ id: MessageId }>(insert, ["k"]);
    const [inA, inB] = [here?.id as MessageId, there?.id as MessageId];
    await parkAll(a);
    await parkAll(b);
    const pulled = () => inboxRow({ consumption: "pull" });
    await a.inbox.insert([pulled()]);
    await b.inbox.insert([pulled()]);
    const pull = () => store.pull.claim(pullRequest());
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

    const away = { code: "unavailable", cells: ["b"] };
    await expect(store.messages.get(inB, false)).rejects.toMatchObject(away);
    const { audit } = recordingAudit();
    const replay = { run: async () => ({ moved: 0 }) };
    const redact = (text: string) => text;
    const actions = new MessageActions({ store, replay, onFreed: () => {}, audit, redact });
    expect(await actions.retry(inA, "alice")).toEqual({ kind: "changed" });
    await expect(actions.retry(inB, "alice")).rejects.toMatchObject(away);
    await expect(store.parked.discard([inA, inB], "alice", "gone")).rejects.toThrow(
      "the cell b does not answer; 1 row was changed in the other cells",
    );
    const scope = await store.replay.begin();
    const page = await store.replay.page(scope, {}, null, 10);
    const notBegun = "the cell b did not answer when the replay began";
    await expect(store.replay.page(scope, {}, page.next, 10)).rejects.toThrow(notBegun);
    await expect(store.replay.find(scope, {}, [inA, inB])).rejects.toThrow(notBegun);

    // What the installation has once is away: rows are shown and changed all the same.
    const pause = { by: "alice", reason: "they migrate", forMs: undefined };
    const once = [() => ofControl.destinations.pause("billing", pause), () => ofControl.operations.figures(5)];
    for (const ask of once)
      await expect(ask()).rejects.toMatchObject({
        message: "the cell control does not answer",
        code: "unavailable",
      });
    expect(await ofControl.messages.get(inA, false)).toMatchObject({ outbox: { state: "dead" } });
    expect(ofControl.cells.watch()()).toMatchObject([{ name: "control" }]);

    // A command that begins now.
    const command = composed([postgresStore(near), storeOn(server)], { log });
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
    await eventually(async () => expect((await b.pull.claim(pullRequest())).rows).toHaveLength(1));
  } finally {
    server.resume();
    for (const store of stores) await store.close();
  }
}, 90_000);

test("a cell whose tables are locked is left out until they are free; pull clients get what the other one has", async () => {
  const databases = [await migratedDatabase(), await migratedDatabase()] as const;
  const [near, slow] = [postgresStore(databases[0]), postgresStore(databases[1])];
  const locker = new pg.Client({ connectionString: databases[1].url, application_name: TEST_APPLICATION_NAME });
  await locker.connect();
  try {
    const store = composed([near, slow]);
    await store.schema.checkColumns();
    for (const database of databases) await database.query(insert, ["k"]);
    for (const each of [near, near, slow]) await each.inbox.insert([inboxRow({ consumption: "pull" })]);
    await locker.query("BEGIN; LOCK TABLE inbox, outbox IN ACCESS EXCLUSIVE MODE");

    const cellsOfPage = async () => {
      const { rows } = await store.messages.outboxPage({}, null, 10);
      return rows.map(({ cell }) => cell).toSorted();
    };
    expect(await cellsOfPage()).toEqual(["a"]);
    expect(store.cells.watch()()).toMatchObject([{ name: "b" }]);
    // The second claim begins with the locked cell.
    for (let n = 0; n < 2; n += 1) {
      const { token, rows, dead } = await store.pull.claim(pullRequest({ limit: 1, leaseMs: 4000 }));
      expect([rows.length, dead]).toEqual([1, []]);
      const acknowledged = await store.pull.acknowledge({ source: "orders", token, ids: null });
      expect(acknowledged).toEqual(rows.map(({ id }) => id));
    }
    // A claim is still under way in the other cell: the next ones pass it over, whichever they begin with.
    for (let n = 0; n < 3; n += 1) {
      const { value, ms } = await timed(store.pull.claim(pullRequest()));
      expect(value).toMatchObject({ rows: [], dead: [] });
      expect(ms).toBeLessThan(2000);
    }
    await locker.query("COMMIT");
    await eventually(async () => expect(await cellsOfPage()).toEqual(["a", "b"]));
    expect(store.cells.watch()()).toEqual([]);
    // The claim that nobody waited for gives back what it took.
    await eventually(async () => expect((await store.pull.claim(pullRequest())).rows).toMatchObject([{ attempt: 1 }]));
  } finally {
    await locker.end();
    for (const store of [near, slow]) await store.close();
    for (const database of databases) await database.drop();
  }
});
