import type { ClaimedRow } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import type { TestDatabase } from "./databases.ts";
import { DEFAULT_NAMES, databaseCopies, migratedDatabase, withStoreOn } from "./postgresHarness.ts";

/** A database with the bundled tables, without the constraints that a table of an owner's own need not have. */
async function looseTables(): Promise<TestDatabase> {
  const database = await migratedDatabase();
  for (const table of ["inbox", "outbox"]) {
    const columns = await database.query<{ name: string }>(
      `SELECT attname AS name FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND attnotnull
         AND attname NOT IN ('id', 'sequence')`,
      [table],
    );
    for (const { name } of columns) await database.query(`ALTER TABLE ${table} ALTER COLUMN ${name} DROP NOT NULL`);
  }
  await database.query("ALTER TABLE outbox DROP CONSTRAINT outbox_payload_check");
  return database;
}

/** Databases with such tables, and what gives one of them to a body, with a store on it. Call it at the top level of the file. */
export function useLooseTables() {
  const open = databaseCopies(looseTables);
  const withTables = async <T>(body: (store: Store, database: TestDatabase) => Promise<T>): Promise<T> => {
    await using database = await open();
    return await withStoreOn(database, DEFAULT_NAMES, (store) => body(store, database));
  };
  return { open, withTables };
}

/** A trigger that raises an error if its condition on `NEW` (or `OLD`) holds. */
export async function refuse(
  database: TestDatabase,
  when: string,
  table: string,
  condition: string,
  more = "",
): Promise<void> {
  await database.query(
    `CREATE FUNCTION refuse_${table}() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       IF ${condition} THEN RAISE EXCEPTION 'not this one' ${more}; END IF;
       RETURN coalesce(NEW, OLD);
     END $$`,
  );
  await database.query(
    `CREATE TRIGGER refuse BEFORE ${when} ON ${table} FOR EACH ROW EXECUTE FUNCTION refuse_${table}()`,
  );
}

/**
 * A trigger that drops what is written to rows if its condition on `NEW` holds, without an error.
 *
 * @param returned what it returns for them
 */
export async function skip(
  database: TestDatabase,
  when: string,
  table: string,
  condition: string,
  returned: "NULL" | "OLD" = "NULL",
): Promise<void> {
  await database.query(
    `CREATE FUNCTION skip_${table}() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN IF ${condition} THEN RETURN ${returned}; END IF; RETURN coalesce(NEW, OLD); END $$`,
  );
  await database.query(`CREATE TRIGGER skip BEFORE ${when} ON ${table} FOR EACH ROW EXECUTE FUNCTION skip_${table}()`);
}

/** Gives every text of the tables a nondeterministic collation of its own. */
export async function collate(database: TestDatabase): Promise<void> {
  await database.query(
    `DO $$ DECLARE c record; BEGIN
       FOR c IN SELECT attrelid::regclass AS of, attname AS name, format('"%s of %s"', attname, attrelid::regclass) AS collation
           FROM pg_attribute WHERE attrelid IN ('inbox'::regclass, 'outbox'::regclass) AND attnum > 0 AND atttypid = 'text'::regtype LOOP
         EXECUTE format('CREATE COLLATION %s (provider = icu, locale = ''und'', deterministic = false)', c.collation);
         EXECUTE format('ALTER TABLE %s ALTER COLUMN %I TYPE text COLLATE %s', c.of, c.name, c.collation);
       END LOOP;
     END $$`,
  );
}

export const states = (database: TestDatabase) =>
  database.query("SELECT topic, state, last_error FROM outbox ORDER BY sequence");

export const claimed = async (store: Store): Promise<readonly ClaimedRow[]> =>
  (await store.outbox.claim(claimRequest())).rows;

/** Event types are topics. */
export const TO_ANY = relayRequest({ topics: { orders: ["", ""] } });

/** Enough passes for a few rows. */
export async function relayAll(store: Store): Promise<void> {
  for (let pass = 0; pass < 5; pass += 1) await store.inbox.relay(TO_ANY);
}

/** A row goes all the way: only tables that have taken rows show which row is to blame. */
export async function passOne(store: Store): Promise<void> {
  await store.inbox.insert([inboxRow({ eventType: "before" })]);
  await relayAll(store);
  const [row] = await claimed(store);
  if (row === undefined) throw new Error("no row was claimed");
  await store.outbox.settle([sent(row)]);
}
