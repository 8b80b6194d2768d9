import type { TableNames } from "../sql/names.ts";
import type { ColumnTypes } from "./columns.ts";
import { destinationStatements } from "./destinationsSql.ts";
import { parkedStatements, replayStatements, retentionStatements } from "./finishedSql.ts";
import { historyStatements } from "./historySql.ts";
import { journalStatements } from "./journalSql.ts";
import { messageStatements } from "./messagesSql.ts";
import { cellStatements, operationsStatements } from "./operationsSql.ts";
import { outboxParts } from "./outboxParts.ts";
import { outboxStatements } from "./outboxSql.ts";
import { pullStatements } from "./pullSql.ts";
import { receiptStatements } from "./receipt.ts";
import { relayStatements } from "./relay.ts";

/** The statements that do not depend on the columns of an owner's tables. @param names already quoted */
export function fixedStatements(names: TableNames) {
  return {
    cell: cellStatements(names),
    destinations: destinationStatements(names),
    history: historyStatements(names),
    journal: journalStatements(names),
  };
}

/**
 * @param names already quoted
 * @param mayBeCitus see `receiptStatements`
 * @param isNoting whether what operators change is added to the history
 */
export function tableStatements(names: TableNames, types: ColumnTypes, mayBeCitus: boolean, isNoting: boolean) {
  const outbox = outboxParts(names, types.outboxPayload);
  return {
    receipt: receiptStatements(names, types, mayBeCitus),
    /**
     * Receipts do not relay on Citus, which would run their statement in parts: its order rests on one snapshot. Nor
     * if columns change the texts of topic and headers: a pass of the relay would make others.
     */
    relay: relayStatements(names, types, mayBeCitus || !types.keepsTexts ? undefined : outbox),
    outbox: outboxStatements(names, outbox),
    pull: pullStatements(names, types.inboxPayload),
    messages: messageStatements(names),
    operations: operationsStatements(names),
    parked: parkedStatements(names, isNoting),
    replay: replayStatements(names, types, isNoting),
    retention: retentionStatements(names),
  };
}
