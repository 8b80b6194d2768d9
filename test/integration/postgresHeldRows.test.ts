import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { Replay } from "../../src/core/finished/replay.ts";
import { type MessageId, PARKED_UNTIL } from "../../src/model/rows.ts";
import type { LeftRow, OnLeft } from "../../src/ports/finishedRows.ts";
import type { Store } from "../../src/ports/store.ts";
import { createDatabase, TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { recordingAudit, silentLog } from "../support/recorders.ts";

/** Changes on request of rows of which somebody holds some: a session that was left open, or a long migration. */

failOnLeaks();

const HELD = "another transaction holds a lock on the row: repeat this when that has ended";
const BEHIND = "another transaction holds a lock on a row before it in its key: repeat this when that has ended";
const NEVER = new AbortController().signal;

const PARKED = { columns: "attempt, scheduled_at", values: `5, '${PARKED_UNTIL}'` };
const WAITING = { columns: "attempt, scheduled_at", values: "5, now() + interval '1 hour'" };
const CHANGES: Readonly<Record<string, Change>> = {
  replay: {
    columns: "state",
    values: "'dead'",
    make: async ({ replay }, ids, onLeft) => replay.move(await replay.begin(), ids, "alice", undefined, onLeft),
  },
  retry: { ...PARKED, make: ({ parked }, ids, onLeft) => parked.retry(ids, "alice", onLeft) },
  discard: { ...PARKED, make: ({ parked }, ids, onLeft) => parked.discard(ids, "alice", "no", onLeft) },
  "retry at once": { ...WAITING, make: ({ parked }, ids, onLeft) => parked.hasten(ids, "alice", onLeft) },
  "discard of pending rows": {
    ...WAITING,
    make: ({ parked }, ids, onLeft) => parked.discardPending(ids, "alice", "no", onLeft),
  },
};

interface Change {
  /** Of its rows. */
  readonly columns: string;
  readonly values: string;
  readonly make: (store: Store, ids: readonly MessageId[], onLeft: OnLeft) => Promise<number>;
}

async function setUp() {
  const database = await createDatabase();
  const store = postgresStore(database, DEFAULT_NAMES);
  await store.schema.migrate();
  await store.schema.checkColumns();
  const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await other.connect();
  return {
    database,
    store,
    async hold(id: MessageId | undefined) {
      await other.query("BEGIN");
      await other.query("SELECT FROM outbox WHERE id = $1 FOR UPDATE", [id]);
    },
    lockTable: () => other.query("BEGIN; LOCK TABLE outbox IN EXCLUSIVE MODE"),
    end: () => other.query("ROLLBACK"),
    /** @param keys of each row; null for none */
    async insert(keys: readonly (string | null)[], { columns, values }: Pick<Change, "columns" | "values">) {
      const rows = await database.query<{ id: MessageId }>(
        `INSERT INTO outbox (topic, payload, key, ${columns})
         SELECT 't', '1', key, ${values} FROM unnest($1::text[]) WITH ORDINALITY AS k(key, n) ORDER BY n RETURNING id`,
        [keys],
      );
      return rows.map(({ id }) => id);
    },
    async noted() {
      return (await database.query("SELECT outbox_id AS id FROM outbox_history")).map(({ id }) => id);
    },
    /** Resolves when a statement waits for a lock. @param what part of its text */
    waits: (what: string) =>
      eventually(async () => {
        const waiting = await database.query(
          "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1",
          [`%${what}%`],
        );
        expect(waiting).toHaveLength(1);
      }),
    async [Symbol.asyncDispose]() {
      await other.end();
      await store.close();
      await database.drop();
    },
  };
}

describe.each(Object.entries(CHANGES))("a %s", (_, change) => {
  test("leaves the row that another transaction holds, names it, and changes and notes the others", async () => {
    await using setup = await setUp();
    const { store, insert, hold, end, noted } = setup;
    const [held, ...free] = await insert([null, null, "k"], change);
    await hold(held);
    const left: LeftRow[] = [];

    const changed = await change.make(store, [held, ...free] as MessageId[], (rows) => left.push(...rows));

    expect(changed).toBe(2);
    expect(left).toEqual([{ id: held, reason: HELD, isHeld: true }]);
    expect((await noted()).toSorted()).toEqual(free.toSorted());
    await end();
    left.splice(0);
    expect(await change.make(store, [held, ...free] as MessageId[], (rows) => left.push(...rows))).toBe(1);
    expect(left).toEqual([]);
  });

  test("waits for a transaction that soon ends, and for one that has locked the table", async () => {
    await using setup = await setUp();
    const { store, insert, hold, lockTable, end, waits } = setup;
    const ids = await insert([null, null], change);
    const none = (rows: readonly LeftRow[]) => expect(rows).toEqual([]);

    await hold(ids[0]);
    const first = change.make(store, ids.slice(0, 1), none);
    await waits("UPDATE");
    await end();
    expect(await first).toBe(1);

    await lockTable();
    const second = change.make(store, ids.slice(1), none);
    // Its first statement has given up by then.
    await waits("SKIP LOCKED");
    await end();
    expect(await second).toBe(1);
  });
});

test.each(Object.entries(CHANGES))("a %s runs no trigger in vain for a row that is held", async (_, change) => {
  await using setup = await setUp();
  const { database, store, insert, hold } = setup;
  await database.query("CREATE SEQUENCE calls");
  await database.query(`CREATE FUNCTION count_call() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM nextval('calls'); RETURN NEW; END $$`);
  await database.query("CREATE TRIGGER counts BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION count_call()");
  const ids = await insert([null, null, null], change);
  await hold(ids[2]);

  expect(await change.make(store, ids, () => {})).toBe(2);

  expect(await database.query("SELECT last_value::int AS calls FROM calls")).toEqual([{ calls: 2 }]);
});

describe("a replay beside a held row", () => {
  test("keeps the order of its key where rows are refused too, and is tried in parts", async () => {
    await using setup = await setUp();
    const { database, store, insert, hold } = setup;
    await database.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      RAISE EXCEPTION 'hands off'; END $$`);
    await database.query(`CREATE TRIGGER refuses BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.key = 'bad')
      EXECUTE FUNCTION refuse()`);
    const ids = await insert(["held", null, "bad", "held"], { columns: "state", values: "'dead'" });
    await hold(ids[0]);
    const left: LeftRow[] = [];

    const moved = await store.replay.move(await store.replay.begin(), ids, "alice", undefined, (rows) =>
      left.push(...rows),
    );

    expect(moved).toBe(1);
    expect(new Map(left.map(({ id, reason }) => [id, reason]))).toEqual(
      new Map<unknown, unknown>([
        [ids[2], expect.stringContaining("hands off")],
        [ids[0], HELD],
        [ids[3], BEHIND],
      ]),
    );
  });

  test.each([1000, 2, 1])("keeps the order of its key, in batches of %i", async (batchSize) => {
    await using setup = await setUp();
    const { database, store, insert, hold, end, noted } = setup;
    const keys = ["a", "held", "held", null, "b", "held", "a"];
    const ids = await insert(keys, { columns: "state", values: "'dead'" });
    await hold(ids[1]);
    const replay = replayOn(store, batchSize);

    const { moved, left } = await replay.run({ state: "dead" }, "alice", NEVER);

    expect(moved).toBe(4);
    expect(left).toEqual({
      count: 3,
      rows: [
        { id: ids[1], reason: HELD },
        { id: ids[2], reason: BEHIND },
        { id: ids[5], reason: BEHIND },
      ],
    });
    expect((await noted()).toSorted()).toEqual([ids[0], ids[3], ids[4], ids[6]].toSorted());
    await end();
    expect(await replay.run({ state: "dead" }, "alice", NEVER)).toEqual({ moved: 3 });
    expect(await database.query("SELECT FROM outbox WHERE state = 'dead'")).toEqual([]);
  });

  test("keeps the order of its key where it was interrupted and goes on", async () => {
    await using setup = await setUp();
    const { database, store, insert, hold } = setup;
    const ids = await insert([null, "held", null, "held", null], { columns: "state", values: "'dead'" });
    await hold(ids[1]);
    const replay = replayOn(store, 1);
    const scope = await replay.begin(NEVER);
    let after: string | null = null;
    let moved = 0;
    for await (const batch of replay.moves({ state: "dead" }, "alice", { scope }, NEVER)) {
      moved += batch.moved;
      after = batch.position;
      if (moved === 2) break;
    }

    for await (const batch of replay.moves({ state: "dead" }, "alice", { scope, after }, NEVER)) moved += batch.moved;

    expect(moved).toBe(3);
    const left = await database.query("SELECT id FROM outbox WHERE state = 'dead' ORDER BY sequence");
    expect(left.map(({ id }) => id)).toEqual([ids[1], ids[3]]);
  });
});

function replayOn(store: Store, batchSize: number): Replay {
  return new Replay({
    inbox: {} as never,
    store: store.replay,
    destinationOf: () => undefined,
    onMoved: () => {},
    redact: (text) => text,
    audit: recordingAudit().audit,
    log: silentLog,
    batchSize,
    wait: async () => {},
  });
}
