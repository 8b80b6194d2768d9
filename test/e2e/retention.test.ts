import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { Collector } from "../support/collector.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { RunningProcess } from "../support/processes.ts";
import { type ConfigTree, merged, ordersTo, type Service, sumOfSamples, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const NO_RECEIVER = { url: "http://127.0.0.1:9" };
const CLEAN = { code: 0, signal: null };
const ONCE = ["retention", "--once"] as const;

/** Both tables by age: what finished, or came in, more than an hour ago goes. */
const BY_AGE = {
  enabled: true,
  outbox: { policy: "AGE", maxAge: "1h", cleanupInterval: "1s" },
  inbox: { policy: "AGE", maxAge: "1h", cleanupInterval: "1s" },
};

const configured = (retention: ConfigTree = {}) => ordersTo(NO_RECEIVER, { retention: merged(BY_AGE, retention) });

/** What the first run made of an empty database: the other databases are copies of it. */
let template: TestDatabase;
beforeAll(async () => {
  template = await createDatabase();
  const { process } = await services.launch({ database: template, config: configured(), roles: ONCE });
  expect(await process.exited).toEqual(CLEAN);
  await template.disconnect();
});
afterAll(() => template.drop());

/** A database with tables. */
async function migrated(owner = services): Promise<TestDatabase> {
  const database = await createDatabase(template.name);
  owner.defer(() => database.drop());
  return database;
}

/** Rows of each finished state that are two hours old, and as many that are new. */
async function fill(database: TestDatabase, count: number): Promise<void> {
  for (const age of ["2 hours", "0 hours"]) {
    for (const state of ["sent", "dead"]) {
      await database.query(
        `INSERT INTO outbox (topic, payload, state, updated_at)
         SELECT 't', '{}', $1, now() - $2::interval FROM generate_series(1, $3::int)`,
        [state, age, count],
      );
    }
    for (const state of ["processed", "dead"]) {
      await database.query(
        `INSERT INTO inbox (source, idempotency_key, payload, state, created_at)
         SELECT 'orders', gen_random_uuid(), '{}', $1, now() - $2::interval FROM generate_series(1, $3::int)`,
        [state, age, count],
      );
    }
  }
}

async function counts(database: TestDatabase): Promise<{ readonly old: number; readonly young: number }> {
  const [row] = await database.query<{ old: number; young: number }>(
    `SELECT count(*) FILTER (WHERE at < now() - interval '1 hour')::int AS old,
       count(*) FILTER (WHERE at >= now() - interval '1 hour')::int AS young
     FROM (SELECT updated_at AS at FROM outbox UNION ALL SELECT created_at FROM inbox) rows`,
  );
  return row ?? { old: 0, young: 0 };
}

/** Runs a statement before each DELETE statement on a table. */
async function beforeDelete(database: TestDatabase, table: "inbox" | "outbox", statement: string): Promise<void> {
  await database.query(
    `CREATE OR REPLACE FUNCTION before_delete() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${statement}; RETURN NULL; END $$`,
  );
  await database.query(
    `CREATE OR REPLACE TRIGGER before_delete BEFORE DELETE ON ${table} FOR EACH STATEMENT EXECUTE FUNCTION before_delete()`,
  );
}

/** The lines of retention in the log: message, table and rows deleted. */
function logged(child: RunningProcess): readonly (readonly [string, string, number])[] {
  const lines = child.stdout.map((line) => JSON.parse(line) as { msg: string; table: string; deleted: number });
  return lines.filter(({ msg }) => /^retention/.test(msg)).map(({ msg, table, deleted }) => [msg, table, deleted]);
}

describe("the role retention", () => {
  test("deletes old finished rows beside the other roles, and shows it in health and metrics", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, { retention: BY_AGE });
    const service = await services.start({ database, config });
    expect((await service.readiness()).components).toEqual({
      database: "up",
      "outbox-poller": "up",
      "retention-service": "up",
      "inbox-relay": "up",
    });
    await service.post({ id: "m-1", type: "created" });
    await receiver.received(1);
    await fill(database, 10);

    await eventually(async () => expect(await counts(database)).toEqual({ old: 0, young: 40 + 2 }));

    await eventually(async () => expect(await service.metric("svc_cleanup_messages_deleted_total")).toBe(40));
    expect(await service.metric("svc_cleanup_duration_seconds_count")).toBeGreaterThanOrEqual(2);
    const lastRun = (await service.metric("svc_cleanup_last_run_timestamp_seconds")) / 2;
    expect(Math.abs(lastRun - Date.now() / 1000)).toBeLessThan(60);
    expect(await service.stop()).toEqual(CLEAN);
  });
});

