import type { MessageId } from "../../../model/rows.ts";
import {
  type JournalEntry,
  type JournalOutcome,
  type JournalStore,
  MOST_COUNTED,
  type NewJournalEntry,
} from "../../../ports/journalStore.ts";
import { countOf, dateOf, type Named, type Row, type StatementRunner, textOf, type Values } from "./rows.ts";

/** `deleteOld` answers `deleted`. */
export interface JournalStatements<S>
  extends Named<S, "add" | "deleteOld" | "duplicatesOf" | "byIdempotencyKey" | "byCorrelationId"> {
  readonly dialect: {
    /** @param entries one at least */
    entryValues(entries: readonly NewJournalEntry[]): Values;
  };
}

export function journalStore<S>(runner: StatementRunner<S>, sql: JournalStatements<S>): JournalStore {
  return {
    async add(entries) {
      await runner.run(sql.add, sql.dialect.entryValues(entries));
    },

    async deleteOld(limit) {
      return countOf(await runner.run(sql.deleteOld, { limit }), "deleted");
    },

    async duplicatesOf(id, limit) {
      const rows = await runner.run(sql.duplicatesOf, { id, limit: MOST_COUNTED });
      return { entries: rows.slice(0, limit).map(journalEntry), count: rows.length };
    },

    async find(search, limit) {
      const [statement, text] =
        "idempotencyKey" in search
          ? [sql.byIdempotencyKey, search.idempotencyKey]
          : [sql.byCorrelationId, search.correlationId];
      return (await runner.run(statement, { text, outcome: search.outcome, limit })).map(journalEntry);
    },
  };
}

function journalEntry(row: Row): JournalEntry {
  return {
    at: dateOf(row.at) ?? new Date(0),
    source: String(row.source),
    outcome: row.outcome as JournalOutcome,
    idempotencyKey: textOf(row.idempotency_key),
    correlationId: textOf(row.correlation_id),
    messageId: textOf(row.message_id) as MessageId | null,
    replica: String(row.replica),
  };
}

/** How long a statement may take, in ms: the journal is not worth a connection for longer. */
export const JOURNAL_TIMEOUT_MS = 2000;
