import type { OperatorEvent } from "../../../ports/historyStore.ts";
import { entryColumns, type HistoryStatements, type NewEntry } from "../sql/history.ts";
import type { TableNames } from "../sql/names.ts";
import { BATCH, BY_ID, COLLATED, NAMED_IDS, ONE_BY_ONE } from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

export function historyStatements(names: TableNames): HistoryStatements<Statement> {
  const { historyTable: table, history: c } = names;
  const entries = `CONVERT(nvarchar(20), h.${c.id}) AS sequence, h.${c.outboxId} AS id, h.${c.at} AS at, h.${c.event} AS event,
  h.${c.attempt} AS attempt, h.${c.actor} AS actor, h.${c.destination} AS destination, h.${c.code} AS code, h.${c.status} AS status,
  h.${c.durationMs} AS duration_ms, h.${c.reason} AS reason FROM ${table} h`;
  const newestLast = (from: string): string => `SELECT n.* FROM (${from}) n ORDER BY CONVERT(bigint, n.sequence);`;
  return {
    trial: statement("history.trial(id uuid)")`
${BATCH}
DELETE FROM ${table} WHERE ${c.outboxId} = @id;
INSERT INTO ${table} (${entryColumns(names)})
SELECT @id, N'sent', 1, N'', N'', N'', N'', (SELECT COUNT(*) FROM ${table} h WHERE h.${c.outboxId} = @id), N'';`,

    of: statement("history.of a row(id uuid, limit int)")(
      newestLast(`SELECT TOP (@limit) ${entries} WHERE h.${c.outboxId} = @id ORDER BY h.${c.id} DESC`),
    ),
    newest: statement("history.newest(limit int)")(
      newestLast(`SELECT TOP (@limit) ${entries} ORDER BY h.${c.id} DESC`),
    ),
    since: statement(
      "history.since(after bigint, limit int)",
    )`SELECT TOP (@limit) ${entries} WHERE h.${c.id} > @after ORDER BY h.${c.id};`,

    forget: statement("history.forget(ids list)", { timeoutMs: 5000 })`${BATCH}
${NAMED_IDS}
DELETE h FROM @named n JOIN ${table} h ${BY_ID.change} ON h.${c.outboxId} = n.id
${ONE_BY_ONE};`,
  };
}

export const ENTRY_PARAMETERS = "entries longText";

/** Adds the entries of `@entries`, a JSON array, whose rows are in `@closed`, in the order of the array. */
export function noteSettled(names: TableNames): string {
  return `INSERT INTO ${names.historyTable} (${entryColumns(names)})
SELECT e.id, e.event, e.attempt, e.actor, e.destination, e.code, e.status, e.duration_ms, e.reason
FROM OPENJSON(@entries) WITH (turn int '$.turn', id uniqueidentifier '$.id', event nvarchar(20) ${COLLATED} '$.event', attempt int '$.attempt', actor nvarchar(400) ${COLLATED} '$.actor',
  destination nvarchar(400) ${COLLATED} '$.destination', code nvarchar(100) ${COLLATED} '$.code', status nvarchar(100) ${COLLATED} '$.status', duration_ms int '$.durationMs',
  reason nvarchar(2000) ${COLLATED} '$.reason') e
WHERE e.id IN (SELECT c.id FROM @closed c)
ORDER BY e.turn;`;
}

export function entryValues(entries: readonly NewEntry[]) {
  return { entries: JSON.stringify(entries.map((entry, turn) => ({ ...entry, turn }))) };
}

/** Adds an entry for each row of `@changed`. @param note an expression */
export function noteAction({ historyTable, history: c }: TableNames, event: OperatorEvent, note: string): string {
  return `INSERT INTO ${historyTable} (${c.outboxId}, ${c.event}, ${c.actor}, ${c.reason})
SELECT r.id, N'${event}', @by, ${note} FROM @changed r;`;
}
