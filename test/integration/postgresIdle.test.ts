import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, queuesOf } from "../conformance/store/harness.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

// A server of its own: on that of the run, other tests change something all the time.
const QUIET = { fsync: "off", shared_buffers: "8MB", max_connections: "20", autovacuum: "off" };
const QUEUES = queuesOf(["orders"]);
const INSERT = "INSERT INTO outbox (topic, payload) VALUES ($1, $2)";
/** Longer than a sweep of a short front waits. */
const SWEEP_MS = 1001;

describe("an idle outbox", () => {
  let directory: string;
  let server: EmbeddedPostgres;
  let clock: ManualClock;
  let store: Store;
  let owner: pg.Client;
  let application: pg.Client;

  beforeEach(async () => {
    directory = mkdtempSync(path.join(tmpdir(), `svc-test-postgres-${process.pid}-`));
    server = await startEmbeddedPostgres({ dataDirectory: directory, settings: QUIET });
    clock = new ManualClock();
    store = anotherStore();
    owner = new pg.Client({ connectionString: server.url() });
    application = new pg.Client({ connectionString: server.url() });
    await owner.connect();
    await application.connect();
    await store.schema.migrate();
    await application.query(
      "INSERT INTO outbox (topic, key, payload) SELECT 'stuck', 'k' || n, 'stuck' FROM generate_series(1, 100) n",
    );
    // Until the cursor lies behind all rows, and a sweep has seen what the marks have changed.
    for (let look = 0; look < 4; look += 1) {
      clock.advance(SWEEP_MS);
      expect(await payloads()).toEqual([]);
    }
  });

  afterEach(async () => {
    await owner.end();
    await application.end();
    await store.close();
    await server.stop("immediate");
    rmSync(directory, { recursive: true, force: true });
  });

  failOnLeaks();

  function anotherStore(): Store {
    const { host, port, database, user, password } = server;
    return postgresStore({ host, port, name: database, user, password: password.reveal() }, DEFAULT_NAMES, clock);
  }

  async function payloads(): Promise<readonly (string | null)[]> {
    const { rows } = await store.outbox.claim(claimRequest({ queues: QUEUES }));
    return rows.map((row) => row.payload);
  }

  test("shows a new row to the next claim", async () => {
    await application.query(INSERT, ["orders", "new"]);

    expect(await payloads()).toEqual(["new"]);
  });

  test("shows a row that was committed late", async () => {
    await application.query("BEGIN");
    await application.query(INSERT, ["orders", "late"]);
    for (let n = 0; n < 3; n += 1) await owner.query(INSERT, ["stuck", "stuck"]);
    for (let look = 0; look < 5; look += 1) {
      clock.advance(SWEEP_MS);
      expect(await payloads()).toEqual([]);
    }
    await application.query("COMMIT");

    clock.advance(SWEEP_MS);
    expect(await payloads()).toEqual(["late"]);
  });

  test("shows a row that a savepoint has unlocked", async () => {
    const { rows } = await application.query(
      "INSERT INTO outbox (topic, payload) VALUES ('orders', 'locked') RETURNING id",
    );
    await application.query("BEGIN; SELECT pg_current_xact_id(); SAVEPOINT s");
    await application.query("SELECT FROM outbox WHERE id = $1 FOR UPDATE", [rows[0].id]);
    // Others have ended since, so that no snapshot tells of what the savepoint gives back.
    await owner.query(INSERT, ["stuck", "stuck"]);
    for (let look = 0; look < 4; look += 1) {
      clock.advance(SWEEP_MS);
      expect(await payloads()).toEqual([]);
    }
    await application.query("ROLLBACK TO SAVEPOINT s");

    clock.advance(SWEEP_MS);
    expect(await payloads()).toEqual(["locked"]);
    await application.query("ROLLBACK");
  });

  test("shows a row that falls due, a retry of another replica or a row that was scheduled ahead", async () => {
    await application.query(
      `INSERT INTO outbox (topic, payload, attempt, scheduled_at) SELECT 'orders', payload, attempt, now() + interval '1 second'
       FROM (VALUES ('ahead', 0), ('retry', 1)) AS r(payload, attempt)`,
    );

    const claimed: (string | null)[] = [];
    await eventually(async () => {
      clock.advance(SWEEP_MS);
      claimed.push(...(await payloads()));
      expect(claimed).toEqual(["ahead", "retry"]);
    });
  });

  test("a resting process that shares the watch draws no transaction number", async () => {
    const other = anotherStore();
    try {
      await store.onOutboxWake(() => {}, true);
      await eventually(async () => expect(await locks()).toBe(1));
      await other.onOutboxWake(() => {}, true);
      await eventually(() => expect(other.isOutboxWatched()).toBe(true));
      // The first glance reads its mark.
      await other.glanceAtOutbox(500);
      const before = await nextTransaction();
      for (let glance = 0; glance < 5; glance += 1) {
        clock.advance(SWEEP_MS);
        expect(await other.glanceAtOutbox(500)).toMatchObject({ isWatched: true });
        expect(await other.outbox.reclaim(1000, 300_000)).toBe(0);
        await other.destinations.states();
        await other.outbox.backlog({ totalsOnly: true });
      }

      expect(await nextTransaction()).toBe(before);
    } finally {
      await other.close();
    }
  });

  async function nextTransaction(): Promise<string> {
    const { rows } = await owner.query("SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next");
    return rows[0].next;
  }

  async function locks(): Promise<number> {
    const { rows } = await owner.query("SELECT FROM pg_locks WHERE locktype = 'advisory'");
    return rows.length;
  }
});
