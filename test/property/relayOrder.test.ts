import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { inboxRow, relayRequest } from "../conformance/store/harness.ts";
import { createDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";
import { beginningWithin, settings } from "./settings.ts";

failOnLeaks();

const REPLICAS = 2;
const DELAY_MS = 3_600_000;
/** What is put off in one phase is due in the next one. */
const PHASE_MS = 2 * DELAY_MS;
/** Longer than a process relies on its marks without looking below them. */
const FULL_READ_MS = 61_000;

/** What a replica, relaying or not, receives in one insert. Some of it was published in the last second, and is put off from then on. */
interface Batch {
  readonly replica: number;
  readonly rows: readonly { readonly aggregate: string | null; readonly publishedMsAgo: number | null }[];
}

interface Phase {
  readonly batches: readonly Batch[];
  /** Of the relay passes of each replica. */
  readonly limits: readonly number[];
}

const batch: fc.Arbitrary<Batch> = fc.record({
  replica: fc.nat(REPLICAS),
  rows: fc.array(fc.record({ aggregate: fc.constantFrom("a", "b", null), publishedMsAgo: fc.option(fc.nat(1000)) }), {
    minLength: 1,
    maxLength: 5,
  }),
});

const phase: fc.Arbitrary<Phase> = fc.record({
  batches: fc.array(batch, { maxLength: 5 }),
  limits: fc.tuple(fc.integer({ min: 1, max: 7 }), fc.integer({ min: 1, max: 7 })),
});

interface RelayedRow extends Record<string, unknown> {
  readonly id: string;
  readonly key: string | null;
}

describe("the relay on PostgreSQL", () => {
  test("relays the rows of an aggregate in the order in which they become due", async () => {
    await using system = await openInbox();
    await fc.assert(
      fc.asyncProperty(
        fc.array(phase, { minLength: 1, maxLength: 4 }),
        beginningWithin(60_000, async (phases) => {
          for (const { batches, limits } of [...phases, { batches: [], limits: [3, 3] }]) {
            for (const each of batches) {
              const before = await system.due();
              const atOnce = await system.receive(each);
              // No receipt relays a row before an earlier one of its aggregate.
              const waiting = new Set(before.map(({ key }) => key));
              expect(atOnce.filter(({ key }) => key !== null && waiting.has(key))).toEqual([]);
            }
            const due = [...(await system.relayed()), ...(await system.due())];
            const relayed = await system.relayAll(limits);
            expect(relayed).toHaveLength(due.length);
            for (const aggregate of ["a", "b"]) {
              const idsOf = (rows: readonly RelayedRow[]) =>
                rows.filter(({ key }) => key === aggregate).map(({ id }) => id);
              expect(idsOf(relayed)).toEqual(idsOf(due));
            }
            await system.elapse();
          }
          expect(await system.clear()).toBe(0);
        }),
      ),
      settings(60),
    );
  }, 120_000);
});

async function openInbox() {
  const database = await createDatabase();
  const clock = new ManualClock();
  const replicas = Array.from({ length: REPLICAS + 1 }, () => postgresStore(database, DEFAULT_NAMES, clock));
  await replicas[0]?.schema.migrate();
  /** The replicas forget their marks. */
  const beginAnew = async () => {
    for (const { schema } of replicas) await schema.checkColumns();
  };
  await beginAnew();
  const relayed = () => database.query<RelayedRow>("SELECT id, key FROM outbox ORDER BY sequence");
  return {
    relayed,
    /** @returns what the receipt has relayed itself */
    async receive({ replica, rows }: Batch) {
      const now = Date.now();
      const schedule = (publishedMsAgo: number) => ({
        delayMs: DELAY_MS,
        publishedAt: now - publishedMsAgo,
        notBefore: null,
      });
      const before = (await relayed()).length;
      const received = rows.map(({ aggregate, publishedMsAgo }) =>
        inboxRow({
          aggregateId: aggregate,
          ...(publishedMsAgo === null ? {} : { schedule: schedule(publishedMsAgo) }),
        }),
      );
      const inbox = replicas[replica]?.inbox;
      await (replica < REPLICAS ? inbox?.insertRelayed?.(received, relayRequest()) : inbox?.insert(received));
      return (await relayed()).slice(before);
    },
    due: () =>
      database.query<RelayedRow>(
        `SELECT id, aggregate_id AS key FROM inbox WHERE state = 'pending' AND scheduled_at <= now()
         ORDER BY greatest(created_at, scheduled_at), created_at, id`,
      ),
    /** All replicas at once, until none finds anything. @returns what they relayed, in the order of the outbox */
    async relayAll(limits: readonly number[]) {
      clock.advance(FULL_READ_MS);
      for (let idle = 0; idle < 2; ) {
        const passes = replicas
          .slice(0, REPLICAS)
          .map(({ inbox }, n) => inbox.relay(relayRequest({ limit: limits[n] ?? 1 })));
        idle = (await Promise.all(passes)).every(({ relayed }) => relayed === 0) ? idle + 1 : 0;
      }
      const all = await relayed();
      await database.query("DELETE FROM outbox");
      return all;
    },
    /** In reality no row comes to lie below the marks. */
    async elapse() {
      await database.query(
        `UPDATE inbox SET created_at = created_at - d, scheduled_at = scheduled_at - d
         FROM (SELECT $1 * interval '1 millisecond' AS d) elapsed`,
        [PHASE_MS],
      );
      await beginAnew();
    },
    /** Empties the inbox. @returns how many rows waited */
    async clear() {
      const rows = await database.query<{ state: string }>("DELETE FROM inbox RETURNING state");
      return rows.filter(({ state }) => state === "pending").length;
    },
    async [Symbol.asyncDispose]() {
      for (const store of replicas) await store.close();
      await database.drop();
    },
  };
}
