import { EXPIRED, type MessageId } from "../../../model/rows.ts";
import type { TableNames } from "../sql/names.ts";
import type { PullStatements } from "../sql/pull.ts";
import { clockBehind, isExpired, msOf, ROW_WAIT } from "./fragments.ts";
import { payloadParts } from "./payloadParts.ts";
import { byIndex, type Statement } from "./statement.ts";

/**
 * States and consumption are literals: a parameter would keep the planner from the partial indexes.
 *
 * @param payloadType the type of the inbox's payload column
 */
export function pullStatements(names: TableNames, payloadType: string): PullStatements<Statement> {
  const table = names.inboxTable;
  const c = names.inbox;
  const waiting = (row: string): string => `${row}.${c.state} = 'pending' AND ${row}.${c.consumption} = 'pull'`;
  const held = (row: string): string => `${row}.${c.claimToken} IS NOT NULL AND ${row}.${c.leaseExpiresAt} > now()`;
  const free = (row: string): string =>
    `(${row}.${c.claimToken} IS NULL OR ${row}.${c.leaseExpiresAt} IS NULL OR ${row}.${c.leaseExpiresAt} <= now())`;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;
  /** A row that was never claimed is due from its receipt on, whatever the clock shows: see the outbox. */
  const isDue = `(coalesce(i.${c.scheduledAt}, '-infinity') <= now() OR (coalesce(i.${c.attempt}, 0) = 0 AND i.${c.scheduledAt} <= i.${c.createdAt}))`;
  const available = `${waiting("i")} AND i.${c.source} = $1::text AND ${isDue} AND ${free("i")}`;
  /** The fence: what a client still holds under its token. */
  const ofClaim = `${waiting("i")} AND i.${c.source} = $1::text AND i.${c.claimToken} = $2::uuid`;
  const expired = isExpired(c.expiresAt, "i");
  /** It has no attempts left, or no time. */
  const spent = `(coalesce(i.${c.attempt}, 0) >= $6::int OR ${expired})`;
  const payload = payloadParts("i", c, payloadType, spent);
  const named = `($3::uuid[] IS NULL OR i.${c.id} = ANY ($3::uuid[]))`;

  /**
   * One claim; see {@link CLAIM_PARAMETERS}.
   *
   * - busy: aggregates with a row under a running lease or in a delay. Their other rows wait, and do not fill the
   *   batch.
   * - candidates: available rows in order; rows that another claim has locked are skipped.
   * - stops: per aggregate the first unfinished row that is not a candidate. Later rows must wait. A row that was
   *   scheduled ahead (attempt 0, not yet due) stops no other.
   * - lease: full length even if the claim has waited for a lock; see {@link clockBehind}.
   * - open: candidates before the stop of their aggregate, so a run of rows of one aggregate is claimed together. Those
   *   with no attempts left die, and the rows behind them continue at once.
   * - taken: the first of the others, up to the bytes of a claim.
   *
   * In doubt a row waits: see the claim of the outbox. The order does not depend on `busy`, which only saves work.
   */
  const claim = `
WITH busy AS MATERIALIZED (
  SELECT i.${c.aggregateId} AS aggregate_id FROM ${table} i
  WHERE ${waiting("i")} AND i.${c.source} = $1::text AND i.${c.aggregateId} IS NOT NULL AND ${held("i")}
  UNION ALL
  SELECT i.${c.aggregateId} FROM ${table} i
  WHERE ${waiting("i")} AND i.${c.source} = $1::text AND i.${c.aggregateId} IS NOT NULL
    AND i.${c.attempt} > 0 AND i.${c.claimToken} IS NULL AND i.${c.scheduledAt} > now()
),
candidates AS MATERIALIZED (
  SELECT i.${c.id} AS id, i.${c.createdAt} AS created_at, i.${c.aggregateId} AS aggregate_id, ${spent} AS spent, ${expired} AS expired,
    ${payload.bytes} AS bytes
  FROM ${table} i
  WHERE ${available}
    AND (i.${c.aggregateId} IS NULL OR i.${c.aggregateId} NOT IN (SELECT aggregate_id FROM busy))
  ORDER BY i.${c.createdAt}, i.${c.id}
  LIMIT $2::int
  FOR NO KEY UPDATE OF i SKIP LOCKED
),
stops AS MATERIALIZED (
  SELECT a.aggregate_id, s.created_at, s.id
  FROM (
    SELECT DISTINCT ON (aggregate_id) aggregate_id, created_at, id
    FROM candidates WHERE aggregate_id IS NOT NULL
    ORDER BY aggregate_id, created_at DESC, id DESC
  ) a
  CROSS JOIN LATERAL (
    SELECT e.${c.createdAt} AS created_at, e.${c.id} AS id
    FROM ${table} e
    WHERE ${waiting("e")} AND e.${c.source} = $1::text AND e.${c.aggregateId} = a.aggregate_id AND e.${c.aggregateId} IS NOT NULL
      AND (e.${c.createdAt}, e.${c.id}) < (a.created_at, a.id)
      AND (e.${c.attempt} > 0 OR coalesce(e.${c.scheduledAt}, '-infinity') <= greatest(e.${c.createdAt}, clock_timestamp()))
      AND e.${c.id} NOT IN (SELECT id FROM candidates)
    ORDER BY e.${c.createdAt}, e.${c.id}
    LIMIT 1
  ) s
),
lease AS MATERIALIZED (
  SELECT t.now, t.now + $5::bigint * interval '1 millisecond' AS ends_at FROM (${clockBehind("candidates")}) t
),
open AS MATERIALIZED (
  SELECT c.id, c.created_at, c.aggregate_id, c.spent, c.expired, ${payload.free(["created_at", "id"])},
    l.now, l.ends_at AS lease_expires_at
  FROM lease l CROSS JOIN candidates c LEFT JOIN stops s ON s.aggregate_id = c.aggregate_id
  WHERE s.id IS NULL OR (c.created_at, c.id) < (s.created_at, s.id)
),
died AS (
  UPDATE ${table} i
  SET ${c.state} = 'dead', ${c.processedAt} = o.now, ${unclaimed},
      ${c.lastError} = CASE WHEN o.expired THEN '${EXPIRED}'
        ELSE 'claimed ' || i.${c.attempt}::text || ' times without being acknowledged' || coalesce('; last reason: ' || i.${c.lastError}, '') END
  FROM open o
  WHERE i.${c.id} = o.id AND o.spent
  RETURNING i.${c.id} AS id
),
taken AS MATERIALIZED (
  SELECT o.id, o.now, o.lease_expires_at FROM open o
  WHERE NOT o.spent AND o.bytes_before < $3::bigint
),
claimed AS (
  UPDATE ${table} i
  SET ${c.attempt} = coalesce(i.${c.attempt}, 0) + 1, ${c.claimToken} = $4::uuid, ${c.claimedAt} = t.now,
      ${c.leaseExpiresAt} = t.lease_expires_at
  FROM taken t
  WHERE i.${c.id} = t.id
  RETURNING i.${c.id} AS id, i.${c.aggregateId} AS aggregate_id, i.${c.eventType} AS event_type,
    i.${c.idempotencyKey} AS idempotency_key, i.${c.correlationId} AS correlation_id, i.${c.attempt} AS attempt,
    i.${c.createdAt} AS created, ${payload.columns.map(([name, value]) => `${value} AS ${name}`).join(", ")}
)
SELECT n.dead, r.id, r.aggregate_id, r.event_type, r.idempotency_key, r.correlation_id, r.attempt,
  ${msOf("r.created")} AS created_at, ${payload.columns.map(([name]) => `r.${name}`).join(", ")}
FROM (SELECT ARRAY(SELECT id::text FROM died) AS dead) n
LEFT JOIN claimed r ON true
ORDER BY r.created, r.id`;

  return {
    claim: byIndex(`pull.claim(${CLAIM_PARAMETERS})`)(claim),

    acknowledge: outcome("pull.acknowledge(source, token, ids)")`
WITH changed AS (
  UPDATE ${table} i
  SET ${c.state} = 'processed', ${c.processedAt} = now(), ${unclaimed}
  WHERE ${ofClaim} AND ${named}
  RETURNING i.${c.createdAt} AS created_at, i.${c.id} AS id
)
SELECT id FROM changed ORDER BY created_at, id`,

    extend: outcome("pull.extend(source, token, ids, leaseMs)")`
WITH changed AS (
  UPDATE ${table} i
  SET ${c.leaseExpiresAt} = now() + $4::bigint * interval '1 millisecond'
  WHERE ${ofClaim} AND ${named} AND ${held("i")}
  RETURNING i.${c.createdAt} AS created_at, i.${c.id} AS id
)
SELECT id FROM changed ORDER BY created_at, id`,

    /** A null reason keeps the last one. `held` locks the whole claim, so that none of its rows is closed meanwhile. */
    reject: outcome("pull.reject(source, token, ids, maxAttempts, delayMs, reason)")`
WITH held AS MATERIALIZED (
  SELECT i.${c.id} AS id, i.${c.createdAt} AS created_at, i.${c.aggregateId} AS aggregate_id, coalesce(i.${c.attempt}, 0) >= $4::int AS spent,
    ${named} AS named
  FROM ${table} i
  WHERE ${ofClaim}
  FOR NO KEY UPDATE OF i
),
firsts AS (
  SELECT DISTINCT ON (aggregate_id) aggregate_id, created_at, id
  FROM held WHERE named AND aggregate_id IS NOT NULL
  ORDER BY aggregate_id, created_at, id
),
outcomes AS MATERIALIZED (
  SELECT h.id, CASE WHEN NOT h.named THEN 'released' WHEN h.spent THEN 'dead' ELSE 'retried' END AS outcome,
    now() AS now, now() + $5::bigint * interval '1 millisecond' AS again_at
  FROM held h LEFT JOIN firsts f ON f.aggregate_id = h.aggregate_id
  WHERE h.named OR (h.created_at, h.id) > (f.created_at, f.id)
),
changed AS (
  UPDATE ${table} i
  SET ${c.state} = CASE WHEN o.outcome = 'dead' THEN 'dead' ELSE 'pending' END, ${unclaimed},
      ${c.processedAt} = CASE WHEN o.outcome = 'dead' THEN o.now ELSE i.${c.processedAt} END,
      ${c.attempt} = CASE WHEN o.outcome = 'released' THEN greatest(i.${c.attempt} - 1, 0) ELSE i.${c.attempt} END,
      ${c.scheduledAt} = CASE WHEN o.outcome = 'retried' THEN o.again_at ELSE i.${c.scheduledAt} END,
      ${c.lastError} = CASE WHEN o.outcome = 'released' THEN i.${c.lastError} ELSE coalesce($6::text, i.${c.lastError}) END
  FROM outcomes o
  WHERE i.${c.id} = o.id
  RETURNING i.${c.createdAt} AS created_at, i.${c.id} AS id, o.outcome
)
SELECT id, outcome FROM changed ORDER BY created_at, id`,

    dialect: {
      claimOf([rows = []]) {
        const [first] = rows;
        return {
          rows: first === undefined || first.id === null ? [] : rows,
          dead: (first?.dead ?? []) as MessageId[],
        };
      },
    },
  };
}

/** A client whose rows another transaction locks gives its connection back to the pool soon. */
const outcome = (declaration: string) => byIndex(declaration, ROW_WAIT);

const CLAIM_PARAMETERS = "source, limit, maxBytes, token, leaseMs, maxAttempts";
