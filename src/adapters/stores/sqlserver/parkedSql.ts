import type { TableNames } from "../sql/names.ts";
import type { ParkedStatements } from "../sql/parked.ts";
import {
  BATCH,
  BEGIN,
  BY_ID,
  COLLATED,
  COMMIT,
  NAMED_IDS,
  NOW,
  ONE_BY_ONE,
  PARKED_AT,
  routedColumns,
  TO_READ,
} from "./fragments.ts";
import { noteAction } from "./historySql.ts";
import { type Statement, statement } from "./statement.ts";

/** Every statement on parked rows. @param isNoting whether changes add to the history */
export function parkedStatements(names: TableNames, isNoting: boolean): ParkedStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  /** The index of rows in backoff finds them. */
  const isParked = `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;

  /** All statements lock rows in the order of their ids; the second one finds them changed, and leaves them. */
  const change = (set: string, noted: string, condition = isParked): string => `${BATCH}
${NOW}
${NAMED_IDS}
DECLARE @changed TABLE (id uniqueidentifier NOT NULL);
${isNoting ? BEGIN : ""}
UPDATE o
SET ${c.updatedAt} = @now, ${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL, ${set}
OUTPUT inserted.${c.id} INTO @changed (id)
FROM @named n JOIN ${table} o ${BY_ID.change} ON o.${c.id} = n.id
WHERE ${condition}
${ONE_BY_ONE};
${isNoting ? `${noted}\n${COMMIT}` : ""}
SELECT COUNT(*) AS changed FROM @changed;`;

  const discard = (name: string, condition: string): Statement =>
    statement(`${name}(ids list, before longText${isNoting ? ", by longText, note longText" : ""})`)(
      change(
        `${c.state} = N'dead', ${c.lastError} = CONCAT(@before, N': ' + o.${c.lastError})`,
        noteAction(names, "discarded", "@note"),
        condition,
      ),
    );

  return {
    /** `@ids`: JSON array; null means any. Keys are compared letter for letter, whatever the collation. */
    list: statement("parked.list(from bigint, limit int, ids list, key longText)")`${BATCH}
${NAMED_IDS}
SELECT TOP (@limit) o.${c.id} AS id, CONVERT(nvarchar(20), o.${c.sequence}) AS sequence, o.${c.topic} AS topic, ${routedColumns(c, "o")}, o.${c.key} AS [key],
  o.${c.attempt} AS attempt, o.${c.updatedAt} AS updated_at, LEFT(o.${c.lastError}, 200) AS last_error
FROM ${table} o ${TO_READ}
WHERE ${isParked} AND o.${c.sequence} > @from
  AND (@ids IS NULL OR EXISTS (SELECT 1 FROM @named n WHERE n.id = o.${c.id}))
  AND (@key IS NULL OR (o.${c.key} IS NOT NULL AND CONCAT(@key, N'.') = CONCAT(o.${c.key}, N'.') ${COLLATED}))
ORDER BY o.${c.sequence};`,

    retry: statement(`parked.retry(ids list${isNoting ? ", by longText" : ""})`)(
      change(`${c.attempt} = 0, ${c.scheduledAt} = @now`, noteAction(names, "retried", "NULL")),
    ),

    hasten: statement(`parked.hasten(ids list${isNoting ? ", by longText" : ""})`)(
      change(
        `${c.scheduledAt} = @now`,
        noteAction(names, "retried", "NULL"),
        `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} > @now AND o.${c.scheduledAt} <> ${PARKED_AT}`,
      ),
    ),

    discard: discard("parked.discard", isParked),
    discardPending: discard("parked.discard pending", `o.${c.state} = N'pending'`),
  };
}
