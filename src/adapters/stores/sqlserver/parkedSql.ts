import type { TableNames } from "../sql/names.ts";
import { BATCH, BY_ID, NAMED_IDS, NOW, ONE_BY_ONE, PARKED_AT, TO_LOOK } from "./fragments.ts";
import type { Statement } from "./statement.ts";

/** Every statement on parked rows, with the configured names woven in once. */
export function parkedStatements(names: TableNames) {
  const table = names.outboxTable;
  const c = names.outbox;
  /** The index of rows in backoff finds them. */
  const isParked = `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;

  /** Rows are locked in the order of their ids by everybody; whoever comes second finds them changed, and leaves them. */
  const change = (set: string): string => `${BATCH}
${NOW}
${NAMED_IDS}
UPDATE o
SET ${c.updatedAt} = @now, ${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL, ${set}
FROM @named n JOIN ${table} o ${BY_ID.change} ON o.${c.id} = n.id
WHERE ${isParked}
${ONE_BY_ONE};
SELECT @@ROWCOUNT AS changed;`;

  return {
    /** `@ids` is a JSON array; null for what is not asked. Keys are compared letter for letter, whatever the column's collation. */
    list: {
      name: "parked.list",
      parameters: { from: "bigint", limit: "int", ids: "longText", key: "longText" },
      text: `${BATCH}
${NAMED_IDS}
SELECT TOP (@limit) o.${c.id} AS id, CONVERT(nvarchar(20), o.${c.sequence}) AS sequence, o.${c.topic} AS topic, o.${c.key} AS [key],
  o.${c.attempt} AS attempt, o.${c.updatedAt} AS updated_at, LEFT(o.${c.lastError}, 200) AS last_error
FROM ${table} o ${TO_LOOK}
WHERE ${isParked} AND o.${c.sequence} > @from
  AND (@ids IS NULL OR EXISTS (SELECT 1 FROM @named n WHERE n.id = o.${c.id}))
  AND (@key IS NULL OR (o.${c.key} IS NOT NULL AND CONCAT(@key, N'.') = CONCAT(o.${c.key}, N'.') COLLATE Latin1_General_100_BIN2))
ORDER BY o.${c.sequence};`,
    },

    retry: {
      name: "parked.retry",
      parameters: { ids: "longText" },
      text: change(`${c.attempt} = 0, ${c.scheduledAt} = @now`),
    },

    /** `@before` stands in front of the last error; where it is null, `@whole` takes its place. */
    discard: {
      name: "parked.discard",
      parameters: { ids: "longText", before: "longText", whole: "longText" },
      text: change(
        `${c.state} = N'dead', ${c.lastError} = CASE WHEN @before IS NULL THEN @whole ELSE CONCAT(@before, N': ' + o.${c.lastError}) END`,
      ),
    },
  } as const satisfies Record<string, Statement>;
}

export type ParkedStatements = ReturnType<typeof parkedStatements>;
