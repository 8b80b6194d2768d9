import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";

/** Something that somebody does to a table, or to rows of it, while the service works with it. */
export interface TableFault {
  /** For the timeline. */
  readonly what: string;
  readonly begin: readonly string[];
  readonly heldMs: number;
}

const TABLES = ["outbox", "inbox"] as const;
const MODES = ["SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"] as const;

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
  };
}

/**
 * A lock on rows that wait, are being delivered, or are parked.
 *
 * @param share of them, drawn by the server
 */
export function rowLocks(share: number, heldMs: number): TableFault {
  return {
    what: `${Math.round(share * 100)} % of the unfinished rows locked for ${Math.round(heldMs)} ms`,
    begin: [
      `SELECT FROM outbox WHERE state IN ('pending', 'processing') AND random() < ${share} FOR UPDATE SKIP LOCKED`,
    ],
    heldMs,
  };
}

/** How long a statement may wait for its lock, while everybody else waits behind it, and how often it is tried. */
const LOCK_TIMEOUT_MS = 300;
const TRIES = 20;
export const LOCK_NOT_AVAILABLE = "55P03";

/**
 * Begins a transaction with statements that lock whole tables. If it waited behind an application's long transaction, it would block everybody for as long: so
 * it gives up soon, as a careful operator sets it, and tries again.
 *
 * @throws the database's error
 */
export async function beginLocked(client: pg.Client, statements: readonly string[]): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    await client.query(`BEGIN; SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
    try {
      for (const statement of statements) await client.query(statement);
      return;
    } catch (error) {
      await client.query("ROLLBACK");
      if (tries === TRIES || (error as { readonly code?: string }).code !== LOCK_NOT_AVAILABLE) throw error;
      await sleep(LOCK_TIMEOUT_MS);
    }
  }
}

/** Does it in a transaction. @throws the database's error, when something else ended the session meanwhile */
export async function doToTable(database: { connect(): Promise<pg.Client> }, fault: TableFault): Promise<void> {
  const client = await database.connect();
  try {
    await beginLocked(client, fault.begin);
    await sleep(fault.heldMs);
    await client.query("COMMIT");
  } finally {
    await client.end().catch(() => {});
  }
}

function drawnFrom<T>(all: readonly [T, ...T[]], drawn: number): T {
  return all[Math.floor(drawn * all.length) % all.length] ?? all[0];
}
