import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";

/** Something that somebody does to a whole table while the service works with it. */
export interface TableFault {
  /** For the timeline. */
  readonly what: string;
  readonly begin: readonly string[];
  readonly heldMs: number;
  /** Afterwards, each by itself. */
  readonly cleanUp: readonly string[];
}

const TABLES = ["outbox", "inbox"] as const;
const MODES = ["SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"] as const;
/** An index that an operator might add, on each table. */
const INDEXED = { outbox: "topic", inbox: "event_type" } as const;

/**
 * A lock on a table.
 *
 * @param drawn in (0, 1]: which table and which lock
 */
export function tableLock(drawn: number, heldMs: number): TableFault {
  const [table, mode] = [drawnFrom(TABLES, drawn), drawnFrom(MODES, (drawn * TABLES.length) % 1)];
  return {
    what: `${table} locked IN ${mode} MODE for ${Math.round(heldMs)} ms`,
    begin: [`LOCK TABLE ${table} IN ${mode} MODE`],
    heldMs,
    cleanUp: [],
  };
}

/**
 * An index that is made without CONCURRENTLY, in a transaction that does other things as well, and dropped again.
 *
 * @param drawn in (0, 1]: which table
 */
export function indexBuild(drawn: number, heldMs: number): TableFault {
  const table = drawnFrom(TABLES, drawn);
  return {
    what: `index made on ${table}, committed after ${Math.round(heldMs)} ms`,
    begin: [`CREATE INDEX made_by_an_operator ON ${table} (${INDEXED[table]})`],
    heldMs,
    cleanUp: ["DROP INDEX made_by_an_operator"],
  };
}

/** What has waited for the lock goes on by then, and does not wait for the next one at once. */
const CLEANED_UP_AFTER_MS = 500;

/** Does it in a transaction. @throws the database's error, when something else ended the session meanwhile */
export async function doToTable(database: { connect(): Promise<pg.Client> }, fault: TableFault): Promise<void> {
  const client = await database.connect();
  try {
    await client.query("BEGIN");
    for (const statement of fault.begin) await client.query(statement);
    await sleep(fault.heldMs);
    await client.query("COMMIT");
    if (fault.cleanUp.length > 0) await sleep(CLEANED_UP_AFTER_MS);
    for (const statement of fault.cleanUp) await client.query(statement);
  } finally {
    await client.end().catch(() => {});
  }
}

function drawnFrom<T>(all: readonly [T, ...T[]], drawn: number): T {
  return all[Math.floor(drawn * all.length) % all.length] ?? all[0];
}
