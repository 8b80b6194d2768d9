import { describe, expect, test } from "@jest/globals";
import type { ClaimToken } from "../../src/model/rows.ts";
import type { RetentionRange } from "../../src/ports/finishedRows.ts";
import { claimRequest, claimSome, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { claimed, passOne, refuse, skip, useLooseTables } from "../support/looseTables.ts";
import { DEFAULT_NAMES, withStoreOn } from "../support/postgresHarness.ts";

failOnLeaks();
const { withTables } = useLooseTables();
const DROPPED = "a trigger on the table drops what is written to the row";

/** Whatever an owner's table and triggers let in or turn away is the fault of one row, and stays with it. */

describe("a row that a trigger refuses", () => {
  test("is not stored, and the others of its commit are", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "INSERT", "inbox", "NEW.event_type = 'bad'");
      const rows = Array.from({ length: 9 }, (_, n) => inboxRow({ eventType: n === 4 ? "bad" : "good" }));

      const outcomes = await store.inbox.insert(rows);

      expect(outcomes.map(({ kind }) => kind)).toEqual(rows.map((_, n) => (n === 4 ? "refused" : "stored")));
    });
  });

  test("at the relay is dead with the reason, and the others are relayed", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "INSERT", "outbox", "NEW.topic = 'bad'");
      await store.inbox.insert(Array.from({ length: 20 }, (_, n) => inboxRow({ eventType: n === 3 ? "bad" : "good" })));

      const result = await store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));

      expect(result.relayed).toBe(19);
      expect(result.dead).toMatchObject([{ reason: expect.stringContaining("not this one") }]);
    });
  });

  test("at the relay, also as a dead row, is named and left out for a while; its aggregate waits, the others are relayed", async () => {
    await withTables(async (store, database) => {
      await withStoreOn(database, DEFAULT_NAMES, passOne);
      const rows = Array.from({ length: 250 }, (_, n) =>
        inboxRow({ eventType: n < 120 ? "bad" : "good", aggregateId: n < 120 || n === 249 ? "a" : null }),
      );
      await store.inbox.insert(rows);
      await refuse(database, "UPDATE", "inbox", "NEW.event_type = 'bad'");
      const request = relayRequest({ topics: { orders: ["", ""] } });

      const passes = [];
      for (let n = 0; n < 4; n += 1) passes.push(await store.inbox.relay(request));

      const first = { id: rows[0]?.id, source: "orders", reason: expect.stringContaining("not this one") };
      expect(passes.flatMap(({ refused }) => refused ?? [])).toEqual([first]);
      expect(passes.reduce((sum, { relayed }) => sum + relayed, 0)).toBe(129);
      const waiting = await database.query("SELECT FROM inbox WHERE state = 'pending' AND event_type = 'good'");
      expect(waiting).toHaveLength(1);
    });
  });

  test("at its claim is named and left out for a while; the others are claimed, but for those of its key", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await refuse(database, "UPDATE", "outbox", "NEW.state = 'processing' AND NEW.topic = 'bad'");
      await database.query("INSERT INTO outbox (topic, payload) SELECT 'bad', '1' FROM generate_series(1, 50)");
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('bad', 'k', '1')");
      await database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 'later', 'k', '1' FROM generate_series(1, 120)",
      );
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('good', '1'), ('good', '2')");

      const first = await store.outbox.claim(claimRequest());
      const second = await claimSome(store);

      expect(first.rows).toEqual([]);
      expect(first.refused).toHaveLength(51);
      expect(first.refused?.[0]?.reason).toMatch(/not this one.*P0001/);
      expect(second.rows.map(({ topic }) => topic)).toEqual(["good", "good"]);

      await database.query("DROP TRIGGER refuse ON outbox");
      expect((await store.outbox.claim(claimRequest())).rows).toEqual([]);
    });
  });

  test("at the claim of every row is the table's fault: no row suffers for it, and the claim says so", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "UPDATE", "outbox", "NEW.state = 'processing'");
      await database.query("INSERT INTO outbox (topic, payload) SELECT 'a', '1' FROM generate_series(1, 9)");
      await expect(store.outbox.claim(claimRequest())).rejects.toThrow("not this one");
      await database.query("DROP TRIGGER refuse ON outbox");
      expect(await claimed(store)).toHaveLength(9);
    });
  });

  test("when it is taken back or renewed does not block the others", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 9) n");
      const claims = [
        await store.outbox.claim(claimRequest({ limit: 3 })),
        await store.outbox.claim(claimRequest({ limit: 12 })),
      ];
      await refuse(database, "UPDATE", "outbox", "OLD.topic = 't2'");

      const tokens = claims.map(({ rows }) => rows[0]?.claimToken as ClaimToken);
      const renewed = await store.outbox.renew(tokens, { leaseMs: 1, claimTimeoutMs: 60_000 });
      expect(renewed).toEqual(new Set(claims[1]?.rows.map(({ id }) => id)));
      await database.query("ALTER TABLE outbox DISABLE TRIGGER refuse");
      await database.query("UPDATE outbox SET lease_expires_at = now() - interval '1 second'");
      await database.query("ALTER TABLE outbox ENABLE TRIGGER refuse");

      expect(await store.outbox.reclaim(100, 60_000)).toBe(8);
      // A process leaves the row alone for a while.
      expect(await store.outbox.reclaim(100, 60_000)).toBe(0);
      await withStoreOn(database, DEFAULT_NAMES, (other) =>
        expect(other.outbox.reclaim(100, 60_000)).rejects.toThrow("not this one"),
      );
      expect(await claimed(store)).toHaveLength(8);
    });
  });

  test("when it is deleted is passed over, whatever their number, and the others are deleted", async () => {
    await withTables(async (store, database) => {
      await database.query(
        "INSERT INTO outbox (topic, payload, state, updated_at) SELECT 't' || n, '1', 'sent', now() - n * interval '1 hour' FROM generate_series(1, 250) n",
      );
      await refuse(
        database,
        "DELETE",
        "outbox",
        "OLD.topic IN ('t20', 't19', 't1') OR substr(OLD.topic, 2)::int > 100",
      );
      const [plan] = await store.retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 0 });
      let rest: RetentionRange | null = plan ?? null;
      let deleted = 0;
      let refused = 0;
      while (rest !== null) {
        const batch: Awaited<ReturnType<typeof store.retention.deleteBatch>> = await store.retention.deleteBatch(
          rest,
          10,
        );
        deleted += batch.deleted;
        refused += batch.refused;
        rest = batch.rest;
      }
      expect({ deleted, refused }).toEqual({ deleted: 97, refused: 153 });
    });
  });

  test("at its replay stays unchanged, and the others are moved", async () => {
    await withTables(async (store, database) => {
      await database.query(
        "INSERT INTO outbox (topic, payload, state) SELECT 't' || n, '1', 'sent' FROM generate_series(1, 9) n",
      );
      await refuse(database, "UPDATE", "outbox", "OLD.topic = 't5'");
      const scope = await store.replay.begin();
      const { rows } = await store.replay.page(scope, {}, null, 100);

      const ids = rows.map(({ id }) => id);
      const refusal = expect.stringContaining("not this one");
      expect(await store.replay.move(scope, ids, "alice")).toEqual({ changed: 8, refusal });
    });
  });
});

