import { describe, expect, test } from "@jest/globals";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { goBack } from "../support/goneBack.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

failOnLeaks();

/**
 * What becomes of running replicas when the database goes back in time: a failover that lost commits, a restored
 * backup, a sequence that starts anew.
 */

const MARK_AGE_MS = 1001;

const claimed = async (store: Store) => (await store.outbox.claim(claimRequest())).rows;
const payloads = async (store: Store) => (await claimed(store)).map((row) => row.payload);
const texts = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, n) => String(first + n));
const INSERT =
  "INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', n::text FROM generate_series($1::int, $2::int) n";

describe("a server that comes back in an earlier state, at the same address", () => {
  test("is read anew by pollers and relays that ran on: nothing is passed over, and nothing overtaken", async () => {
    const clock = new ManualClock();
    let store: Store | undefined;
    // It leaves its rows to the relay of the other one.
    let ingest: Store | undefined;
    const onceBack = <T>(work: (store: Store) => Promise<T>) => eventually(() => work(store as Store));
    await goBack(
      async (server) => {
        await server.query(INSERT, [1, 5]);
      },
      async (server) => {
        store = server.store(clock);
        ingest = server.store(clock);
        await server.query(INSERT, [6, 20]);
        for (let pass = 0; pass < 4; pass += 1) {
          await store.outbox.settle((await claimed(store)).map(sent));
          await ingest.inbox.insert([inboxRow({ aggregateId: "a" })]);
          await store.inbox.relay(relayRequest());
          clock.advance(MARK_AGE_MS);
        }
        // No mark is due when it is back.
        await store.outbox.settle((await claimed(store)).map(sent));
        expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 0 });
      },
      async (server) => {
        await server.query(INSERT, [6, 45]);
        expect((await onceBack(claimed)).map((row) => row.payload)).toEqual(texts(1, 45));
        const received = [inboxRow({ aggregateId: "a" }), inboxRow({ aggregateId: "a" })];
        await onceBack(() => (ingest as Store).inbox.insert(received));
        await server.query("UPDATE inbox SET created_at = created_at - interval '1 hour'");
        expect(await onceBack(({ inbox }) => inbox.relay(relayRequest()))).toMatchObject({ relayed: 2 });
      },
    );
  }, 120_000);
});

describe("a sequence that goes back under running pollers", () => {
  const withStore = async (body: (store: Store, database: TestDatabase, clock: ManualClock) => Promise<void>) => {
    await using database = await createDatabase();
    const clock = new ManualClock();
    const store = postgresStore(database, DEFAULT_NAMES, clock);
    try {
      await store.schema.migrate();
      await database.query(INSERT, [1, 30]);
      for (let pass = 0; pass < 3; pass += 1) {
        await store.outbox.settle((await claimed(store)).map(sent));
        clock.advance(MARK_AGE_MS);
      }
      await claimed(store);
      await body(store, database, clock);
    } finally {
      await store.close();
    }
  };

  test.each([
    ["setval", "SELECT setval('outbox_sequence_seq', 25)"],
    ["ALTER TABLE", "ALTER TABLE outbox ALTER COLUMN sequence RESTART WITH 26"],
  ])("by %s is met by the next read of the mark, a second later", async (_, goBack) => {
    await withStore(async (store, database, clock) => {
      await database.query(goBack);
      await database.query(INSERT, [26, 28]);
      clock.advance(MARK_AGE_MS);
      const first = await claimed(store);
      expect(first.map((row) => row.payload).slice(-3)).toEqual(texts(26, 28));
      await store.outbox.settle(first.map(sent));
      await database.query(INSERT, [29, 35]);
      expect((await payloads(store)).slice(-7)).toEqual(texts(29, 35));
      expect(await database.query("SELECT FROM outbox WHERE state = 'pending'")).toEqual([]);
    });
  });
});
