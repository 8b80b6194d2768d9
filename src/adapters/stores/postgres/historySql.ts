import type { OperatorEvent } from "../../../ports/historyStore.ts";
import { entryColumns, type HistoryStatements, type NewEntry } from "../sql/history.ts";
import type { TableNames } from "../sql/names.ts";
import type { Values } from "../sql/rows.ts";
import { msOf, ordered } from "./fragments.ts";
import { arraysOf, byIndex, type Statement, statement, uuidArray } from "./statement.ts";

export function historyStatements(names: TableNames): HistoryStatements<Statement> {
  const { historyTable: table, history: c } = names;
  const entries = `SELECT h.${c.id}::text AS sequence, h.${c.outboxId} AS id, ${msOf(`h.${c.at}`)} AS at, h.${c.event} AS event,
  h.${c.attempt} AS attempt, h.${c.actor} AS actor, h.${c.destination} AS destination, h.${c.code} AS code, h.${c.status} AS status,
  h.${c.durationMs} AS duration_ms, h.${c.reason} AS reason FROM ${ordered(`${table} h`)}`;
  const newestLast = (from: string): string => `SELECT n.* FROM (${from}) n ORDER BY n.sequence::bigint`;
  return {
    trial: statement("history.trial(id)")`
WITH seen AS (SELECT count(*) AS entries FROM ${table} h WHERE h.${c.outboxId} = $1::uuid),
deleted AS (DELETE FROM ${table} h WHERE h.${c.outboxId} = $1::uuid),
added AS (
  INSERT INTO ${table} (${entryColumns(names)})
  SELECT $1::uuid, 'sent', 1, '', '', '', '', s.entries, '' FROM seen s
)
SELECT entries FROM seen`,

    of: byIndex("history.of a row(id, limit)")(
      newestLast(`${entries} WHERE h.${c.outboxId} = $1::uuid ORDER BY h.${c.id} DESC LIMIT $2::int`),
    ),
    newest: byIndex("history.newest(limit)")(newestLast(`${entries} ORDER BY h.${c.id} DESC LIMIT $1::int`)),
    since: byIndex("history.since(after, limit)")(
      `${entries} WHERE h.${c.id} > $1::bigint ORDER BY h.${c.id} LIMIT $2::int`,
    ),

    forget: byIndex("history.forget(ids)", { timeoutMs: 5000 })`
DELETE FROM ${table} h WHERE h.${c.outboxId} = ANY ($1::uuid[])`,
  };
}

const ENTRY = {
  notedIds: "id",
  notedEvents: "event",
  notedAttempts: "attempt",
  notedActors: "actor",
  notedDestinations: "destination",
  notedCodes: "code",
  notedStatuses: "status",
  notedDurations: "durationMs",
  notedReasons: "reason",
} as const satisfies Record<string, keyof NewEntry>;
const ENTRY_TYPES = ["uuid", "text", "int", "text", "text", "text", "text", "int", "text"];
export const ENTRY_PARAMETERS = Object.keys(ENTRY).join(", ");

/**
 * Adds the entries of settled rows, in their order.
 *
 * @param settled a query with their ids
 * @param first the number of the first parameter
 */
export function noteSettled(names: TableNames, settled: string, first: number): string {
  const arrays = ENTRY_TYPES.map((type, n) => `$${first + n}::${type}[]`);
  return `INSERT INTO ${names.historyTable} (${entryColumns(names)})
  SELECT n.id, n.event, n.attempt, n.actor, n.destination, n.code, n.status, n.duration_ms, n.reason
  FROM unnest(${arrays.join(", ")}) WITH ORDINALITY AS n(id, event, attempt, actor, destination, code, status, duration_ms, reason, position)
  WHERE n.id IN (${settled}) ORDER BY n.position`;
}

/** @param entries one at least */
export function entryValues(entries: readonly NewEntry[]): Values {
  return { ...arraysOf(entries, ENTRY), notedIds: uuidArray(entries.map(({ id }) => id)) };
}

/** Adds an entry for each changed row. @param changed a query of the `WITH` with `id` @param by, note parameters */
export function noteAction(
  { historyTable, history: c }: TableNames,
  event: OperatorEvent,
  changed: string,
  by: string,
  note: string,
): string {
  return `,
noted AS (
  INSERT INTO ${historyTable} (${c.outboxId}, ${c.event}, ${c.actor}, ${c.reason})
  SELECT id, '${event}', ${by}, ${note} FROM ${changed}
)`;
}
