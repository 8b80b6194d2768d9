import { CONDITION } from "../../../model/rows.ts";
import type { TableNames } from "../sql/names.ts";
import { expiresInMs, hashOf, labelOf, msOf, PARKED_AT } from "./fragments.ts";
import { markBound } from "./lowWater.ts";
import { payloadParts } from "./payloadParts.ts";

export function outboxParts(names: TableNames, payloadType: string) {
  const table = names.outboxTable;
  const c = names.outbox;
  const payload = payloadParts("o", c, payloadType);
  /** An owner's table may allow NULL, which counts as due. */
  const scheduledAtOf = (row: string): string => `coalesce(${row}.${c.scheduledAt}, '-infinity')`;
  const scheduledAt = scheduledAtOf("o");
  /**
   * `scheduled_at` of a released row, at most now: if the clock was set back, a time after `updated_at` would count as
   * scheduled ahead, and later rows of the key would overtake.
   */
  const scheduledAtGivenBack = (row: string, now: string): string =>
    `CASE WHEN ${row}.${c.scheduledAt} > ${now} THEN ${now} ELSE ${row}.${c.scheduledAt} END`;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;

  /**
   * A pending row is due. A row that was not scheduled ahead is due from its insert, whatever the clock: `now()` is the
   * beginning of this transaction, whose snapshot may hold later rows, and a clock may be set back. The attempt
   * excludes retries.
   */
  const isDue = `(${scheduledAt} <= now() OR (coalesce(o.${c.attempt}, 0) = 0 AND o.${c.scheduledAt} <= o.${c.createdAt}))`;
  /**
   * A pending row, not a candidate, that later rows of its key wait for: it was due when inserted or replayed, or is
   * due by a clock read after the snapshot.
   */
  const holdsBackAs = (row: string): string =>
    `(${row}.${c.attempt} > 0 OR ${scheduledAtOf(row)} <= greatest(${row}.${c.createdAt}, ${row}.${c.updatedAt}, clock_timestamp()))`;

  const isAgain = (row: string): string =>
    `${row}.${c.state} IN ('pending', 'processing') AND ${row}.${c.scheduledAt} <> ${row}.${c.createdAt}`;
  /** Whether a pending row is parked, and found below a mark: one without `created_at` would not be. */
  const isParkedAgain = (row: string): string =>
    `coalesce(${row}.${c.state} = 'pending' AND ${row}.${c.attempt} > 0 AND ${row}.${c.scheduledAt} = ${PARKED_AT} AND ${row}.${c.createdAt} <> ${PARKED_AT}, false)`;

  /**
   * The lowest unfinished row below the first sequence, or null: the mark is up to a second old, and a replay may have
   * set rows below it back to pending. Such a row has `scheduled_at <> created_at`, so this is one probe of a small
   * index: 0.01 of the 4 ms of a claim with 200,000 rows pending. While an old snapshot keeps the index entries of
   * finished rows alive, it reads those retried or replayed since: 0.4 s for 200,000, as long as refreshing the mark.
   *
   * @param from the parameter that holds the first sequence
   */
  const againBelow = (from: string): string => `
  SELECT min(o.${c.sequence}) AS sequence FROM ${table} o
  WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint`;
  /**
   * The same without the first {@link PARKED_PASSED} parked rows, which stay unfinished for days and matter only to
   * checks of order.
   */
  const unparkedBelow = (from: string): string => `
  SELECT coalesce(min(a.sequence) FILTER (WHERE NOT a.is_parked), CASE WHEN count(*) = ${PARKED_PASSED} THEN max(a.sequence) END) AS sequence
  FROM (SELECT o.${c.sequence} AS sequence, ${isParkedAgain("o")} AS is_parked FROM ${table} o
    WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint ORDER BY o.${c.sequence} LIMIT ${PARKED_PASSED}) a`;

  /** The CTE `low_water`: the first sequence at which anything unfinished can be, below the mark too. */
  const lowWaterOf = (lowWater: string, below = againBelow): string => `
known AS MATERIALIZED (SELECT ${markBound(lowWater)} AS sequence),
low_water AS MATERIALIZED (
  SELECT least((SELECT sequence FROM known), (${below("(SELECT sequence FROM known)")})) AS sequence
)`;
  const lowWaterPastParked = (lowWater: string): string => lowWaterOf(lowWater, unparkedBelow);
  const aboveLowWater = (alias: string): string => `${alias}.${c.sequence} >= (SELECT sequence FROM low_water)`;

  /**
   * Later rows of its key wait for the unfinished row.
   *
   * @param heldTokens the parameter with the tokens of claims that this process holds
   * @param destination of the later rows; undefined if it does not count
   */
  const stops = (row: string, heldTokens: string, destination?: string): string =>
    `(${row}.${c.state} = 'processing' OR ${holdsBackAs(row)})
      AND NOT (${row}.${c.state} = 'processing' AND coalesce(${row}.${c.claimToken} = ANY (${heldTokens}::uuid[]), false)${
        destination === undefined ? "" : ` AND coalesce(${row}.${c.destination} = ${destination}, true)`
      })`;

  const { messageSequence } = c;
  const hasLists = messageSequence !== null;
  const isDelivery = (row: string): string => (hasLists ? `${row}.${messageSequence} IS NOT NULL` : "false");
  /** A condition of the index of the keys, which has no delivery rows. */
  const isNoDelivery = (row: string): string => (hasLists ? `${row}.${messageSequence} IS NULL` : "true");
  const placeOf = (row: string): string =>
    hasLists ? `coalesce(${row}.${messageSequence}, ${row}.${c.sequence})::bigint` : `${row}.${c.sequence}::bigint`;
  /** Together with the key; empty for the lane of the rows that are no deliveries. */
  const laneOf = (row: string): string =>
    hasLists ? `CASE WHEN ${isDelivery(row)} THEN ${row}.${c.destination}::text ELSE '' END` : "''";
  /** Of a row that is no delivery: it goes to a destination, or its routes are still to decide that. */
  const mayGoTo = (row: string, destination: string, hash: string): string =>
    `(coalesce(${row}.${c.destination} = ${destination}, true) OR coalesce(${row}.${c.routes} <> ${hash}, false))`;
  /** @param row a delivery row @param columns of its message row `m` */
  const messageOf = (row: string, columns: string): string =>
    `SELECT ${columns} FROM ${table} m WHERE m.${c.sequence} = ${row}.${messageSequence} AND m.${c.state} IN ('sent', 'dead') LIMIT 1`;

  /**
   * The `place` of the first rows that stop a lane `k`, with its `key`, `lane` and `destination`: of the rows that are
   * no deliveries, and of the deliveries to its destination. Each is one probe of an index.
   *
   * @param isOneQueue whether no destination counts
   * @param ofDeliveries whether there are lanes of deliveries
   * @param hash the parameter with the hash of the routes: a row with labels of others may go anywhere after
   *   relabelling
   * @param isBefore a condition on the place, which is in this column
   * @param isLeft a condition on a row of the lane itself
   */
  const stopsOf = (
    heldTokens: string,
    isOneQueue: boolean,
    ofDeliveries: boolean,
    hash: string,
    isBefore: (column: string) => string = () => "true",
    isLeft = "true",
  ): string => {
    const ofKey = `o.${c.key} = k.key AND o.${c.key} IS NOT NULL AND o.${c.state} IN ('pending', 'processing')`;
    const ofOthers = `${ofKey} AND ${isNoDelivery("o")} AND ${aboveLowWater("o")} AND ${isBefore(c.sequence)}`;
    const isStop = stops("o", heldTokens, isOneQueue ? undefined : "k.destination");
    const first = (which: string, column: string): string => `
    (SELECT o.${column}::bigint AS place FROM ${table} o WHERE ${which} ORDER BY o.${column} LIMIT 1)`;
    if (messageSequence === null) return first(`${ofOthers} AND ${isStop} AND ${isLeft}`, c.sequence);
    const holdsBack = `(o.${c.state} = 'processing' OR ${holdsBackAs("o")})`;
    const isThere = isOneQueue ? `(k.lane = '' OR o.${c.destination} = k.lane)` : `o.${c.destination} = k.destination`;
    const inLane = `${ofKey} AND ${isDelivery("o")} AND ${isThere} AND ${isBefore(messageSequence)}`;
    if (!ofDeliveries)
      return `${first(`${ofOthers} AND ${isStop} AND ${isLeft}`, c.sequence)} UNION ALL ${first(`${inLane} AND ${holdsBack}`, messageSequence)}`;
    return [
      first(`k.lane = '' AND ${ofOthers} AND ${isStop} AND ${isLeft}`, c.sequence),
      first(`k.lane <> '' AND ${ofOthers} AND ${mayGoTo("o", "k.lane", hash)} AND ${holdsBack}`, c.sequence),
      first(`${inLane} AND CASE WHEN k.lane = '' THEN ${holdsBack} ELSE ${isStop} AND ${isLeft} END`, messageSequence),
    ].join(" UNION ALL");
  };
  const ofMessage = payloadParts("m", c, payloadType);
  /** The bytes of a candidate: those of a delivery are in the row of its message. */
  const bytes = hasLists
    ? `CASE WHEN ${isDelivery("o")} THEN coalesce((${messageOf("o", ofMessage.bytes)}), 0) ELSE ${payload.bytes} END`
    : payload.bytes;

  /** Columns that a delivery has from its message: @param of the row that has them, and its parts */
  const carried = (of: string, { columns }: typeof payload) =>
    [["aggregate_type", `${of}.${c.aggregateType}::text`], ...columns] as const;
  const own = carried("o", payload);
  /** Beside a claimed row `o`: what a delivery has from its message. */
  const besideClaimed = hasLists
    ? ` LEFT JOIN LATERAL (${messageOf("o", [`m.${c.id} AS id`, ...carried("m", ofMessage).map(([name, value]) => `${value} AS ${name}`)].join(", "))}) m ON ${isDelivery("o")}`
    : "";
  /** @param of what of it is written beside it or in a message's row @param messageId its message, if it is a delivery */
  const columnsOf = (of: readonly (readonly [name: string, value: string])[], messageId: string) =>
    [
      ["id", `o.${c.id}`],
      ["message_id", messageId],
      [
        "has_open_condition",
        hasLists ? `${isDelivery("o")} AND starts_with(o.${c.lastError}, '${CONDITION}')` : "false",
      ],
      ["sequence", `o.${c.sequence}::bigint`],
      ["place", placeOf("o")],
      ["topic", `o.${c.topic}::text`],
      ["key", `o.${c.key}::text`],
      ...of,
      ["attempt", `o.${c.attempt}`],
      ["max_attempts", `o.${c.maxAttempts}`],
      ["created_at", msOf(`o.${c.createdAt}`)],
      ["destination", labelOf(c, "o")],
      ["routes", hashOf(c, "o")],
      ["expires_in_ms", expiresInMs(c.expiresAt, "o")],
    ] as const;
  /** The columns of a claimed row `o` that is no delivery, by the names that `claimedRow` reads. */
  const claimedColumns = columnsOf(own, "NULL::uuid");
  /** The same of any claimed row, with {@link besideClaimed}. */
  const anyClaimedColumns = hasLists
    ? columnsOf(
        own.map(([name, value]) => [name, `CASE WHEN ${isDelivery("o")} THEN m.${name} ELSE ${value} END`]),
        "m.id",
      )
    : claimedColumns;

  return {
    table,
    c,
    payload,
    bytes,
    hasLists,
    isDelivery,
    isNoDelivery,
    placeOf,
    laneOf,
    mayGoTo,
    messageOf,
    besideClaimed,
    anyClaimedColumns,
    scheduledAtGivenBack,
    unclaimed,
    isDue,
    holdsBackAs,
    isParkedAgain,
    againBelow,
    unparkedBelow,
    aboveLowWater,
    lowWaterOf,
    lowWaterPastParked,
    stopsOf,
    carriedNames: own.map(([name]) => name),
    claimedColumns,
  };
}

export type OutboxParts = ReturnType<typeof outboxParts>;

/** Parked rows that a mark passes: finding them takes half a millisecond. */
const PARKED_PASSED = 1000;
