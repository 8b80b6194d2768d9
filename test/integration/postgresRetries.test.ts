import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow } from "../../src/model/rows.ts";
import type { ClaimScope } from "../../src/ports/store.ts";
import { failed } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { scopedClaims } from "../support/scopedClaims.ts";

failOnLeaks();

const EXCEPT: ClaimScope = { name: "others", which: "except", destinations: ["stuck"], exceptKeys: [] };
const ONLY: ClaimScope = { name: "orders", which: "only", destinations: ["orders"], exceptKeys: [] };
/** More than a claim sweeps, which is 5000. */
const IN_FRONT = 6000;

describe.each([EXCEPT, ONLY])("retries in front of where claims $which some destinations begin", (scope) => {
  const table = scopedClaims(scope);
  const { claim, payloads, passFront } = table;

  async function insertStuck(): Promise<void> {
    await table.database.query(
      `INSERT INTO outbox (topic, payload) SELECT 'stuck', 'stuck' FROM generate_series(1, $1::int)`,
      [IN_FRONT],
    );
  }

  /** Claims all that is free in the middle of rows that are excluded, with the place where claims begin behind them all. */
  async function claimInTheMiddle(insert: string): Promise<readonly ClaimedRow[]> {
    await insertStuck();
    await table.database.query(insert);
    await insertStuck();
    const { rows } = await claim();
    await passFront();
    return rows;
  }

  /** They are due by the database's clock at once, and by the store's a little later. */
  async function retryNow(rows: readonly ClaimedRow[]): Promise<void> {
    const settlements = rows.map((row) => ({ ...failed(row, 0), ...(scope === ONLY ? { scope: scope.name } : {}) }));
    await table.store.outbox.settle(settlements);
    table.clock.advance(20);
  }

  test("are met by the next claims, before a sweep comes to them", async () => {
    await retryNow(
      await claimInTheMiddle(`INSERT INTO outbox (topic, payload) SELECT 'orders', n FROM generate_series(1, 5) AS n`),
    );

    const first = await claim({ limit: 3 });
    expect([first.rows.map(({ payload }) => payload), first.more]).toEqual([["1", "2", "3"], true]);
    expect(await payloads({ limit: 3 })).toEqual(["4", "5"]);
  });

  test("are met where very many others wait for their time, fell due before, are parked, or have failed elsewhere", async () => {
    const rows = await claimInTheMiddle("INSERT INTO outbox (topic, payload) VALUES ('orders', 'retry')");
    await table.database.query(
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
    await table.database.query(
      "UPDATE outbox SET state = 'pending', scheduled_at = now(), claim_token = NULL WHERE id = $1",
      [before?.id],
    );
    await retryNow(others);

    expect(await payloads()).toEqual(["free"]);
  });

  test("are looked for once more where the database did not take them for due yet", async () => {
    const rows = await claimInTheMiddle("INSERT INTO outbox (topic, payload) VALUES ('orders', 'retry')");
    await retryNow(rows);
    await table.database.query("UPDATE outbox SET scheduled_at = now() + interval '1 hour' WHERE topic = 'orders'");
    expect(await payloads()).toEqual([]);
    await table.database.query("UPDATE outbox SET scheduled_at = now() WHERE topic = 'orders'");
    table.clock.advance(100);

    expect(await payloads()).toEqual(["retry"]);
  });

  test("are left out with the keys that the scope leaves out", async () => {
    const rows = await claimInTheMiddle("INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'retry')");
    await retryNow(rows);
    const withoutKey = { ...scope, exceptKeys: ["k"] };
    expect(await payloads({ scope: withoutKey })).toEqual([]);
    table.clock.advance(100);

    expect(await payloads()).toEqual(["retry"]);
  });
});