describe("the role retention in a process of its own", () => {
  const ofBlock = useServices("block");
  failOnLeaks("block");
  let database: TestDatabase;
  let service: Service;
  beforeAll(async () => {
    database = await migrated(ofBlock);
    await fill(database, 10);
    await beforeDelete(database, "outbox", "RAISE EXCEPTION 'not allowed' USING ERRCODE = 'query_canceled'");
    const config = configured({ outbox: { batchSize: 10 }, inbox: { cleanupInterval: "1h" } });
    service = await ofBlock.start({ database, config, roles: ["retention"] });
  });

  test("has a component that goes down while batches fail, and comes up again", async () => {
    await eventually(async () => {
      const { status, components } = await service.readiness();
      expect([status, components]).toEqual([503, { database: "up", "retention-service": "down" }]);
    });
    await eventually(async () => expect((await counts(database)).old).toBe(20));

    await database.query("DROP TRIGGER before_delete ON outbox");

    const recovered = async () => {
      expect(await counts(database)).toEqual({ old: 0, young: 40 });
      expect((await service.readiness()).status).toBe(200);
    };
    // The wait after a failed pass has grown by now.
    await eventually(recovered, { timeoutMs: 20_000 });
  });

  test("ends at once on SIGTERM, one table in the middle of its sweep and the other between two", async () => {
    await database.query("TRUNCATE outbox, inbox");
    await beforeDelete(database, "outbox", "PERFORM pg_sleep(0.2)");
    await fill(database, 200);
    await eventually(async () => expect((await counts(database)).old).toBeLessThan(800));

    expect(await service.stop()).toEqual(CLEAN);

    expect((await counts(database)).old).toBeGreaterThan(400);
    expect(logged(service.process)).toContainEqual(["retention interrupted", "outbox", expect.any(Number)]);
  });
});

describe("svc retention --once", () => {
  test("sweeps both tables and says what it deleted, also beside a service on its port that has nothing to do", async () => {
    const database = await migrated();
    const disabled = configured({ outbox: { policy: "DISABLED" }, inbox: { policy: "DISABLED" } });
    const service = await services.start({ database, config: disabled, roles: ["retention"] });
    await fill(database, 10);
    const env = { SVC_SERVER_HTTPPORT: String(service.port) };
    const once = await services.launch({ database, config: configured(), roles: ONCE, env });

    expect(await once.process.exited).toEqual(CLEAN);

    expect(await counts(database)).toEqual({ old: 0, young: 40 });
    expect(logged(once.process)).toEqual([
      ["retention", "outbox", 20],
      ["retention", "inbox", 20],
    ]);
    expect((await service.readiness()).components).toEqual({ database: "up", "retention-service": "up" });
    expect(await service.stop()).toEqual(CLEAN);
    expect(logged(service.process)).toEqual([]);
  });

  test("leaves its metrics to a collector and in a file, which appears whole", async () => {
    const database = await migrated();
    await fill(database, 10);
    const collector = await Collector.start();
    services.defer(() => collector.close());
    const textfile = path.join(services.folder(), "svc.prom");
    const config = merged(configured(), { metrics: { otlp: true, textfile } });
    const { process } = await services.launch({ database, config, roles: ONCE, env: collector.env });

    expect(await process.exited).toEqual(CLEAN);

    expect(sumOfSamples(readFileSync(textfile, "utf8"), "svc_cleanup_messages_deleted_total")).toBe(40);
    expect(readdirSync(path.dirname(textfile))).toEqual(["svc.prom"]);
    expect(JSON.stringify(collector.metrics)).toContain('"svc_cleanup_last_run_timestamp_seconds"');
    const lost = merged(configured(), { metrics: { textfile: "/no/such/folder/svc.prom" } });
    const other = await services.launch({ database, config: lost, roles: ONCE });
    expect(await other.process.exited).toEqual(CLEAN);
    expect(other.process.lines.join("\n")).toMatch(/metrics\.textfile.*the metrics could not be written/);
  });

  test("ends with code 1 when a batch failed, having swept the other table", async () => {
    const database = await migrated();
    await fill(database, 10);
    await beforeDelete(database, "outbox", "RAISE EXCEPTION 'not allowed' USING ERRCODE = 'query_canceled'");
    const { process } = await services.launch({ database, config: configured(), roles: ONCE });

    expect(await process.exited).toEqual({ code: 1, signal: null });

    expect(process.stderr.join("\n")).toMatch(/^svc: retention failed: .*not allowed/);
    expect(await database.query("SELECT count(*)::int AS n FROM outbox")).toEqual([{ n: 40 }]);
    expect(await database.query("SELECT count(*)::int AS n FROM inbox")).toEqual([{ n: 20 }]);
    expect(logged(process)).toContainEqual(["retention", "inbox", 20]);
  });

  test("ends after the running batch with code 0 on a signal, and leaves the rest to the next run", async () => {
    const database = await migrated();
    await fill(database, 200);
    await beforeDelete(database, "outbox", "PERFORM pg_sleep(0.2)");
    const config = configured({ outbox: { batchSize: 10 } });
    const { process } = await services.launch({ database, config, roles: ONCE });
    await eventually(async () => expect((await counts(database)).old).toBeLessThan(800));

    process.kill("SIGINT");

    expect(await process.exited).toEqual(CLEAN);
    const { old } = await counts(database);
    expect(logged(process)).toEqual([["retention interrupted", "outbox", 800 - old]]);
    expect(old).toBeGreaterThan(400);
  });
});
