import pg from "pg";
import {
  type ClaimedRow,
  type ClaimToken,
  type MessageId,
  type OutboxState,
  PARKED_UNTIL,
} from "../../../src/model/rows.ts";
import type { ClaimRequest, Store, TopicRouting } from "../../../src/ports/store.ts";
import { inboxRow, ROUTING, relayRequest } from "../../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME } from "../../support/databases.ts";
import { eventually } from "../../support/eventually.ts";
import { assertNoConnections } from "../../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../../support/postgresHarness.ts";
import { ManualClock } from "../../support/recorders.ts";
import { LIST, LIST_TOPIC, type Oddity, PAYLOAD } from "./model.ts";

/** All times of the model are whole multiples of this. */
export const TIME_UNIT_MS = 50_000;

export interface RowSeen {
  readonly id: MessageId;
  readonly state: OutboxState;
  readonly attempt: number;
  readonly token: ClaimToken | null;
  /** In units of {@link TIME_UNIT_MS} from now, rounded up: the time that really went by does not show. Null for NULL. */
  readonly dueIn: number | null;
  readonly leaseEndsIn: number | null;
  readonly lastError: string | null;
  /** Its destination, if it has one. */
  readonly destination: string | null;
  readonly isExpanded: boolean;
}

export interface NewRow {
  readonly key: string | null;
  readonly topic: string;
  readonly dueInMs: number;
  readonly oddity: Oddity | null;
}

export interface ReceivedRow {
  readonly key: string | null;
  readonly topic: string;
}

/** Several replicas of the service on one database. */
export interface System extends AsyncDisposable {
  readonly replicas: readonly { readonly store: Store; readonly clock: ManualClock }[];
  insert(rows: readonly NewRow[]): Promise<readonly MessageId[]>;
  /** A replica receives rows, relays them and claims what it may. @returns the rows, and those claimed */
  receive(
    replica: number,
    received: readonly ReceivedRow[],
    request: ClaimRequest,
  ): Promise<{ readonly ids: readonly MessageId[]; readonly claimed: readonly ClaimedRow[] }>;
  /** In the order of `sequence`. */
  rows(): Promise<readonly RowSeen[]>;
  /** Locks the outbox against claims; rows are inserted by the transaction that holds the lock. */
  lockOutbox(): Promise<OutboxLock>;
  /** Begins an insert of a row that is due and stays in a BEFORE trigger. */
  insertSlowly(key: string): Promise<SlowInsert>;
  /** Lets time pass, or sets the clock back: for the database by moving every time of every row. The replicas' own clocks only advance. */
  elapse(ms: number): Promise<void>;
  /** Copies the outbox. @returns puts the copy back, as a failover that loses commits: no connection outlives it */
  copy(): Promise<() => Promise<void>>;
  /** Inserts a row that was sent: without any, a table that refuses a row may be to blame for that. */
  insertSent(): Promise<void>;
  /** Empties the outbox. */
  clear(): Promise<void>;
}

export interface OutboxLock extends AsyncDisposable {
  /** Whether a statement waits for it. */
  isWaitedFor(): Promise<boolean>;
  /** @param rows with the times of a transaction that begins now (`begunLater`), or that began with the lock */
  insert(rows: readonly { readonly key: string; readonly begunLater: boolean }[]): Promise<readonly MessageId[]>;
  release(): Promise<void>;
}

export interface SlowInsert extends AsyncDisposable {
  /** Ends the trigger's wait. @returns the id of the row, which is committed */
  finish(): Promise<MessageId>;
}

