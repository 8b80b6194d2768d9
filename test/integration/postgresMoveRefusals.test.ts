import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { bucketOf } from "../../src/model/cells.ts";
import type { NewInboxRow } from "../../src/model/rows.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { refuse } from "../support/looseTables.ts";
import { deliver, inBucket, NEVER, states, type TestCell, toB, useCells, watch } from "../support/movedCells.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, silentLog } from "../support/recorders.ts";

failOnLeaks();
const setUp = useCells();

const BAD = bucketOf("bad");
const GOOD = ["g1", "g2", "g3", "g4", "g5"].map(bucketOf);

const row = (key: string) => inboxRow({ aggregateId: key, idempotencyKey: `id of ${key}` });
/** A finished message of the key `bad`, and others. */
async function receive(a: TestCell): Promise<NewInboxRow> {
  const bad = row("bad");
  await a.store.inbox.insert([row("g1"), row("g2"), bad, row("g3"), row("g4"), row("g5")].map(inBucket));
  await deliver(a);
  return bad;
}

/** A trigger on the copies of the key `bad`. */
async function onCopy(database: TestDatabase, action: string): Promise<void> {
  await database.query(
    `CREATE FUNCTION on_copy() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN IF NEW.aggregate_id = 'bad' THEN ${action}; END IF; RETURN NEW; END $$`,
  );
  await database.query("CREATE TRIGGER on_copy BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION on_copy()");
}

const outcomes = (moved: readonly { bucket: number; outcome: string }[]) =>
  Object.fromEntries(moved.map(({ bucket, outcome }) => [bucket, outcome]));
const GOOD_MOVED = Object.fromEntries(GOOD.map((bucket) => [bucket, "moved"]));

describe("a copy that a trigger of the new cell", () => {
  test.each([
    ["leaves out", "RETURN NULL"],
    ["gives another key", "NEW.idempotency_key := 'another'"],
    ["gives another source", "NEW.source := 'another'"],
    ["gives another id", "NEW.id := gen_random_uuid()"],
    ["makes pending", "NEW.state := 'pending'"],
  ])("%s keeps its bucket in the old one, and no other", async (_, action) => {
    await using setup = await setUp();
    const { a, b } = setup;
    const { id } = await receive(a);
    await onCopy(b.database, action);

    const moved = await setup.mover().move(toB(...GOOD, BAD), NEVER);
    expect(outcomes(moved)).toEqual({ ...GOOD_MOVED, [BAD]: "failed" });
    expect(moved.find(({ bucket }) => bucket === BAD)?.reason).toBe(
      `the cell b: a trigger of "inbox" leaves out or changes copied rows: let rows through as they are that come in as processed or dead; for example the row ${id} of the cell a`,
    );
    expect([await states(a, BAD), await states(b, BAD)]).toEqual(["open 1", ""]);
    expect(await b.database.query("SELECT count(*)::int AS n FROM inbox")).toEqual([{ n: GOOD.length }]);

    await b.database.query("DROP TRIGGER on_copy ON inbox");
    expect(await setup.mover().move(toB(BAD), NEVER)).toMatchObject([{ outcome: "moved" }]);
    const again = inBucket({ ...row("bad"), id: randomUUID() as NewInboxRow["id"] });
    expect(await b.store.inbox.insert([again])).toMatchObject([{ kind: "duplicate" }]);
  });

  test("puts into another part of the table is there", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await receive(a);
    await b.database.query("CREATE TABLE inbox_part () INHERITS (inbox)");
    await onCopy(b.database, "INSERT INTO inbox_part SELECT NEW.*; RETURN NULL");
    expect(await setup.mover().move(toB(BAD), NEVER)).toMatchObject([{ outcome: "moved" }]);
  });
});

describe("a row that the new cell refuses", () => {
  test.each([
    [
      "by a trigger",
      (database: TestDatabase) => refuse(database, "INSERT", "inbox", "NEW.aggregate_id = 'bad'"),
      "not this one (SQLSTATE P0001)",
    ],
    [
      "by a constraint",
      (database: TestDatabase) => database.query("ALTER TABLE inbox ADD CONSTRAINT no CHECK (aggregate_id <> 'bad')"),
      'new row for relation "inbox" violates check constraint "no" (SQLSTATE 23514)',
    ],
  ] as const)("%s keeps its bucket in the old one, and no other", async (_, refusing, text) => {
    await using setup = await setUp();
    const { a, b } = setup;
    const { id } = await receive(a);
    await refusing(b.database);
    const moved = await setup.mover().move(toB(...GOOD, BAD), NEVER);
    expect(outcomes(moved)).toEqual({ ...GOOD_MOVED, [BAD]: "failed" });
    expect(moved.find(({ bucket }) => bucket === BAD)?.reason).toBe(
      `the cell b: "inbox" refuses copied rows: buckets.copy: ${text}; for example the row ${id} of the cell a`,
    );
    expect([await states(a, BAD), await states(b, BAD)]).toEqual(["open 1", ""]);
  });

  test("is the example of all buckets that stay for the same reason", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await receive(a);
    await refuse(b.database, "INSERT", "inbox", "true");
    const moved = await setup.mover().move(toB(...GOOD, BAD), NEVER);
    expect(new Set(moved.map(({ outcome, reason }) => `${outcome} ${reason}`)).size).toBe(1);
    expect(moved).toHaveLength(GOOD.length + 1);
  });

  test("and was received when its bucket was just being closed opens it again, and the others move on", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await refuse(b.database, "INSERT", "inbox", "NEW.aggregate_id = 'bad'");
    const busy = watch(
      a,
      "close",
      async () => {
        await a.database.query(
          "INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, state) VALUES ('orders', 'late', 'bad', '', 'processed')",
        );
      },
      "before",
    );
    const moved = await setup.mover({ cells: [busy, b] }).move(toB(...GOOD, BAD), NEVER);
    expect(outcomes(moved)).toEqual({ ...GOOD_MOVED, [BAD]: "failed" });
    expect([await states(a, BAD), await states(b, BAD)]).toEqual(["open 1", ""]);
    expect(await a.store.inbox.insert([inBucket(row("bad"))])).toMatchObject([{ kind: "stored" }]);
  });
});

