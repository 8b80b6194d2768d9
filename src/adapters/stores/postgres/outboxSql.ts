import type { MessageId, Outcome } from "../../../model/rows.ts";
import type { WithHistory } from "../sql/history.ts";
import type { TableNames } from "../sql/names.ts";
import { attemptsOf, delayOf, type OutboxStatements, type ParkedStatements, STATE_AFTER } from "../sql/outbox.ts";
import { NO_ROUTING, type Routing } from "../sql/routing.ts";
import { claimStatements, outboxParts } from "./claimSql.ts";
import { isLockTimeout } from "./errors.ts";
import { msOf, overrideOf, PARKED_AT } from "./fragments.ts";
import { ENTRY_PARAMETERS, entryValues, noteAction, noteSettled } from "./historySql.ts";
import { markRead } from "./lowWater.ts";
import { byIndex, type Statement, statement, uuidArray } from "./statement.ts";

/** Every statement on the outbox. States are literals: a parameter would defeat the partial indexes. */
export function outboxStatements(names: TableNames, payloadType: string, routing: Routing = NO_ROUTING) {
  const parts = outboxParts(names, payloadType, routing);
  const {
    table,
    c,
    destinationIn,
    scheduledAtGivenBack,
    unclaimed,
    isDue,
    isParkedAgain,
    aboveLowWater,
    lowWaterOf,
    lowWaterPastParked,
  } = parts;
  /** No addition may leave the range of the column: the row could never be settled. */
  const attemptsPlus = (added: string): string =>
    `CASE WHEN ${added} > 0 THEN least(greatest(coalesce(o.${c.attempt}, 0), 0)::bigint + ${added}, ${MAX_INTEGER}) ELSE o.${c.attempt} END`;

  const expired = `
  SELECT o.${c.id} AS id FROM ${table} o
  WHERE o.${c.state} = 'processing' AND ${aboveLowWater("o")}
    AND (o.${c.leaseExpiresAt} < now() OR (o.${c.leaseExpiresAt} IS NULL
      AND coalesce(o.${c.claimedAt}, o.${c.updatedAt}, '-infinity') < now() - $2::bigint * interval '1 millisecond'))
  LIMIT $1::int`;
  const toPending = `UPDATE ${table} t
SET ${c.state} = 'pending', ${c.updatedAt} = now(), ${c.scheduledAt} = ${scheduledAtGivenBack("t")}, ${unclaimed}
WHERE (t.${c.state} || '') = 'processing'`;

  /** @param and a further condition on the rows @param noted a further part of the `WITH` */
  const settle = (and: string, noted = ""): string => `
WITH closed AS (
UPDATE ${table} o
SET ${c.state} = coalesce(s.state, 'sent'), ${c.attempt} = ${attemptsPlus("s.attempts")}, ${c.updatedAt} = now(), ${unclaimed},
    ${c.scheduledAt} = CASE WHEN s.delay < 0 THEN ${PARKED_AT} WHEN s.delay IS NOT NULL THEN now() + s.delay * interval '1 millisecond'
      WHEN s.state = 'pending' THEN ${scheduledAtGivenBack("o")} ELSE o.${c.scheduledAt} END,
    ${c.lastError} = coalesce(s.reason, o.${c.lastError})
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::bigint[], $6::text[]) AS s(id, token, state, attempts, delay, reason)
WHERE o.${c.id} = s.id AND o.${c.claimToken} = s.token
  AND (o.${c.state} || '') = 'processing'${and}
RETURNING o.${c.id} AS id)${noted}
SELECT CASE WHEN count(*) < cardinality($1) THEN array_agg(id::text) END AS closed, count(*) AS count FROM closed`;

  /** Waits for its retry, or is parked, before the later rows of its key. */
  const isBlocking = (row: string): string =>
    `${row}.${c.state} = 'pending' AND ${row}.${c.attempt} > 0 AND ${row}.${c.scheduledAt} > now() AND ${row}.${c.key} IS NOT NULL`;

  /** The backlog of all. @param pending a query for the number of pending rows */
  const totals = (pending: string): string => `SELECT (${pending}) AS all_pending,
  (SELECT extract(epoch FROM now() - o.${c.createdAt}) * 1000 FROM ${table} o
   WHERE o.${c.state} = 'pending' AND ${isDue} AND isfinite(o.${c.createdAt}) AND ${aboveLowWater("o")} ORDER BY o.${c.sequence} LIMIT 1) AS all_oldest_ms,
  (SELECT count(DISTINCT o.${c.key}) FROM ${table} o WHERE ${isBlocking("o")}) AS blocked_keys,
  (SELECT count(*) FROM ${table} WHERE ${c.state} = 'pending' AND ${c.attempt} > 0 AND ${c.scheduledAt} = ${PARKED_AT}) AS parked`;

  const claims = claimStatements(names, parts);
  return {
    ...claims,

    /** The low-water mark: the lowest sequence that is unfinished and not parked; see `markRead`. */
    mark: byIndex("outbox.mark(lowWater, afterHighest, lastRead, awaited)")`
WITH${lowWaterPastParked("$1")}
${markRead(table, {
  position: c.sequence,
  lowest: `least(
  (SELECT min(o.${c.sequence}) FROM ${table} o WHERE o.${c.state} = 'pending' AND NOT ${isParkedAgain("o")} AND ${aboveLowWater("o")}),
  (SELECT min(o.${c.sequence}) FROM ${table} o WHERE o.${c.state} = 'processing' AND ${aboveLowWater("o")}))`,
})}`,

    /** Skips locked rows: waiting would delay all renewals. Rows are found once, and then by id, as in `settle`. */
    // Far below the lease: a renewal that hangs must not keep the next one from being tried in time.
    renew: byIndex("outbox.renew(tokens, leaseMs, claimTimeoutMs, lowWater)", { timeoutMs: 4000 })`
WITH${lowWaterPastParked("$4")}
UPDATE ${table} o
SET ${c.leaseExpiresAt} = least(now() + $2::bigint * interval '1 millisecond',
                                o.${c.claimedAt} + $3::bigint * interval '1 millisecond')
WHERE (o.${c.state} || '') = 'processing' AND o.${c.claimToken} = ANY ($1::uuid[]) AND o.${c.id} = ANY (ARRAY(
  SELECT h.${c.id} FROM ${table} h
  WHERE h.${c.state} = 'processing' AND ${aboveLowWater("h")} AND h.${c.claimToken} = ANY ($1::uuid[])
  FOR NO KEY UPDATE OF h SKIP LOCKED))
RETURNING o.${c.id} AS id`,

    /**
     * The state is compared as an expression, so that rows are found by id and not by the index of everything in
     * flight.
     *
     * A delay below 0 parks the row, a null reason keeps the last one; when every row was sent the lists from the
     * states on are empty. Returns one row: null when every claim was closed, else the ids that were.
     */
    settle: byIndex(`outbox.settle(${SETTLE_PARAMETERS})`, { lockTimeoutMs: SETTLE_LOCK_TIMEOUT_MS })(settle("")),
    settleNoting: byIndex(`outbox.settle with history(${SETTLE_PARAMETERS}, ${ENTRY_PARAMETERS})`, {
      lockTimeoutMs: NOTING_LOCK_TIMEOUT_MS,
    })(
      settle(
        "",
        `,\nnoted AS (${noteSettled(names, "SELECT id FROM closed", SETTLE_PARAMETERS.split(", ").length + 1)})`,
      ),
    ),

    whenLocked: {
      settle: byIndex(`outbox.settle of unlocked rows(${SETTLE_PARAMETERS})`, {
        lockTimeoutMs: SETTLE_LOCK_TIMEOUT_MS,
      })(
        settle(`
  AND o.${c.id} = ANY (ARRAY(SELECT f.${c.id} FROM ${table} f WHERE f.${c.id} = ANY ($1::uuid[]) FOR NO KEY UPDATE OF f SKIP LOCKED))`),
      ),
      underClaim: byIndex("outbox.rows under claims(ids, tokens)")`
SELECT o.${c.id} AS id FROM ${table} o JOIN unnest($1::uuid[], $2::uuid[]) AS s(id, token) ON o.${c.id} = s.id
WHERE o.${c.claimToken} = s.token AND (o.${c.state} || '') = 'processing'`,
    },

    /** Rows are found once, and then by id, as in `settle`. Parameters as in `expired`. */
    reclaim: byIndex("outbox.reclaim(limit, claimTimeoutMs, lowWater)", { timeoutMs: 4000 })`
WITH${lowWaterPastParked("$3")}
${toPending} AND t.${c.id} = ANY (ARRAY(${expired}
  FOR NO KEY UPDATE OF o SKIP LOCKED))
RETURNING t.${c.id} AS id`,
    expired: byIndex("outbox.expired(limit, claimTimeoutMs, lowWater)", {
      timeoutMs: 4000,
    })`WITH${lowWaterPastParked("$3")}${expired}`,
    /** Of named rows whose claim has expired. */
    reclaimNamed: byIndex("outbox.reclaim of named rows(ids)", {
      timeoutMs: 4000,
    })`${toPending} AND t.${c.id} = ANY ($1::uuid[]) AND coalesce(t.${c.leaseExpiresAt} < now(), true) RETURNING t.${c.id} AS id`,

    backlogTotals: statement("outbox.backlog(lowWater)")`
WITH${lowWaterOf("$1")}
${totals(`SELECT count(*) FROM ${table} o WHERE o.${c.state} = 'pending' AND ${aboveLowWater("o")}`)}`,

    /** At least one row, one per destination with unfinished rows; each with the totals. Reads every topic. */
    backlog: statement("outbox.backlog by destination(lowWater)")`
WITH${lowWaterOf("$1")},
unfinished AS MATERIALIZED (
  SELECT ${destinationIn("o")} AS destination, count(*) AS pending, 0 AS processing, 0 AS blocked,
    extract(epoch FROM now() - min(o.${c.createdAt}) FILTER (WHERE ${isDue} AND isfinite(o.${c.createdAt}))) * 1000 AS oldest_ms
  FROM ${table} o WHERE o.${c.state} = 'pending' AND ${aboveLowWater("o")} GROUP BY 1
  UNION ALL
  SELECT ${destinationIn("o")}, 0, count(*), 0, NULL
  FROM ${table} o WHERE o.${c.state} = 'processing' AND ${aboveLowWater("o")} GROUP BY 1
  UNION ALL
  SELECT ${destinationIn("o")}, 0, 0, count(DISTINCT o.${c.key}), NULL
  FROM ${table} o WHERE ${isBlocking("o")} GROUP BY 1
),
destinations AS (
  SELECT destination, sum(pending) AS pending, max(oldest_ms) AS oldest_ms, sum(processing) AS processing, sum(blocked) AS blocked FROM unfinished GROUP BY destination
)
SELECT d.*, a.* FROM (${totals("SELECT sum(pending) FROM unfinished")}
) a LEFT JOIN destinations d ON true`,

    dialect: {
      ...claims.dialect,
      entryValues,
      settleValues: (settlements) => ({
        ids: uuidArray(settlements.map(({ id }) => id)),
        tokens: uuidArray(settlements.map(({ claimToken }) => claimToken)),
        ...(settlements.every(({ kind }) => kind === "sent") ? ALL_SENT : outcomesOf(settlements)),
      }),
      // No list of ids means that all were closed, or none.
      closedOf([row], settlements) {
        if (row?.closed) return row.closed as MessageId[];
        return row?.count === "0" ? [] : settlements.map(({ id }) => id);
      },
      isLockTimeout,
    },
  } satisfies OutboxStatements<Statement> & { readonly mark: Statement };
}

