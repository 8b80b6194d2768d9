import { CONDITION } from "../../../model/rows.ts";
import type { TableNames } from "../sql/names.ts";
import { asBit, COLLATED, expiresInMs, hasCome, routedColumns } from "./fragments.ts";

/** @param names already quoted */
export function outboxParts(names: TableNames) {
  const table = names.outboxTable;
  const c = names.outbox;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;
  /** Never ahead of the row's new `updated_at`, or later rows of its key would overtake it. */
  const scheduledAtGivenBack = `CASE WHEN o.${c.scheduledAt} > @now THEN @now ELSE o.${c.scheduledAt} END`;
  const isDue = `o.${c.state} = N'pending' AND ${hasCome(`o.${c.scheduledAt}`)}`;

  /** Letter for letter, whatever the collation; the dot keeps spaces at the end. NULL counts as empty. */
  const goesTo = (row: string, destination: string): string =>
    `CONCAT(${row}.${c.destination}, N'.') = CONCAT(${destination}, N'.') ${COLLATED}`;

  const hasLists = c.messageSequence !== null && c.expandedTo !== null && c.destination !== null;
  const isDelivery = (row: string): string => `${row}.${c.messageSequence} IS NOT NULL`;
  const isNoDelivery = (row: string): string => `${row}.${c.messageSequence} IS NULL`;
  const placeOf = (row: string): string =>
    hasLists ? `COALESCE(${row}.${c.messageSequence}, ${row}.${c.sequence})` : `${row}.${c.sequence}`;

  /**
   * The rows `row` of a key that may stop a row `of`: other rows that are no deliveries, and deliveries to its
   * destination. An index finds each kind in the order of its `place`.
   *
   * @param goesThere whether a delivery `row` goes to the destination of the row `of`
   * @returns of each kind further conditions on `row`, and the condition on `of` that both are in one lane; without
   *   lists there is one kind without conditions
   */
  const stopping = (row: string, of: string, goesThere: string): readonly Stopping[] => {
    const { sequence, messageSequence } = c;
    if (!hasLists || messageSequence === null) return [{ which: "", place: sequence, isOneLane: "" }];
    const mayGoThere = `${row}.${c.destination} IS NULL OR ${goesTo(row, `${of}.${c.destination}`)} OR ${row}.${c.routes} <> @routes`;
    return [
      {
        which: ` AND ${isNoDelivery(row)} AND (${isNoDelivery(of)} OR ${mayGoThere})`,
        place: sequence,
        isOneLane: isNoDelivery(of),
      },
      { which: ` AND ${isDelivery(row)} AND ${goesThere}`, place: messageSequence, isOneLane: isDelivery(of) },
    ];
  };

  const carried = [c.id, c.aggregateType, c.payload, c.headers].map((column) => `m.${column}`).join(", ");
  /**
   * Joins the message rows `m`, locked or not: a sent message does not change what its deliveries carry, and a wait
   * after the claim's commit would use up the lease.
   */
  const joinMessage = hasLists
    ? `
OUTER APPLY (SELECT TOP (1) ${carried} FROM ${table} m WITH (READUNCOMMITTED)
  WHERE m.${c.sequence} = o.${c.messageSequence} AND m.${c.state} IN (N'sent', N'dead')) m`
    : "";
  const lengthOf = (row: string): string => `DATALENGTH(${row}.${c.payload}) / DATALENGTH(N'x')`;
  const bytes = `COALESCE(${lengthOf("o")}, 0)`;
  /** Of any row, with {@link joinMessage}. */
  const anyBytes = hasLists ? `COALESCE(${lengthOf("o")}, ${lengthOf("m")}, 0)` : bytes;

  /** @param written writes a column that a delivery has from its message */
  const columnsOf = (written: (column: string) => string): string =>
    `o.${c.id} AS id, o.${c.sequence} AS sequence, o.${c.topic} AS topic, ${routedColumns(c, "o")}, o.${c.key} AS [key],
  ${written(c.aggregateType)} AS aggregate_type, ${written(c.payload)} AS payload, ${written(c.headers)} AS headers, o.${c.attempt} AS attempt,
  o.${c.maxAttempts} AS max_attempts, o.${c.createdAt} AS created_at, ${expiresInMs(c.expiresAt, "o")} AS expires_in_ms`;
  /** The columns of a claimed row that is no delivery, by the names that `claimedRow` reads. */
  const claimedColumns = columnsOf((column) => `o.${column}`);
  /** The same of any claimed row, with {@link joinMessage}. */
  const anyClaimedColumns = hasLists
    ? `${columnsOf((column) => `CASE WHEN ${isDelivery("o")} THEN m.${column} ELSE o.${column} END`)},
  m.${c.id} AS message_id, ${asBit(`${isDelivery("o")} AND o.${c.lastError} LIKE N'${CONDITION}%'`)} AS has_open_condition`
    : claimedColumns;

  return {
    table,
    c,
    unclaimed,
    scheduledAtGivenBack,
    isDue,
    goesTo,
    hasLists,
    isDelivery,
    isNoDelivery,
    placeOf,
    stopping,
    joinMessage,
    bytes,
    anyBytes,
    claimedColumns,
    anyClaimedColumns,
  };
}

export type OutboxParts = ReturnType<typeof outboxParts>;

interface Stopping {
  readonly which: string;
  readonly place: string;
  readonly isOneLane: string;
}