describe.each(["NULL", "OLD"] as const)("a row whose change a trigger drops by returning %s", (returned) => {
  test("at its claim is named and left out with its key, and the others are claimed", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await skip(database, "UPDATE", "outbox", "NEW.topic = 'held'", returned);
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('held', 'k', '1'), ('later', 'k', '1')");
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('good', '1')");

      const [first, second, third] = await claims(3, () => store.outbox.claim(claimRequest()));

      expect(first).toMatchObject({ rows: [], more: true, refused: [{ reason: expect.stringContaining(DROPPED) }] });
      expect(second?.rows.map(({ topic }) => topic)).toEqual(["good"]);
      expect(third?.rows).toEqual([]);
      await database.query("DROP TRIGGER skip ON outbox");
      await withStoreOn(database, DEFAULT_NAMES, async (other) => {
        expect((await claimed(other)).map(({ topic }) => topic)).toEqual(["held", "later"]);
      });
    });
  });

  test("at the claim of every row is the table's fault: the claim fails, and no row suffers for it", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await skip(database, "UPDATE", "outbox", "NEW.state = 'processing'", returned);
      await database.query("INSERT INTO outbox (topic, payload) SELECT 'a', '1' FROM generate_series(1, 3)");
      await expect(store.outbox.claim(claimRequest())).rejects.toMatchObject({ code: "schema" });
      await database.query("DROP TRIGGER skip ON outbox");
      expect(await claimed(store)).toHaveLength(3);
    });
  });

  test("when it is settled keeps its claim", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 4) n");
      const rows = await claimed(store);
      await skip(database, "UPDATE", "outbox", "NEW.topic = 't2'", returned);

      const { closed } = await store.outbox.settle(rows.map(sent));

      expect([...closed]).toEqual(rows.flatMap(({ id, topic }) => (topic === "t2" ? [] : [id])));
    });
  });

  test("when it is taken back does not block the others", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 9) n");
      await claimed(store);
      await database.query("UPDATE outbox SET lease_expires_at = now() - interval '1 second'");
      await skip(database, "UPDATE", "outbox", "NEW.topic IN ('t1', 't2', 't3')", returned);

      expect(await store.outbox.reclaim(100, 60_000)).toBe(6);
      expect(await store.outbox.reclaim(100, 60_000)).toBe(0);
      expect(await claimed(store)).toHaveLength(6);
    });
  });

  test("at the relay if only the inbox row may not be processed stays pending, and its outbox row is not made", async () => {
    await withTables(async (store, database) => {
      const [bad, good] = [inboxRow({ eventType: "bad" }), inboxRow({ eventType: "good" })];
      await store.inbox.insert([bad, good]);
      await skip(database, "UPDATE", "inbox", "NEW.event_type = 'bad' AND NEW.state = 'processed'", returned);

      const { refused, dead } = await store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));

      expect([refused?.map(({ id }) => id), dead]).toEqual([[bad.id], []]);
      expect(await database.query("SELECT topic FROM outbox")).toEqual([{ topic: "good" }]);
      expect(await database.query("SELECT id FROM inbox WHERE state = 'pending'")).toEqual([{ id: bad.id }]);
    });
  });

  test("at the relay is not relayed, and is named; its aggregate waits, the others are relayed", async () => {
    await withTables(async (store, database) => {
      const rows = ["bad", "good", "other"].map((eventType, n) =>
        inboxRow({ eventType, aggregateId: n === 2 ? "b" : "a" }),
      );
      await store.inbox.insert(rows);
      await skip(database, "UPDATE", "inbox", "NEW.event_type = 'bad'", returned);
      const request = relayRequest({ topics: { orders: ["", ""] } });

      const passes = [await store.inbox.relay(request), await store.inbox.relay(request)];

      const reason = expect.stringContaining("a trigger on the table drops what is written to the row");
      expect(passes.flatMap(({ refused }) => refused ?? [])).toEqual([{ id: rows[0]?.id, source: "orders", reason }]);
      expect(await database.query("SELECT topic FROM outbox")).toEqual([{ topic: "other" }]);
    });
  });
});

