import { expect, test } from "@jest/globals";
import pg from "pg";
import { Secret } from "../../src/model/secret.ts";
import { onServer, TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { changeLog, createOutbox, faultOf, following, insert, slotOf } from "../support/postgresLog.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";
import { within } from "../support/within.ts";

failOnLeaks();

/** The statement in a message, which somebody copies. */
function statementIn(message: string): string {
  return /(?:Run|run): (.*?)(?:\. The service|$)/.exec(message)?.[1] ?? `no statement in: ${message}`;
}

test("the slot is made, and let go of; an insert of many rows is reported once", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  {
    await using log = await following(database, slot);
    expect(log.lines.map(({ message }) => message)).toEqual([
      "replication slot made: the server keeps its log for it from now on",
    ]);
    await database.query("INSERT INTO outbox (payload) SELECT '{}' FROM generate_series(1, 1000)");
    await eventually(() => log.seen.inserted.length > 0);
    expect(log.seen.inserted).toHaveLength(1);
  }
  await eventually(async () => (await slotOf(slot))?.active === false);
});

test("nothing else is reported: rolled back inserts, updates, deletes, tables that are not published", async () => {
  await using outbox = await createOutbox(["CREATE PUBLICATION svc_outbox FOR TABLE outbox"]);
  const { database, slot } = outbox;
  await database.query("ALTER TABLE outbox REPLICA IDENTITY FULL");
  await insert(database);
  await using log = await following(database, slot);
  await database.query("UPDATE outbox SET payload = '1'");
  await database.query("DELETE FROM outbox");
  await insert(database, "other");
  await expect(
    database.query("DO $$ BEGIN INSERT INTO outbox (payload) VALUES ('2'); RAISE EXCEPTION 'no'; END $$"),
  ).rejects.toThrow("no");
  const told = log.seen.reached.length;
  // A later insert is reported: so the rest was passed over.
  await insert(database);
  await eventually(() => log.seen.inserted.length > 0 && log.seen.reached.length > told);
  expect(log.seen.inserted).toHaveLength(1);
});

test("rows of a partitioned outbox are reported, also rows of a partition made later", async () => {
  await using outbox = await createOutbox([
    "DROP TABLE outbox",
    "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, day int, payload text) PARTITION BY LIST (day)",
    "CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1)",
  ]);
  const { database, slot } = outbox;
  await database.query(statementIn(await faultOf(database, slot)));
  await using log = await following(database, slot);
  await database.query("INSERT INTO outbox (day) VALUES (1)");
  await eventually(() => log.seen.inserted.length === 1);
  await database.query("CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2)");
  await database.query("INSERT INTO outbox (day) VALUES (2)");
  await eventually(() => log.seen.inserted.length === 2);
});

test("unrelated log is let go of, while nobody writes to the outbox", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  await using log = await following(database, slot);
  for (let n = 0; n < 5; n += 1) {
    await database.query("INSERT INTO other (payload) SELECT repeat('x', 1000) FROM generate_series(1, 5000)");
  }
  const [end] = await database.query<{ lsn: string }>("SELECT pg_current_wal_lsn()::text AS lsn");
  // 25 MiB are written; the slot has confirmed all but what others wrote since.
  await eventually(async () => {
    const [slotNow] = await database.query<{ seen: boolean }>(
      "SELECT confirmed_flush_lsn >= $2::pg_lsn AS seen FROM pg_replication_slots WHERE slot_name = $1",
      [slot, end?.lsn],
    );
    return slotNow?.seen === true;
  });
  expect(log.seen.inserted).toEqual([]);
  await eventually(() => log.seen.reached.length > 0);
});

test("a missing publication is a fault whose statement mends it", async () => {
  await using outbox = await createOutbox([]);
  const { database, slot } = outbox;
  const message = await faultOf(database, slot);
  expect(message).toContain("there is no publication svc_outbox, and the service makes none");
  await database.query(statementIn(message));
  await using log = await following(database, slot);
  await insert(database);
  await eventually(() => log.seen.inserted.length === 1);
});

