-- claim: $1 source, $2 most messages, $3 claim token, $4 lease (ms), $5 most claims of a message
WITH candidates AS MATERIALIZED (
  -- Available messages, oldest first; skips messages that another client has locked right now.
  SELECT i.id, i.aggregate_id, i.created_at
  FROM inbox i
  WHERE i.state = 'pending' AND i.consumption = 'pull' AND i.source = $1::text
    AND (i.scheduled_at <= now() OR i.attempt = 0 AND i.scheduled_at <= i.created_at) AND (i.claim_token IS NULL OR i.lease_expires_at <= now())
    -- Not of an aggregate that somebody works on, or that waits out a delay.
    AND (i.aggregate_id IS NULL OR i.aggregate_id NOT IN (
      SELECT b.aggregate_id FROM inbox b
      WHERE b.state = 'pending' AND b.consumption = 'pull' AND b.source = $1::text AND b.aggregate_id IS NOT NULL
        AND b.claim_token IS NOT NULL AND b.lease_expires_at > now()
      UNION ALL
      SELECT b.aggregate_id FROM inbox b
      WHERE b.state = 'pending' AND b.consumption = 'pull' AND b.source = $1::text AND b.aggregate_id IS NOT NULL
        AND b.claim_token IS NULL AND b.attempt > 0 AND b.scheduled_at > now()))
  ORDER BY i.created_at, i.id
  LIMIT $2::int
  FOR NO KEY UPDATE SKIP LOCKED
),
open AS MATERIALIZED (
  -- A message waits when an earlier one of its aggregate is unfinished and not in this batch: another client has it at this moment.
  -- Only a message that was scheduled ahead, and is not due yet, holds back none.
  SELECT c.id FROM candidates c
  WHERE NOT EXISTS (
    SELECT FROM inbox e
    WHERE e.state = 'pending' AND e.consumption = 'pull' AND e.source = $1::text AND e.aggregate_id = c.aggregate_id
      AND (e.created_at, e.id) < (c.created_at, c.id) AND (e.attempt > 0 OR e.scheduled_at <= greatest(e.created_at, clock_timestamp()))
      AND e.id NOT IN (SELECT id FROM candidates))
),
died AS (
  UPDATE inbox i
  SET state = 'dead', processed_at = now(), claim_token = NULL, claimed_at = NULL, lease_expires_at = NULL,
      last_error = 'claimed ' || i.attempt || ' times without being acknowledged' || coalesce('; last reason: ' || i.last_error, '')
  FROM open o
  WHERE i.id = o.id AND i.attempt >= $5::int
),
claimed AS (
  UPDATE inbox i
  SET attempt = i.attempt + 1, claim_token = $3::uuid, claimed_at = now(), lease_expires_at = now() + $4::bigint * interval '1 millisecond'
  FROM open o
  WHERE i.id = o.id AND i.attempt < $5::int
  RETURNING i.id, i.aggregate_id, i.event_type, i.idempotency_key, i.correlation_id, i.attempt, i.created_at, i.headers, i.payload
)
SELECT * FROM claimed ORDER BY created_at, id;
