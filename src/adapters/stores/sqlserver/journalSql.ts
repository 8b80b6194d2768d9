import type { NewJournalEntry } from "../../../ports/journalStore.ts";
import { JOURNAL_TIMEOUT_MS, type JournalStatements } from "../sql/journal.ts";
import type { TableNames } from "../sql/names.ts";
import type { Values } from "../sql/rows.ts";
import { BATCH, COLLATED, NOW, placeFrom, placeNames, placeTypes, textBatch, textOf } from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

export function journalStatements(names: TableNames): JournalStatements<Statement> {
  const table = names.operations.journal;
  const { inboxTable: inbox, inbox: i, journal: c } = names;
  const timeoutMs = JOURNAL_TIMEOUT_MS;
  const columns = [c.at, c.source, c.outcome, c.idempotencyKey, c.correlationId, c.messageId, c.replica].join(", ");
  const newest = (declaration: string, condition: string): Statement =>
    statement(declaration, { timeoutMs })`
SELECT TOP (@limit) j.${c.at} AS at, j.${c.source} AS source, j.${c.outcome} AS outcome, j.${c.idempotencyKey} AS idempotency_key,
  j.${c.correlationId} AS correlation_id, j.${c.messageId} AS message_id, j.${c.replica} AS replica
FROM ${table} j WHERE ${condition} ORDER BY j.${c.id} DESC;`;
  return {
    // A duplicate's key is in the inbox: its first message is found by the index of the keys.
    add: statement("journal.add(rows longText, texts bytes)", { timeoutMs })`
${BATCH}
${NOW}
DECLARE @new TABLE (turn int NOT NULL PRIMARY KEY, age int NOT NULL, outcome nvarchar(20) ${COLLATED} NOT NULL, replica nvarchar(400) ${COLLATED} NOT NULL,
  ${TEXTS.map((column) => placeTypes(column)).join(", ")});
INSERT INTO @new (turn, age, outcome, replica, ${TEXTS.map((column) => placeNames(column)).join(", ")})
SELECT n.* FROM OPENJSON(@rows) WITH (turn int '$.turn', age int '$.age', outcome nvarchar(20) ${COLLATED} '$.outcome', replica nvarchar(400) ${COLLATED} '$.replica',
  ${TEXTS.map((column) => placeFrom(column)).join(", ")}) n;
INSERT INTO ${table} (${columns})
SELECT DATEADD(millisecond, -r.age, @now), ${textOf("source", "nvarchar(4000)")}, r.outcome, ${textOf("idempotencyKey", "nvarchar(4000)")},
  ${textOf("correlationId", "nvarchar(4000)")},
  CASE WHEN r.outcome = N'duplicate' THEN (
    SELECT TOP (1) i.${i.id} FROM ${inbox} i
    WHERE i.${i.source} = ${textOf("source", "nvarchar(4000)")} AND i.${i.idempotencyKey} = ${textOf("idempotencyKey", "nvarchar(4000)")}) END,
  r.replica
FROM @new r
ORDER BY r.turn;`,

    deleteOld: statement("journal.delete old(limit int)", { timeoutMs })`
${BATCH}
${NOW}
DELETE j
FROM ${table} j
WHERE j.${c.id} IN (SELECT TOP (@limit) p.${c.id} FROM ${table} p ORDER BY p.${c.id}) AND j.${c.at} < DATEADD(hour, -24, @now);
SELECT @@ROWCOUNT AS deleted;`,

    duplicatesOf: newest("journal.duplicates of a message(id uuid, limit int)", `j.${c.messageId} = @id`),
    byIdempotencyKey: newest(
      "journal.by idempotency key(text text, outcome text, limit int)",
      `j.${c.idempotencyKey} = @text AND j.${c.outcome} = @outcome`,
    ),
    byCorrelationId: newest(
      "journal.by correlation id(text text, outcome text, limit int)",
      `j.${c.correlationId} = @text AND j.${c.outcome} = @outcome`,
    ),

    dialect: { entryValues },
  };
}

const TEXTS = ["source", "idempotencyKey", "correlationId"] as const;

function entryValues(entries: readonly NewJournalEntry[]): Values {
  const rows = entries.map(({ ageMs, outcome, replica, source, idempotencyKey, correlationId }, turn) => ({
    turn,
    age: Math.round(ageMs),
    outcome,
    replica,
    source,
    idempotencyKey,
    correlationId,
  }));
  return { ...textBatch(rows, TEXTS) };
}
