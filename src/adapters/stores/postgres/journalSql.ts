import type { NewJournalEntry } from "../../../ports/journalStore.ts";
import { JOURNAL_TIMEOUT_MS, type JournalStatements } from "../sql/journal.ts";
import type { TableNames } from "../sql/names.ts";
import { msOf } from "./fragments.ts";
import { arraysOf, byIndex, type Statement } from "./statement.ts";

export function journalStatements(names: TableNames): JournalStatements<Statement> {
  const table = names.operations.journal;
  const { inboxTable: inbox, inbox: i, journal: c } = names;
  const timeoutMs = JOURNAL_TIMEOUT_MS;
  const columns = [c.at, c.source, c.outcome, c.idempotencyKey, c.correlationId, c.messageId, c.replica].join(", ");
  const newest = (declaration: string, condition: string): Statement =>
    byIndex(declaration, { timeoutMs })`
SELECT ${msOf(`j.${c.at}`)} AS at, j.${c.source} AS source, j.${c.outcome} AS outcome, j.${c.idempotencyKey} AS idempotency_key,
  j.${c.correlationId} AS correlation_id, j.${c.messageId} AS message_id, j.${c.replica} AS replica
FROM ${table} j WHERE ${condition} ORDER BY j.${c.id} DESC LIMIT $1::int`;
  return {
    // A duplicate's key is in the inbox: its first message is found by the index of the keys.
    add: byIndex(`journal.add(${Object.keys(ENTRY).join(", ")})`, { timeoutMs })`
INSERT INTO ${table} (${columns})
SELECT now() - n.age * interval '1 millisecond', n.source, n.outcome, n.idempotency_key, n.correlation_id,
  CASE WHEN n.outcome = 'duplicate' THEN (
    SELECT i.${i.id} FROM ${inbox} i WHERE i.${i.source} = n.source AND i.${i.idempotencyKey} = n.idempotency_key LIMIT 1) END,
  n.replica
FROM unnest($1::float8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
  WITH ORDINALITY AS n(age, source, outcome, idempotency_key, correlation_id, replica, position)
ORDER BY n.position`,

    deleteOld: byIndex("journal.delete old(limit)", { timeoutMs })`
WITH deleted AS (
  DELETE FROM ${table} j WHERE j.${c.id} = ANY (ARRAY(
    SELECT o.id FROM (SELECT p.${c.id} AS id, p.${c.at} AS at FROM ${table} p ORDER BY p.${c.id} LIMIT $1::int) o WHERE o.at < now() - interval '24 hours'))
  RETURNING 1
)
SELECT count(*)::int AS deleted FROM deleted`,

    duplicatesOf: newest("journal.duplicates of a message(limit, id)", `j.${c.messageId} = $2::uuid`),
    byIdempotencyKey: newest(
      "journal.by idempotency key(limit, text, outcome)",
      `j.${c.idempotencyKey} = $2::text AND j.${c.outcome} = $3::text`,
    ),
    byCorrelationId: newest(
      "journal.by correlation id(limit, text, outcome)",
      `j.${c.correlationId} = $2::text AND j.${c.outcome} = $3::text`,
    ),

    dialect: { entryValues: (entries) => arraysOf(entries, ENTRY) },
  };
}

const ENTRY = {
  ages: "ageMs",
  sources: "source",
  outcomes: "outcome",
  idempotencyKeys: "idempotencyKey",
  correlationIds: "correlationId",
  replicas: "replica",
} as const satisfies Record<string, keyof NewJournalEntry>;
