import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import type { ClaimedRow } from "../../src/model/rows.ts";
import type { ClaimScope, Store } from "../../src/ports/store.ts";
import { claimRequest, failed } from "../conformance/store/harness.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

failOnLeaks();

const EXCEPT: ClaimScope = { name: "others", which: "except", destinations: ["stuck"], exceptKeys: [] };
const ONLY: ClaimScope = { name: "orders", which: "only", destinations: ["orders"], exceptKeys: [] };
/** More than a claim sweeps, which is 5000. */
const IN_FRONT = 6000;

describe.each([EXCEPT, ONLY])("retries in front of where claims $which some destinations begin", (scope) => {
  let database: TestDatabase;
  let clock: ManualClock;
  let store: Store;

  beforeEach(async () => {
    database = await createDatabase();
    clock = new ManualClock();
    store = postgresStore(database, DEFAULT_NAMES, clock);
    await store.schema.migrate();
  });

  afterEach(async () => {
    await store.close();
    await database.drop();
  });

  const claim = (limit = 100) => store.outbox.claim(claimRequest({ scope, limit }));
  const payloads = async (limit?: number) => (await claim(limit)).rows.map(({ payload }) => payload);

  async function insertStuck(): Promise<void> {
    await database.query(
      `INSERT INTO outbox (topic, payload) SELECT 'stuck', 'stuck' FROM generate_series(1, $1::int)`,
      [IN_FRONT],
    );
  }

  /** Claims all that is free in the middle of rows that are excluded, with the place where claims begin behind them all. */
  async function claimInTheMiddle(insert: string): Promise<readonly ClaimedRow[]> {
    await insertStuck();
    await database.query(insert);
    await insertStuck();
    const { rows } = await claim();
    for (let look = 0; look < 2; look += 1) {
      clock.advance(1001);
      expect(await payloads()).toEqual([]);
    }
    return rows;
  }

  /** They are due by the database's clock at once, and by the store's a little later. */
  async function retryNow(rows: readonly ClaimedRow[]): Promise<void> {
    const settlements = rows.map((row) => ({ ...failed(row, 0), ...(scope === ONLY ? { scope: scope.name } : {}) }));
    await store.outbox.settle(settlements);
    clock.advance(20);
  }

  test("are met by the next claims, before a sweep comes to them", async () => {
    await retryNow(
      await claimInTheMiddle(`INSERT INTO outbox (topic, payload) SELECT 'orders', n FROM generate_series(1, 5) AS n`),
    );

    const first = await claim(3);
    expect([first.rows.map(({ payload }) => payload), first.more]).toEqual([["1", "2", "3"], true]);
    expect(await payloads(3)).toEqual(["4", "5"]);
  });

  test("are met where very many others wait for their time, fell due before, are parked, or have failed elsewhere", async () => {
    const rows = await claimInTheMiddle("INSERT INTO outbox (topic, payload) VALUES ('orders', 'retry')");
    await database.query(
      `UPDATE outbox SET attempt = 1, scheduled_at = CASE sequence % 3 WHEN 0 THEN now() + interval '1 hour'
         WHEN 1 THEN now() - interval '1 hour' ELSE now() END WHERE topic = 'stuck'`,
    );
    await retryNow(rows);

    expect(await payloads()).toEqual(["retry"]);
  });

  test("wait for an earlier row of their key that is pending again", async () => {
    const rows = await claimInTheMiddle(
      `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', 'sent'), ('orders', 'a', 'second'), ('orders', 'b', 'free')`,
    );
    expect(rows.map(({ payload }) => payload)).toEqual(["sent", "second", "free"]);
    const [before, ...others] = rows;
    await database.query(
      "UPDATE outbox SET state = 'pending', scheduled_at = now(), claim_token = NULL WHERE id = $1",
      [before?.id],
    );
    await retryNow(others);

    expect(await payloads()).toEqual(["free"]);
  });

  test("are looked for once more where the database did not take them for due yet", async () => {
    const rows = await claimInTheMiddle("INSERT INTO outbox (topic, payload) VALUES ('orders', 'retry')");
    await retryNow(rows);
    await database.query("UPDATE outbox SET scheduled_at = now() + interval '1 hour' WHERE topic = 'orders'");
    expect(await payloads()).toEqual([]);
    await database.query("UPDATE outbox SET scheduled_at = now() WHERE topic = 'orders'");
    clock.advance(100);

    expect(await payloads()).toEqual(["retry"]);
  });

  test("are left out with the keys that the scope leaves out", async () => {
    const rows = await claimInTheMiddle("INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'retry')");
    await retryNow(rows);
    const withoutKey = { ...scope, exceptKeys: ["k"] };
    expect((await store.outbox.claim(claimRequest({ scope: withoutKey }))).rows).toEqual([]);
    clock.advance(100);

    expect(await payloads()).toEqual(["retry"]);
  });
});