/** Raises what a wait that has lasted too long does, from the fifth row of a statement on. */
const TOO_LONG = (state: string) =>
  `PERFORM set_config('svc.rows', (coalesce(nullif(current_setting('svc.rows', true), ''), '0')::int + 1)::text, true);
   PERFORM nextval('tries');
   IF current_setting('svc.rows')::int > 4 THEN RAISE 'too long' USING ERRCODE = '${state}'; END IF`;

describe("copies that take too long", () => {
  test.each(["55P03", "57014"])("are made in smaller parts (SQLSTATE %s)", async (state) => {
    await using setup = await setUp();
    const { a, b } = setup;
    await a.store.inbox.insert(
      Array.from({ length: 10 }, (_, n) => inBucket(inboxRow({ aggregateId: "bad", idempotencyKey: `${n}` }))),
    );
    await deliver(a);
    await b.database.query("CREATE SEQUENCE tries");
    await onCopy(b.database, TOO_LONG(state));
    expect(await setup.mover().move(toB(BAD), NEVER)).toMatchObject([{ outcome: "moved" }]);
    expect(await b.database.query("SELECT count(*)::int AS n FROM inbox")).toEqual([{ n: 10 }]);
    // Of ten and of five rows each five, then a part of three; of six rows, as those were fast, again five, then three and
    // four: none was repeated as it was.
    expect(await b.database.query("SELECT last_value::int AS n FROM tries")).toEqual([{ n: 25 }]);
  });

  test("row by row keep the bucket of that row alone", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await receive(a);
    await refuse(b.database, "INSERT", "inbox", "NEW.aggregate_id = 'bad'", "USING ERRCODE = '55P03'");
    const moved = await setup.mover().move(toB(...GOOD, BAD), NEVER);
    expect(outcomes(moved)).toEqual({ ...GOOD_MOVED, [BAD]: "failed" });
    expect(moved.find(({ bucket }) => bucket === BAD)?.reason).toContain("buckets.copy: not this one (SQLSTATE 55P03)");
    expect(await states(a, BAD)).toBe("open 1");
  });
});

describe("a trigger on the table of the buckets that keeps one from", () => {
  const STEPS = [
    { step: "being closed", cell: "a", state: "moving", ends: ["open 1", ""] },
    { step: "being noted", cell: "b", state: "arriving", ends: ["open 1", ""] },
    { step: "leaving", cell: "a", state: "left", ends: ["open 1", "arriving 2"] },
    { step: "being opened", cell: "b", state: "open", ends: ["left 2", "arriving 2"] },
  ] as const;
  test.each(
    STEPS.flatMap((each) => [
      { ...each, action: "RAISE 'not this one'", reason: /refused in the cell [ab] buckets.*not this one/ },
      {
        ...each,
        action: "RAISE 'not this one' USING ERRCODE = '55P03'",
        reason: /busy in the cell [ab] buckets.*not this one/,
      },
      { ...each, action: "RETURN NULL", reason: /a trigger on the table of the buckets of [ab] keeps it/ },
    ]),
  )("$step ($action) keeps no other", async ({ cell, state, ends, action, reason }) => {
    await using setup = await setUp();
    const { a, b } = setup;
    const { database } = cell === "a" ? a : b;
    await database.query(
      `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN IF NEW.bucket = ${BAD} AND NEW.state = '${state}' THEN ${action}; END IF; RETURN NEW; END $$`,
    );
    await database.query(
      "CREATE TRIGGER keep BEFORE INSERT OR UPDATE ON outbox_bucket FOR EACH ROW EXECUTE FUNCTION keep()",
    );
    const moved = await setup.mover().move(toB(...GOOD, BAD), NEVER);
    expect(outcomes(moved)).toEqual({ ...GOOD_MOVED, [BAD]: "failed" });
    expect(moved.find(({ bucket }) => bucket === BAD)?.reason).toMatch(reason);
    expect([await states(a, BAD), await states(b, BAD)]).toEqual(ends);
  });
});

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
