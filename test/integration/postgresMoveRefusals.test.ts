import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { bucketOf } from "../../src/model/cells.ts";
import type { NewInboxRow } from "../../src/model/rows.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { deliver, inBucket, NEVER, type TestCell, toB, useCells } from "../support/movedCells.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, silentLog } from "../support/recorders.ts";

failOnLeaks();
const setUp = useCells();

const BAD = bucketOf("bad");

const row = (key: string) => inboxRow({ aggregateId: key, idempotencyKey: `id of ${key}` });
/** A finished message of the key `bad`, and others. */
async function receive(a: TestCell): Promise<NewInboxRow> {
  const bad = row("bad");
  await a.store.inbox.insert([row("g1"), row("g2"), bad, row("g3"), row("g4"), row("g5")].map(inBucket));
  await deliver(a);
  return bad;
}

test("a right that is missing is named with its table and cell", async () => {
  await using setup = await setUp();
  const { a, b } = setup;
  await receive(a);
  const role = `move_${randomUUID().slice(0, 8)}`;
  const { database } = b;
  await database.query(`CREATE ROLE ${role} LOGIN PASSWORD '${database.password}'`);
  const store = postgresStore({ ...database, user: role }, DEFAULT_NAMES, new ManualClock(), silentLog);
  const cells = [a, { name: "b", store }];
  const reason = async () => (await setup.mover({ cells }).move(toB(BAD), NEVER))[0]?.reason;
  try {
    await database.query(`GRANT SELECT ON inbox TO ${role}`);
    expect(await reason()).toBe(
      `schema in the cell b buckets.all: permission denied for table outbox_bucket (SQLSTATE 42501): let the owner of the table run\n      GRANT SELECT, INSERT, UPDATE ON "outbox_bucket" TO <user>;`,
    );
    await database.query(`GRANT SELECT, INSERT, UPDATE ON outbox_bucket TO ${role}`);
    expect(await reason()).toBe(
      `schema in the cell b buckets.copy: permission denied for table inbox (SQLSTATE 42501): let the owner of the table run\n      GRANT SELECT, INSERT, UPDATE ON "inbox" TO <user>;`,
    );
    await database.query("DROP TABLE outbox_bucket");
    expect(await reason()).toMatch(/"outbox_bucket" does not exist .*: cells need this table: run `svc migrate`/);
  } finally {
    await store.close();
    await database.query(`DROP OWNED BY ${role}`);
    await database.query(`DROP ROLE ${role}`);
  }
});
