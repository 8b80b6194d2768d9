import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { ClaimScope } from "../../src/ports/store.ts";
import { claimRequest, sent } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { scopedClaims } from "../support/scopedClaims.ts";

failOnLeaks();

const SCOPE: ClaimScope = { name: "others", which: "except", destinations: ["stuck"], exceptKeys: [] };
const INSERT = "INSERT INTO outbox (topic, payload) VALUES ($1, $2)";

describe("claims of a scope", () => {
  const table = scopedClaims(SCOPE);
  const { claim, payloads, passFront } = table;

  /** A row of a transaction that is not committed, and rows of the excluded destination behind it, which claims meet first. */
  async function insertLate(): Promise<pg.Client> {
    const application = new pg.Client({
      connectionString: table.database.url,
      application_name: TEST_APPLICATION_NAME,
    });
    await application.connect();
    await application.query("BEGIN");
    await application.query(INSERT, ["orders", "late"]);
    for (let n = 0; n < 3; n += 1) await table.database.query(INSERT, ["stuck", "stuck"]);
    return application;
  }

  async function commit(application: pg.Client): Promise<void> {
    await application.query("COMMIT");
    await application.end();
  }

  test("meet a row that is committed less than a second after its insert at once, although rows behind it were passed", async () => {
    await table.database.query(INSERT, ["stuck", "stuck"]);
    await passFront();
    const application = await insertLate();
    for (let look = 0; look < 3; look += 1) {
      expect(await payloads()).toEqual([]);
      table.clock.advance(300);
    }
    await commit(application);

    expect(await payloads()).toEqual(["late"]);
  });

  test("meet a row that is committed later with the next sweep", async () => {
    const application = await insertLate();
    await passFront();
    await commit(application);

    expect(await payloads()).toEqual([]);
    table.clock.advance(1000);
    expect(await payloads()).toEqual(["late"]);
  });

  test("keep a key in order that is replayed between the place where they would begin and the lowest unfinished row", async () => {
    const sendAll = async () => {
      table.clock.advance(1001);
      const { rows } = await table.store.outbox.claim(claimRequest());
      await table.store.outbox.settle(rows.map(sent));
    };
    await table.database.query(INSERT, ["stuck", "stuck"]);
    await passFront();
    await table.database.query(
      "INSERT INTO outbox (topic, key, payload) VALUES ('stuck', 'k', 'first'), ('orders', 'k', 'second')",
    );
    await table.database.query(
      "INSERT INTO outbox (topic, payload, scheduled_at) VALUES ('orders', 'ahead', now() + interval '1 hour')",
    );
    // Until the marks lie behind all that is sent.
    for (let look = 0; look < 5; look += 1) await sendAll();
    expect(await payloads()).toEqual([]);
    await table.database.query("UPDATE outbox SET state = 'pending', scheduled_at = now() WHERE key = 'k'");

    expect(await payloads()).toEqual([]);
    table.clock.advance(1001);
    expect(await payloads()).toEqual([]);
    expect(await payloads({ scope: { ...SCOPE, name: "stuck", which: "only" } })).toEqual(["first"]);
  });

  test("take rows without a topic with those of all other destinations, and with none that are named", async () => {
    await table.database.query("ALTER TABLE outbox ALTER COLUMN topic DROP NOT NULL");
    await table.database.query(INSERT, [null, "none"]);
    await table.database.query(INSERT, ["", "empty"]);

    expect(
      await payloads({ scope: { ...SCOPE, name: "some", which: "only", destinations: ["empty", "stuck"] } }),
    ).toEqual(["empty"]);
    expect(await payloads({ scope: { ...SCOPE, name: "neither", destinations: ["empty", "stuck"] } })).toEqual([
      "none",
    ]);
  });

  test("take the rows behind one's own slow delivery, and pass those behind another one's", async () => {
    await table.database.query(
      `INSERT INTO outbox (topic, key, payload) SELECT 'orders', key, key FROM unnest('{own,other}'::text[]) AS k(key), generate_series(1, 20)`,
    );
    await table.database.query(INSERT, ["orders", "free"]);
    const claimOne = async (exceptKeys: readonly string[]) => {
      const request = claimRequest({ limit: 1, scope: { ...SCOPE, exceptKeys } });
      expect(await payloads(request)).toHaveLength(1);
      return request.token;
    };
    const token = await claimOne(["other"]);
    await claimOne(["own"]);
    await table.database.query(
      "UPDATE outbox SET claimed_at = claimed_at - interval '2 seconds' WHERE state = 'processing'",
    );

    // A key that was left out is met by the next sweep.
    table.clock.advance(1001);
    const claimAll = () => claim({ limit: 20, heldTokens: [token] });
    // The sweep, and what is behind it.
    const claims = [await claimAll(), await claimAll()];
    const rows = claims.flatMap((claim) => claim.rows);
    expect(rows.map(({ payload }) => payload)).toEqual([...Array.from({ length: 19 }, () => "own"), "free"]);
    expect(claims.map(({ heldBack }) => heldBack)).toEqual([0, 0]);
  });

  test("find the row that a trigger refuses behind any number of excluded ones, and leave it out with the rest of its key", async () => {
    await table.database.query(
      `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
       CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW WHEN (NEW.payload = 'bad') EXECUTE FUNCTION refuse();
       INSERT INTO outbox (topic, payload) SELECT 'stuck', 'stuck' FROM generate_series(1, 11000);
       INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', 'good'), ('orders', 'b', 'bad'), ('orders', 'b', 'behind')`,
    );

    const failed = await claim();
    expect(failed).toMatchObject({ rows: [], more: true });
    expect(failed.refused).toEqual([{ id: expect.any(String), reason: expect.stringContaining("not this one") }]);
    const { rows, refused } = await claim();
    expect(rows.map(({ payload }) => payload)).toEqual(["good"]);
    expect(refused).toBeUndefined();
    expect(await payloads({ scope: { ...SCOPE, name: "orders", which: "only", destinations: ["orders"] } })).toEqual(
      [],
    );

    await table.database.query("DROP TRIGGER refuse ON outbox");
    table.clock.advance(30_001);
    expect(await payloads()).toEqual(["bad", "behind"]);
  });
});
