import { deliveryId } from "../../../model/deliveries.ts";
import type { Expansion } from "../../../ports/store.ts";
import type { TableNames } from "../sql/names.ts";
import type { ListStatements } from "../sql/outboxClaims.ts";
import type { Values } from "../sql/rows.ts";
import { BATCH, BEGIN, BY_ID, COLLATED, COMMIT, NAMED_IDS, NOW, ONE_BY_ONE } from "./fragments.ts";
import { ENTRY_PARAMETERS, noteSettled } from "./historySql.ts";
import type { OutboxParts } from "./outboxParts.ts";
import { type Statement, statement } from "./statement.ts";

/** The statements that make the deliveries of messages; undefined for a table without the columns. */
export function listStatements(names: TableNames, parts: OutboxParts): ListStatements<Statement> | undefined {
  const { table, c, hasLists, bytes, claimedColumns } = parts;
  if (!hasLists) return undefined;
  // Compared with a variable, the state matches no filtered index: rows are found by id.
  const pending = "DECLARE @pending nvarchar(20) = N'pending';";
  const isWaiting = `o.${c.state} = @pending AND o.${c.destination} IS NULL`;
  const copied = [c.topic, c.key, c.maxAttempts, c.createdAt, ...(c.expiresAt === null ? [] : [c.expiresAt])];

  /**
   * See PostgreSQL's. It skips locked rows; its own are locked before their entries in other indexes. Identities follow
   * the order of the insert.
   *
   * @param noted a further statement, behind the changes
   */
  const expand = (noted: string): string => `
${BATCH}
${NOW}
${pending}
DECLARE @given TABLE (id uniqueidentifier NOT NULL PRIMARY KEY, expanded_to nvarchar(max) ${COLLATED} NOT NULL);
DECLARE @made TABLE (message uniqueidentifier NOT NULL, id uniqueidentifier NOT NULL, destination nvarchar(400) ${COLLATED} NOT NULL,
  state nvarchar(20) ${COLLATED} NOT NULL, reason nvarchar(max) ${COLLATED} NULL, PRIMARY KEY (message, id));
DECLARE @waiting TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL);
DECLARE @closed TABLE (id uniqueidentifier NOT NULL);
INSERT INTO @given (id, expanded_to)
SELECT j.id, j.expanded_to
FROM OPENJSON(@messages) WITH (id uniqueidentifier '$.id', expanded_to nvarchar(max) ${COLLATED} '$.expandedTo') j;
INSERT INTO @made (message, id, destination, state, reason)
SELECT j.message, j.id, j.destination, j.state, j.reason
FROM OPENJSON(@deliveries) WITH (message uniqueidentifier '$.message', id uniqueidentifier '$.id', destination nvarchar(400) ${COLLATED} '$.destination',
  state nvarchar(20) ${COLLATED} '$.state', reason nvarchar(max) ${COLLATED} '$.reason') j;
${BEGIN}
INSERT INTO @waiting (sequence, id)
SELECT o.${c.sequence}, o.${c.id}
FROM @given g JOIN ${table} o ${BY_ID.take} ON o.${c.id} = g.id
WHERE ${isWaiting}
${ONE_BY_ONE};
UPDATE o
SET ${c.state} = N'sent', ${c.updatedAt} = @now, ${c.expandedTo} = g.expanded_to
OUTPUT inserted.${c.id} INTO @closed (id)
FROM ${table} o ${BY_ID.change} JOIN @waiting w ON o.${c.sequence} = w.sequence AND o.${c.id} = w.id JOIN @given g ON g.id = w.id;
INSERT INTO ${table} (${c.id}, ${c.messageSequence}, ${copied.join(", ")}, ${c.scheduledAt}, ${c.destination}, ${c.state}, ${c.lastError}, ${c.payload})
SELECT d.id, o.${c.sequence}, ${copied.map((column) => `o.${column}`).join(", ")},
  CASE WHEN o.${c.attempt} > 0 THEN o.${c.createdAt} ELSE o.${c.scheduledAt} END, d.destination, d.state, d.reason, NULL
FROM @waiting w JOIN ${table} o ${BY_ID.read} ON o.${c.sequence} = w.sequence AND o.${c.id} = w.id JOIN @made d ON d.message = w.id
ORDER BY o.${c.sequence};
${noted}
${COMMIT}
SELECT id FROM @closed;`;

  return {
    expand: {
      plain: statement(`outbox.expand(${EXPAND_PARAMETERS})`)(expand("")),
      noting: statement(`outbox.expand with history(${EXPAND_PARAMETERS}, ${ENTRY_PARAMETERS})`)(
        expand(noteSettled(names)),
      ),
    },
    toExpand: statement("outbox.messages to expand(ids list, maxBytes bigint)")`
${BATCH}
${NOW}
${pending}
${NAMED_IDS}
SELECT ${claimedColumns}
FROM (
  SELECT o.*, SUM(${bytes}) OVER (ORDER BY o.${c.sequence} ROWS UNBOUNDED PRECEDING) - ${bytes} AS bytes_before
  FROM @named n JOIN ${table} o ${BY_ID.look} ON o.${c.id} = n.id
  WHERE ${isWaiting}
) o
WHERE o.bytes_before < @maxBytes
ORDER BY o.${c.sequence}
${ONE_BY_ONE};`,
    valuesOf,
  };
}

function valuesOf(expansions: readonly Expansion[]): Values {
  const messages = expansions.map(({ id, deliveries }) => ({
    id,
    expandedTo: JSON.stringify(deliveries.map(({ destination }) => destination)),
  }));
  const deliveries = expansions.flatMap(({ id, deliveries }) =>
    deliveries.map(({ destination, isDead, reason }) => ({
      ...{ message: id, id: deliveryId(id, destination), destination, reason },
      state: isDead ? "dead" : "pending",
    })),
  );
  return { messages: JSON.stringify(messages), deliveries: JSON.stringify(deliveries) };
}

const EXPAND_PARAMETERS = "messages longText, deliveries longText";
