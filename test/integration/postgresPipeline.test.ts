import { setImmediate as oneTurn } from "node:timers/promises";
import { afterEach, describe, expect, test } from "@jest/globals";
import { PostgresPool } from "../../src/adapters/stores/postgres/pool.ts";
import type { Statement } from "../../src/adapters/stores/postgres/statement.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { connectionTo } from "../support/postgresHarness.ts";
import { silentLog } from "../support/recorders.ts";

failOnLeaks();

/** Answers with the process that ran it, after `$1` seconds. A division by `$2` lets it fail. */
const slow: Statement = {
  isPipelined: true,
  name: "slow",
  parameters: ["seconds", "divisor"],
  text: "SELECT pg_backend_pid() AS pid, pg_sleep($1::float8), 1 / $2::int",
};
/** As slow as a lock makes it that somebody else holds. */
const locked: Statement = {
  isPipelined: true,
  name: "locked",
  parameters: ["key"],
  text: "SELECT pg_backend_pid() AS pid, pg_advisory_xact_lock($1::int)",
};

describe("statements that are sent behind one another", () => {
  const open: { database: TestDatabase; pool: PostgresPool }[] = [];

  afterEach(async () => {
    for (const { database, pool } of open.splice(0)) {
      await pool.close();
      await database[Symbol.asyncDispose]();
    }
  });

  async function start(poolSize = 6) {
    const database = await createDatabase();
    const pool = new PostgresPool({ ...connectionTo(database), poolSize }, silentLog);
    open.push({ database, pool });
    const pid = async (seconds = 0, divisor = 1) => (await pool.run(slow, { seconds, divisor }))[0]?.pid as number;
    /** The process of each of several short statements, each sent while those before it run, as far as they still do. */
    const pids = async (count: number) => {
      const running: Promise<number>[] = [];
      for (let n = 0; n < count; n += 1) {
        running.push(pid(0.003));
        // Long enough to take an idle connection from the pool and to send.
        await oneTurn();
      }
      return await Promise.all(running);
    };
    return { database, pool, pid, pids };
  }

  /** The connection that somebody uses to hold a lock, until it is let go. */
  async function holdLock(database: TestDatabase, pool: PostgresPool, key: number) {
    const holder = await pool.connections.dedicated();
    await holder.query("SELECT pg_advisory_lock($1)", [key]);
    const waiting = () =>
      eventually(async () => {
        const [row] = await database.query(
          "SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'",
        );
        expect(row?.n).toBe(1);
      });
    return { waiting, release: () => holder.end() };
  }

  test("two share a connection, a third has one of its own", async () => {
    const { pids } = await start();
    // In a process that is held up a statement may have ended, or count as long, before the next is sent.
    await eventually(async () => {
      const [a, b, c] = await pids(3);
      expect(b).toBe(a);
      expect(c).not.toBe(a);
    });
  });

  test("none goes behind the first one of a connection, whose preparation may fail", async () => {
    const { pool } = await start();
    const missing = { isPipelined: true, name: "missing", text: "SELECT * FROM not_there" };
    for (let round = 0; round < 2; round += 1) {
      const results = await Promise.allSettled([pool.run(missing), pool.run(missing)]);
      expect(results.map((result) => String((result as PromiseRejectedResult).reason))).toEqual([
        expect.stringContaining('relation "not_there" does not exist'),
        expect.stringContaining('relation "not_there" does not exist'),
      ]);
    }
    const named = { name: "left", text: "SELECT name FROM pg_prepared_statements" };
    expect(await pool.run(named)).toEqual([{ name: expect.stringMatching(/^svc_/) }]);
  });

  test("what fails does not touch what is behind it", async () => {
    const { pid, database } = await start();
    await eventually(async () => {
      const first = await pid();
      const failing = pid(0.003, 0);
      await oneTurn();
      const [failed, behind] = await Promise.allSettled([failing, pid()]);
      expect(failed).toMatchObject({ status: "rejected", reason: { message: expect.stringContaining("by zero") } });
      expect(behind).toEqual({ status: "fulfilled", value: first });
    });
    const [row] = await database.query("SELECT count(*)::int AS n FROM pg_stat_activity WHERE state LIKE '%aborted%'");
    expect(row?.n).toBe(0);
  });

  test("where all take long each has its own connection, until they are short again", async () => {
    const { pid, pids } = await start();
    const together = async () => new Set(await pids(2)).size;
    await eventually(async () => expect(await together()).toBe(1));
    for (let n = 0; n < 5; n += 1) await pid(0.05);
    expect(await together()).toBe(2);
    await eventually(async () => expect(await together()).toBe(1));
  });

  test("a connection that is always followed by the next comes back to who waits for it", async () => {
    const { pool, pid } = await start(1);
    await pid();
    let ended = false;
    const busy = async () => {
      while (!ended) await pid(0.001);
    };
    const all = Promise.all([busy(), busy(), busy()]);
    for (let n = 0; n < 20; n += 1) await pool.run({ name: "other", text: "SELECT 1" });
    ended = true;
    await all;
  });

  test("the end of the connection fails both, and the next one works", async () => {
    const { database, pool } = await start();
    const lock = await holdLock(database, pool, 1);
    await eventually(async () => {
      await pool.run(locked, { key: 2 });
      const stuck = pool.run(locked, { key: 1 });
      await oneTurn();
      const both = Promise.allSettled([stuck, pool.run(locked, { key: 2 })]);
      await lock.waiting();
      await database.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'",
      );
      const unavailable = { status: "rejected", reason: { code: "unavailable" } };
      expect(await both).toMatchObject([unavailable, unavailable]);
    });
    expect(await pool.run(locked, { key: 2 })).toHaveLength(1);
    expect(pool.connections.usage()).toMatchObject({ used: 0, waiting: 0 });
    await lock.release();
  });

  test("both are run again without preparation when a pooler loses the prepared statements", async () => {
    const { pool, pids } = await start();
    await eventually(async () => {
      const [a, b] = await pids(2);
      expect(b).toBe(a);
    });
    await pool.run({ name: "lose", text: "DEALLOCATE ALL" });
    expect(await pids(2)).toEqual([expect.any(Number), expect.any(Number)]);
  });
});