export async function openSystem(replicaCount: number): Promise<System> {
  const database = await createDatabase();
  const replicas = Array.from({ length: replicaCount }, () => {
    const clock = new ManualClock();
    return { clock, store: postgresStore(database, DEFAULT_NAMES, clock) };
  });
  await replicas[0]?.store.schema.migrate();
  for (const column of NULLABLE) await database.query(`ALTER TABLE outbox ALTER COLUMN ${column} DROP NOT NULL`);
  await database.query("ALTER TABLE outbox DROP CONSTRAINT outbox_payload_check");
  await database.query(REFUSE_SENT);
  await database.query(`
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.topic = 'slow' THEN PERFORM pg_advisory_xact_lock(1); END IF;
      RETURN NEW;
    END $$`);
  const connect = async () => {
    const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await client.connect();
    return client;
  };
  const isWaiting = (what: string) => async () => {
    const ours = "database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    return (await database.query(`SELECT FROM pg_locks WHERE NOT granted AND ${ours} AND ${what}`)).length > 0;
  };
  for (const { store } of replicas) await store.schema.checkColumns();
  const elapse = async (ms: number) => {
    await database.query(
      `UPDATE outbox SET created_at = created_at - d, updated_at = updated_at - d, scheduled_at = CASE WHEN scheduled_at = $2 THEN $2 ELSE scheduled_at - d END,
         claimed_at = claimed_at - d, lease_expires_at = lease_expires_at - d
       FROM (SELECT $1 * interval '1 millisecond' AS d) elapsed`,
      [ms, PARKED_UNTIL],
    );
    for (const { clock } of replicas) clock.advance(Math.abs(ms));
  };
  return {
    replicas,
    elapse,
    async insert(rows) {
      const inserted = await database.query<{ id: MessageId }>(
        `INSERT INTO outbox (topic, payload, key, aggregate_type, headers, created_at, updated_at, attempt, max_attempts, scheduled_at)
         SELECT CASE WHEN odd <> 'topic NULL' THEN topic END, CASE WHEN odd <> 'payload NULL' THEN $3 END, key, odd,
           CASE WHEN odd <> 'headers NULL' THEN '{}'::jsonb END,
           CASE odd WHEN 'created_at NULL' THEN NULL WHEN 'created_at infinity' THEN 'infinity' ELSE now() END,
           CASE WHEN odd <> 'updated_at NULL' THEN now() END, CASE WHEN odd <> 'attempt NULL' THEN 0 END,
           CASE WHEN odd <> 'max_attempts NULL' THEN 5 END,
           CASE WHEN odd <> 'scheduled_at NULL' THEN now() + due * interval '1 millisecond' END
         FROM unnest($1::text[], $2::int[], $4::text[], $5::text[]) WITH ORDINALITY AS r(key, due, odd, topic, n) ORDER BY n RETURNING id`,
        [
          rows.map((row) => row.key),
          rows.map((row) => row.dueInMs),
          PAYLOAD,
          rows.map((row) => row.oddity ?? "none"),
          rows.map((row) => row.topic),
        ],
      );
      return inserted.map((row) => row.id);
    },
    async receive(replica, received, request) {
      const store = replicas[replica]?.store;
      const rows = received.map(({ key, topic }) => inboxRow({ aggregateId: key, eventType: topic, payload: PAYLOAD }));
      await store?.inbox.relay(RELAY);
      const stored = await store?.inbox.insertRelayed?.(rows, RELAY, request);
      return { ids: rows.map(({ id }) => id), claimed: stored?.claimed ?? [] };
    },
    async lockOutbox() {
      const client = await connect();
      await client.query("BEGIN");
      await client.query("LOCK TABLE outbox IN EXCLUSIVE MODE");
      return {
        isWaitedFor: isWaiting("relation = 'outbox'::regclass"),
        async insert(rows) {
          const ids: MessageId[] = [];
          for (const { key, begunLater } of rows) {
            const { rows: inserted } = await client.query(
              `INSERT INTO outbox (topic, payload, key, scheduled_at, created_at, updated_at)
               SELECT 'orders', $1, $2, t, t, t FROM (SELECT ${begunLater ? "clock_timestamp()" : "now()"} AS t) time RETURNING id`,
              [PAYLOAD, key],
            );
            ids.push((inserted[0] as { id: MessageId }).id);
          }
          return ids;
        },
        release: async () => void (await client.query("COMMIT")),
        [Symbol.asyncDispose]: () => client.end(),
      };
    },
    async insertSlowly(key) {
      const [gate, writer] = [await connect(), await connect()];
      // Receipts relay nothing while it is there.
      await gate.query("CREATE TRIGGER slow BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION wait()");
      await gate.query("SELECT pg_advisory_lock(1)");
      const inserting = writer.query("INSERT INTO outbox (topic, payload, key) VALUES ('slow', $1, $2) RETURNING id", [
        PAYLOAD,
        key,
      ]);
      inserting.catch(() => {});
      await eventually(isWaiting("locktype = 'advisory'"));
      return {
        async finish() {
          await gate.query("SELECT pg_advisory_unlock(1)");
          const { rows } = await inserting;
          return (rows[0] as { id: MessageId }).id;
        },
        async [Symbol.asyncDispose]() {
          await gate.query("SELECT pg_advisory_unlock_all()");
          await inserting.catch(() => {});
          await gate.query("DROP TRIGGER slow ON outbox");
          await gate.end();
          await writer.end();
        },
      };
    },
    rows: () =>
      database.query<RowSeen & Record<string, unknown>>(
        `SELECT id, state, coalesce(attempt, 0) AS attempt, claim_token AS token, last_error AS "lastError",
           ceil(extract(epoch FROM nullif(scheduled_at, $2) - now()) * 1000 / $1)::int AS "dueIn",
           ceil(extract(epoch FROM lease_expires_at - now()) * 1000 / $1)::int AS "leaseEndsIn",
           destination, expanded_to IS NOT NULL AS "isExpanded"
         FROM outbox ORDER BY sequence`,
        [TIME_UNIT_MS, PARKED_UNTIL],
      ),
    async copy() {
      await database.query("DROP TABLE IF EXISTS copied; CREATE TABLE copied AS SELECT * FROM outbox");
      return async () => {
        await database.query("DELETE FROM outbox; INSERT INTO outbox OVERRIDING SYSTEM VALUE SELECT * FROM copied");
        await database.query(
          `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
           WHERE datname = current_database() AND application_name <> $1`,
          [TEST_APPLICATION_NAME],
        );
        for (const { store } of replicas) await eventually(async () => store.connections.usage().idle === 0);
      };
    },
    async insertSent() {
      await database.query("INSERT INTO outbox (topic, payload, state) VALUES ('orders', '{}', 'sent')");
    },
    async clear() {
      await database.query("DELETE FROM outbox; DELETE FROM inbox");
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

export const LIST_ROUTING: TopicRouting = {
  ...ROUTING,
  listOf: (topic) => (topic === LIST_TOPIC ? LIST : undefined),
};

/** Event types are topics. */
const RELAY = relayRequest({ topics: { orders: ["", ""] }, routing: LIST_ROUTING, mayExpand: () => true });

/** What an owner's table may allow. */
const NULLABLE = [
  "topic",
  "payload",
  "headers",
  "created_at",
  "updated_at",
  "scheduled_at",
  "attempt",
  "max_attempts",
] as const;

const REFUSE_SENT = `
CREATE FUNCTION refuse_sent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse_sent BEFORE UPDATE ON outbox FOR EACH ROW
  WHEN (NEW.state = 'sent' AND OLD.aggregate_type = 'sent refused') EXECUTE FUNCTION refuse_sent();`;
