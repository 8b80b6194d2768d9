import { expect } from "@jest/globals";
import { type PostgresLogicalOptions, postgresLogical } from "../../src/adapters/capture/postgresLogical.ts";
import { Secret } from "../../src/model/secret.ts";
import type { LogPosition } from "../../src/ports/capture.ts";
import { systemClock } from "../../src/time/clock.ts";
import { createDatabase, onServer, type TestDatabase } from "./databases.ts";
import { eventually } from "./eventually.ts";
import { recordingLog, recordingMetrics } from "./recorders.ts";
import { within } from "./within.ts";

type Overrides = Partial<PostgresLogicalOptions["server"]> & Partial<PostgresLogicalOptions["names"]>;

/** A database with an outbox and a slot name of its own; the slot is dropped at the end. */
export async function createOutbox(statements: readonly string[] = [PUBLICATION]) {
  const database = await createDatabase();
  await database.query("CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, payload text)");
  await database.query("CREATE TABLE other (id bigint GENERATED ALWAYS AS IDENTITY, payload text)");
  for (const statement of statements) await database.query(statement);
  const slot = database.name.slice(0, 60);
  return {
    database,
    slot,
    async [Symbol.asyncDispose]() {
      await eventually(async () => {
        await onServer(
          "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active",
          [slot],
        );
        return (await slotOf(slot)) === undefined;
      });
      await database.drop();
    },
  };
}

const PUBLICATION = "CREATE PUBLICATION svc_outbox FOR TABLE outbox (id) WITH (publish = 'insert')";

export async function slotOf(name: string) {
  const [slot] = await onServer<{ active: boolean; unconfirmed: string }>(
    `SELECT active, pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) AS unconfirmed
       FROM pg_replication_slots WHERE slot_name = $1`,
    [name],
  );
  return slot;
}

export function changeLog(database: TestDatabase, slot: string, overrides: Overrides = {}) {
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  const changes = postgresLogical({
    server: {
      endpoints: [{ host: database.host, port: database.port, tls: false }],
      database: database.name,
      username: database.user,
      password: new Secret(database.password),
      applicationName: "svc",
      ...overrides,
    },
    names: { schema: "public", table: "outbox", idColumn: "id", publication: "svc_outbox", slot, ...overrides },
    clock: systemClock,
    metrics,
    log,
  });
  return { changes, lines, calls };
}

/** Follows until it is disposed of. */
export async function following(
  database: TestDatabase,
  slot: string,
  from: LogPosition | null = null,
  overrides: Overrides = {},
) {
  const { changes, lines, calls } = changeLog(database, slot, { statementTimeoutMs: SLOT_MADE_MS, ...overrides });
  const seen = { following: 0, inserted: [] as number[], reached: [] as LogPosition[] };
  let begin = () => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const stop = new AbortController();
  const ended = changes.follow(
    from,
    {
      following: () => {
        seen.following += 1;
        begin();
      },
      inserted: (committedAt) => void seen.inserted.push(committedAt),
      reached: (position) => void seen.reached.push(position),
    },
    stop.signal,
  );
  const end = async () => {
    stop.abort();
    await within(
      5000,
      "the end of the follower",
      ended.catch(() => {}),
    );
  };
  const failed = ended.then(() => {
    throw new Error("it ended before it followed");
  });
  await within(SLOT_MADE_MS, "the beginning of the follower", Promise.race([begun, failed])).catch(async (error) => {
    await end();
    throw error;
  });
  return { seen, lines, calls, ended, [Symbol.asyncDispose]: end };
}

/** A slot is made once every transaction has ended that was open before: also those of the tests beside this one. */
const SLOT_MADE_MS = 40_000;

export const insert = (database: TestDatabase, table = "outbox") =>
  database.query(`INSERT INTO ${table} (payload) VALUES ('{}')`);

/** The fault of a follower that cannot begin. */
export async function faultOf(database: TestDatabase, slot: string, overrides: Overrides = {}): Promise<string> {
  const { changes } = changeLog(database, slot, overrides);
  const events = { following: () => {}, inserted: () => {}, reached: () => {} };
  const error = await changes.follow(null, events, new AbortController().signal).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(Error);
  const { message } = error as Error;
  expect(message).not.toContain(database.password);
  return message;
}
