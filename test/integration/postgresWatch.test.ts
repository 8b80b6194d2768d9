import { expect, test } from "@jest/globals";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresStore } from "../support/postgresHarness.ts";

failOnLeaks();

/** Stores of processes that share the watch, in the order in which they came. */
async function withStores(
  count: number,
  use: (stores: readonly Store[], database: TestDatabase, wakes: readonly number[]) => Promise<void>,
): Promise<void> {
  await using database = await createDatabase();
  const stores: Store[] = [];
  const wakes: number[] = [];
  try {
    for (let n = 0; n < count; n += 1) {
      const store = postgresStore(database, undefined, systemClock);
      stores.push(store);
      if (n === 0) await store.schema.migrate();
      wakes.push(0);
      await store.onOutboxWake(() => {
        wakes[n] = (wakes[n] ?? 0) + 1;
      }, true);
      // The first to come has the lock before the next one asks.
      if (n === 0) await eventually(async () => expect(await watchers(database)).toHaveLength(1));
    }
    await use(stores, database, wakes);
  } finally {
    for (const store of stores) await store.close();
  }
}

/** The server processes whose sessions hold the lock of the watch. */
async function watchers(database: TestDatabase): Promise<readonly number[]> {
  const rows = await database.query<{ pid: number }>(
    `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  return rows.map(({ pid }) => pid);
}

const watched = (stores: readonly Store[]) => stores.map((store) => store.isOutboxWatched());

test("one process watches the outbox for the others; when it leaves, a glancing process takes over", async () => {
  await withStores(3, async ([first, second, third], database) => {
    const others = [second, third] as Store[];
    await eventually(() => expect(watched([first as Store, ...others])).toEqual([false, true, true]));
    expect(await second?.glanceAtOutbox(500)).toEqual({ isOverdue: false, isWatched: true });

    await first?.leaveOutboxWatch();
    expect(await watchers(database)).toEqual([]);
    expect(await second?.glanceAtOutbox(500)).toEqual({ isOverdue: false, isWatched: false });

    // Nobody asks by itself before five seconds have passed.
    await eventually(() => expect(watched(others)).toEqual([false, true]), { timeoutMs: 4000 });
    expect(await watchers(database)).toHaveLength(1);
    expect(first?.isOutboxWatched()).toBe(false);
  });
});

test("when the watcher's connection ends, a process watches again, and one alone", async () => {
  await withStores(2, async (stores, database) => {
    await eventually(() => expect(watched(stores)).toEqual([false, true]));
    const [pid] = await watchers(database);

    await database.query("SELECT pg_terminate_backend($1)", [pid]);

    await eventually(async () => {
      const [next, ...more] = await watchers(database);
      expect(more).toEqual([]);
      expect(next).toBeGreaterThan(0);
      expect(next).not.toBe(pid);
      expect(watched(stores).filter((isWatched) => isWatched)).toHaveLength(1);
    });
  });
});

test("a process that does not share the watch neither takes it nor relies on it", async () => {
  await withStores(1, async (_, database) => {
    const other = postgresStore(database, undefined, systemClock);
    await other.onOutboxWake(() => {});
    const [pid] = await watchers(database);

    await database.query("SELECT pg_terminate_backend($1)", [pid]);
    await eventually(async () => expect(await watchers(database)).not.toContain(pid));

    expect(other.isOutboxWatched()).toBe(false);
    await other.close();
  });
});

test("announcements wake the process that watches, and processes that do not share the watch", async () => {
  await withStores(2, async ([first, second], database, wakes) => {
    const other = postgresStore(database, undefined, systemClock);
    let otherWakes = 0;
    await other.onOutboxWake(() => {
      otherWakes += 1;
    });
    const before = [...wakes, otherWakes];
    first?.announceOutbox();
    await eventually(() => expect([wakes[0], otherWakes]).not.toEqual([before[0], before[2]]));
    await eventually(() => expect(otherWakes).toBeGreaterThan(before[2] ?? 0));
    await eventually(() => expect(wakes[0]).toBeGreaterThan(before[0] ?? 0));
    expect(wakes[1]).toBe(0);

    // What was announced while nobody watched may be lost: the next one looks.
    await first?.leaveOutboxWatch();
    await second?.glanceAtOutbox(500);
    await eventually(() => expect(wakes[1]).toBe(1));
    await other.close();
  });
});
