import type { ClaimToken, MessageId, OutboxState } from "../../../src/model/rows.ts";
import type { Store } from "../../../src/ports/store.ts";
import { createDatabase } from "../../support/databases.ts";
import { assertNoConnections } from "../../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../../support/postgresHarness.ts";
import { ManualClock } from "../../support/recorders.ts";
import { PAYLOAD } from "./model.ts";

/** All times of the model are whole multiples of this. */
export const TIME_UNIT_MS = 50_000;

export interface RowSeen {
  readonly id: MessageId;
  readonly state: OutboxState;
  readonly attempt: number;
  readonly token: ClaimToken | null;
  /** In units of {@link TIME_UNIT_MS} from now, rounded up: the time that really went by does not show. */
  readonly dueIn: number;
  readonly leaseEndsIn: number | null;
  readonly lastError: string | null;
}

/** Several replicas of the service on one database. */
export interface System extends AsyncDisposable {
  readonly replicas: readonly { readonly store: Store; readonly clock: ManualClock }[];
  insert(rows: readonly { readonly key: string | null; readonly dueInMs: number }[]): Promise<readonly MessageId[]>;
  /** In the order of `sequence`. */
  rows(): Promise<readonly RowSeen[]>;
  /** Lets time pass, for the database by moving every time of every row into the past. */
  elapse(ms: number): Promise<void>;
  /** Empties the outbox. */
  clear(): Promise<void>;
}

export async function openSystem(replicaCount: number): Promise<System> {
  const database = await createDatabase();
  const replicas = Array.from({ length: replicaCount }, () => {
    const clock = new ManualClock();
    return { clock, store: postgresStore(database, DEFAULT_NAMES, clock) };
  });
  await replicas[0]?.store.schema.migrate();
  for (const { store } of replicas) await store.schema.checkColumns();
  const elapse = async (ms: number) => {
    await database.query(
      `UPDATE outbox SET created_at = created_at - d, updated_at = updated_at - d, scheduled_at = scheduled_at - d,
         claimed_at = claimed_at - d, lease_expires_at = lease_expires_at - d
       FROM (SELECT $1 * interval '1 millisecond' AS d) elapsed`,
      [ms],
    );
    for (const { clock } of replicas) clock.advance(ms);
  };
  return {
    replicas,
    elapse,
    async insert(rows) {
      const inserted = await database.query<{ id: MessageId }>(
        `INSERT INTO outbox (topic, payload, key, scheduled_at)
         SELECT 'orders', $3, key, now() + due * interval '1 millisecond'
         FROM unnest($1::text[], $2::int[]) WITH ORDINALITY AS r(key, due, n) ORDER BY n RETURNING id`,
        [rows.map((row) => row.key), rows.map((row) => row.dueInMs), PAYLOAD],
      );
      return inserted.map((row) => row.id);
    },
    rows: () =>
      database.query<RowSeen & Record<string, unknown>>(
        `SELECT id, state, attempt, claim_token AS token, last_error AS "lastError",
           ceil(extract(epoch FROM scheduled_at - now()) * 1000 / $1)::int AS "dueIn",
           ceil(extract(epoch FROM lease_expires_at - now()) * 1000 / $1)::int AS "leaseEndsIn"
         FROM outbox ORDER BY sequence`,
        [TIME_UNIT_MS],
      ),
    async clear() {
      await database.query("DELETE FROM outbox");
      // What a replica remembers of the rows before is looked up again.
      for (const { clock } of replicas) clock.advance(600_000);
    },
    async [Symbol.asyncDispose]() {
      for (const { store } of replicas) await store.close();
      try {
        await assertNoConnections(database);
      } finally {
        await database.drop();
      }
    },
  };
}
