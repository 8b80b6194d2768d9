import type { TableNames } from "./names.ts";

interface ListDialect {
  readonly word: (text: string) => string;
  readonly hasNoDestination: string;
  readonly goesTo: (destination: string) => string;
  /** A query of one value of a row `m`. */
  readonly one: (column: string, where: string) => string;
}

/** Parts of statements on the messages of lists and their deliveries, for tables with and without those columns. */
export function listParts({ outbox: c }: TableNames, { word, hasNoDestination, goesTo, one }: ListDialect) {
  const hasLists = c.messageSequence !== null && c.expandedTo !== null && c.destination !== null;
  const delivery = (row: string): string => (hasLists ? `${row}.${c.messageSequence}` : "NULL");
  const isIn = (row: string, ...states: readonly string[]) => `${row}.${c.state} IN (${states.map(word).join(", ")})`;
  /** A column of the message of a delivery `o`; NULL for any other row. */
  const ofMessage = (column: string | null): string =>
    hasLists ? one(`m.${column}`, `m.${c.sequence} = ${delivery("o")} AND ${isIn("m", "sent", "dead")}`) : "NULL";
  return {
    hasLists,
    ofMessage,
    /** A column that a delivery has from its message. */
    carried: (column: string): string =>
      hasLists ? `CASE WHEN ${delivery("o")} IS NULL THEN o.${column} ELSE ${ofMessage(column)} END` : `o.${column}`,
    /** Columns of a row `o`, by the names that `outboxMessage` reads. */
    columns: `${hasLists ? `o.${c.expandedTo}` : "NULL"} AS expanded_to, ${ofMessage(c.id)} AS message_id`,
    placed: (row: string): string =>
      `COALESCE(${delivery(row)}, ${row}.${c.sequence}) AS place, ${delivery(row)} AS message_sequence`,
    /**
     * The unfinished rows of a key on one side of a row in the order: rows that are no deliveries, and the deliveries
     * to its destination. An index finds each part.
     *
     * @param row has `place` and `message_sequence`
     * @param key, destination of the row
     * @returns of each part the condition on rows `o`, and their place
     */
    inOrder(row: string, side: "<" | ">", key: string, destination: string) {
      const part = (which: string, place: string) => ({
        place,
        where: `o.${c.key} = ${key} AND o.${c.key} IS NOT NULL AND ${isIn("o", "pending", "processing")} AND ${which}${place} ${side} ${row}.place`,
      });
      if (!hasLists) return [part("", `o.${c.sequence}`)];
      const mayMeet = `(${row}.message_sequence IS NULL OR ${hasNoDestination} OR ${goesTo(destination)})`;
      return [
        part(`${delivery("o")} IS NULL AND ${mayMeet} AND `, `o.${c.sequence}`),
        part(`${delivery("o")} IS NOT NULL AND ${goesTo(destination)} AND `, delivery("o")),
      ];
    },
  };
}