/** Far below the lease: one locked row must not keep the others until their leases have ended. */
const SETTLE_LOCK_TIMEOUT_MS = 10_000;
/** The history is not worth a longer wait; where a row is locked, the settlement without it waits on. */
const NOTING_LOCK_TIMEOUT_MS = 500;

const MAX_INTEGER = 2 ** 31 - 1;

const SETTLE_PARAMETERS = "ids, tokens, states, attempts, delays, reasons";

const ALL_SENT = { states: [], attempts: [], delays: [], reasons: [] };

function outcomesOf(settlements: readonly Outcome[]) {
  return {
    states: settlements.map((settlement) => STATE_AFTER[settlement.kind]),
    attempts: settlements.map(attemptsOf),
    delays: settlements.map(delayOf),
    reasons: settlements.map((settlement) => ("reason" in settlement ? settlement.reason : null)),
  };
}

export function parkedStatements(names: TableNames): WithHistory<ParkedStatements<Statement>> {
  return { plain: parked(names, false), noting: parked(names, true) };
}

function parked(names: TableNames, isNoting: boolean): ParkedStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  const isParked = `o.${c.state} = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;
  /** Found by id, whatever the number of parked rows. */
  const isParkedById = `(o.${c.state} || '') = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;

  /** Rows are locked in the order of their sequence; a second statement finds them changed, and leaves them. */
  const change = (set: string, noted: string, condition = isParkedById): string => `
WITH still_parked AS MATERIALIZED (
  SELECT o.${c.id} AS id
  FROM ${table} o
  WHERE o.${c.id} = ANY ($1::uuid[]) AND ${condition}
  ORDER BY o.${c.sequence}
  FOR NO KEY UPDATE OF o
),
changed AS (
  UPDATE ${table} o
  SET ${c.updatedAt} = now(), ${unclaimed}, ${set}
  FROM still_parked p
  WHERE o.${c.id} = p.id
  RETURNING o.${c.id} AS id
)${isNoting ? noted : ""}
SELECT count(*)::int AS changed FROM changed`;

  const discard = (name: string, condition: string): Statement =>
    byIndex(`${name}(ids, before, whole${isNoting ? ", by, note" : ""})`)(
      change(
        `${c.state} = 'dead', ${c.lastError} = CASE WHEN $2::text IS NULL THEN $3::text ELSE concat($2::text, ': ' || o.${c.lastError}) END`,
        noteAction(names, "discarded", "changed", "$4", "$5"),
        condition,
      ),
    );

  return {
    /** Null means any. */
    list: byIndex("parked.list(from, limit, ids, key)")`
WITH parked AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.sequence} AS sequence
  FROM ${table} o
  WHERE ${isParked} AND o.${c.sequence} > $1::bigint
    AND ($3::uuid[] IS NULL OR o.${c.id} = ANY ($3::uuid[])) AND ($4::text IS NULL OR o.${c.key}::text = $4::text)
),
first AS MATERIALIZED (SELECT id FROM parked ORDER BY sequence LIMIT $2::int)
SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, ${overrideOf(c, "o")} AS destination_override, o.${c.key}::text AS key, o.${c.attempt} AS attempt,
  ${msOf(`o.${c.updatedAt}`)} AS updated_at, left(o.${c.lastError}, 200) AS last_error
FROM first f JOIN ${table} o ON o.${c.id} = f.id
ORDER BY o.${c.sequence}`,

    /** See `replay.move` for why it sets each of these columns. */
    retry: byIndex(`parked.retry(ids${isNoting ? ", by" : ""})`)(
      change(
        `${c.attempt} = 0, ${c.scheduledAt} = now(), ${c.createdAt} = coalesce(o.${c.createdAt}, '-infinity')`,
        noteAction(names, "retried", "changed", "$2", "NULL"),
      ),
    ),

    hasten: byIndex(`parked.hasten(ids${isNoting ? ", by" : ""})`)(
      change(
        `${c.scheduledAt} = now()`,
        noteAction(names, "retried", "changed", "$2", "NULL"),
        `(o.${c.state} || '') = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} > now() AND o.${c.scheduledAt} <> ${PARKED_AT}`,
      ),
    ),

    discard: discard("parked.discard", isParkedById),
    discardPending: discard("parked.discard pending", `(o.${c.state} || '') = 'pending'`),
  };
}