test("a publication without the table, or without inserts, is a fault whose statement mends it", async () => {
  await using outbox = await createOutbox(["CREATE PUBLICATION svc_outbox FOR TABLE other WITH (publish = 'update')"]);
  const { database, slot } = outbox;
  const missing = await faultOf(database, slot);
  expect(missing).toContain('does not hold the table "public"."outbox"');
  await database.query(statementIn(missing));
  const silent = await faultOf(database, slot);
  expect(silent).toContain("does not publish inserts");
  await database.query(statementIn(silent));
  await using log = await following(database, slot);
  await insert(database);
  await eventually(() => log.seen.inserted.length === 1);
});

test("a table that is not there is a fault that names it", async () => {
  await using outbox = await createOutbox();
  expect(await faultOf(outbox.database, outbox.slot, { schema: "app" })).toBe(
    'there is no table "app"."outbox": outbox.capture.schema must be the schema of the outbox table (database.outboxTableName)',
  );
});

test("a slot of somebody else is left alone", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  await database.query("SELECT pg_create_physical_replication_slot($1)", [slot]);
  expect(await faultOf(database, slot)).toContain("physical replication slot");
});

test("a slot that another process reads is refused, with what to do", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  await using _first = await following(database, slot);
  expect(await faultOf(database, slot)).toMatch(
    /is active for PID \d+ \(SQLSTATE 55006\)\. One process at a time captures/,
  );
});

test("a transaction that is open while the slot is made is named", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  const writer = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await writer.connect();
  try {
    await writer.query("BEGIN; INSERT INTO other (payload) VALUES ('open')");
    const [{ pid }] = (await writer.query("SELECT pg_backend_pid() AS pid")).rows;
    const message = await faultOf(database, slot, { statementTimeoutMs: 300 });
    expect(message).toMatch(/is not made yet: the server waits for the transactions that were open before/);
    // Other tests have transactions of their own on this server, younger than ours or older.
    expect(message).toMatch(/in the server process \d+\. End it, or wait/);
    expect(pid).toBeGreaterThan(0);
    await writer.query("COMMIT");
  } finally {
    await writer.end();
  }
  await using log = await following(database, slot);
  expect(log.seen.following).toBe(1);
});

test("the error for a user who may not replicate names the missing right", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  await onServer(`CREATE ROLE "${slot}" LOGIN PASSWORD 'not-for-the-log'`);
  try {
    const user = { username: slot, password: new Secret("not-for-the-log") };
    const message = await faultOf(database, slot, user);
    expect(message).toContain(`ALTER ROLE "${slot}" REPLICATION`);
    expect(message).not.toContain("not-for-the-log");
    await onServer(`ALTER ROLE "${slot}" REPLICATION`);
    await using log = await following(database, slot, null, user);
    await insert(database);
    await eventually(() => log.seen.inserted.length === 1);
  } finally {
    await onServer(`DROP ROLE "${slot}"`);
  }
});

test("a server that is not there is a fault within the time to connect", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  const endpoints = [{ host: "127.0.0.1", port: 1, tls: false as const }];
  expect(await faultOf(database, slot, { endpoints })).toMatch(
    /cannot connect to 127\.0\.0\.1:1 for capture: .*ECONNREFUSED/,
  );
});

test("the slot's figures are metrics", async () => {
  await using outbox = await createOutbox();
  await using log = await following(outbox.database, outbox.slot);
  expect(log.calls).toEqual([
    expect.stringMatching(/^replicationSlotLag\(\d+, \d+\)$/),
    "replicationSlotStatus(reserved)",
  ]);
});

test("a dropped publication is noticed while nothing flows", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  await using log = await following(database, slot);
  await database.query("DROP PUBLICATION svc_outbox");
  await expect(within(20_000, "the fault", log.ended)).rejects.toThrow("there is no publication svc_outbox");
});

test("an abort ends the connecting to a server that does not answer", async () => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  const proxy = await startTcpProxy(database);
  try {
    proxy.setMode("held");
    const { changes } = changeLog(database, slot, { endpoints: [{ host: "127.0.0.1", port: proxy.port, tls: false }] });
    const stop = new AbortController();
    const ended = changes.follow(null, { following: () => {}, inserted: () => {}, reached: () => {} }, stop.signal);
    setImmediate(() => stop.abort());
    await within(15_000, "the end", ended);
  } finally {
    await proxy.close();
  }
});