test("a row whose deletion a trigger skips is passed over, and those behind it are deleted", async () => {
  await withTables(async (store, database) => {
    await database.query(
      "INSERT INTO outbox (topic, payload, state, updated_at) SELECT 't' || n, '1', 'sent', now() - n * interval '1 hour' FROM generate_series(1, 9) n",
    );
    await skip(database, "DELETE", "outbox", "OLD.topic IN ('t9', 't8', 't7')");
    const [range] = await store.retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 0 });
    if (range === undefined) throw new Error("a range expected");

    const first = await store.retention.deleteBatch(range, 3);
    if (first.rest === null) throw new Error("a rest expected");

    expect(first).toMatchObject({ deleted: 0 });
    expect(await store.retention.deleteBatch(first.rest, 10)).toEqual({ deleted: 6, rest: null, refused: 0 });
  });
});

async function claims<T>(count: number, claim: () => Promise<T>): Promise<readonly T[]> {
  const made: T[] = [];
  while (made.length < count) made.push(await claim());
  return made;
}

describe("rows that are stored all or none", () => {
  const stored = { kind: "stored" };

  test.each(["refuses", "skips"])("are none if a trigger %s one, which is named", async (how) => {
    await withTables(async (store, database) => {
      const condition = "NEW.event_type = 'bad'";
      if (how === "refuses") await refuse(database, "INSERT", "inbox", condition);
      else await skip(database, "INSERT", "inbox", condition);
      const rows = ["good", "bad", "good", "bad", "good"].map((eventType) => inboxRow({ eventType }));
      const outcomes = await store.inbox.insertAllOrNone(rows);
      expect(outcomes.map(({ kind }) => kind)).toEqual(["stored", "refused", "stored", "refused", "stored"]);
      expect(outcomes[1]).toMatchObject({ mayPassLater: true });
      expect(await database.query("SELECT id FROM inbox")).toEqual([]);

      await database.query(`DROP TRIGGER ${how === "refuses" ? "refuse" : "skip"} ON inbox`);
      expect(await store.inbox.insertAllOrNone(rows)).toEqual(rows.map(() => stored));
      expect(await database.query("SELECT DISTINCT xmin FROM inbox")).toHaveLength(1);
    });
  });

  test("are none if the commit refuses one", async () => {
    await withTables(async (store, database) => {
      await database.query(
        `CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN IF NEW.event_type = 'bad' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NULL; END $$`,
      );
      await database.query(
        `CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION at_commit()`,
      );
      const rows = ["good", "bad"].map((eventType) => inboxRow({ eventType }));
      expect((await store.inbox.insertAllOrNone(rows)).map(({ kind }) => kind)).toEqual(["stored", "refused"]);
      expect(await database.query("SELECT id FROM inbox")).toEqual([]);
    });
  });
});
