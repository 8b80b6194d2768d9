-- retry: $1 source, $2 claim token, $3 id, $4 delay (ms), $5 reason, $6 most claims of a message
WITH failed AS MATERIALIZED (
  SELECT id, aggregate_id, created_at, attempt >= $6::int AS spent
  FROM inbox
  WHERE state = 'pending' AND consumption = 'pull' AND source = $1::text AND claim_token = $2::uuid AND id = $3::uuid
  FOR NO KEY UPDATE
)
UPDATE inbox i
SET state = CASE WHEN i.id = f.id AND f.spent THEN 'dead' ELSE 'pending' END,
    processed_at = CASE WHEN i.id = f.id AND f.spent THEN now() END,
    scheduled_at = CASE WHEN i.id = f.id THEN now() + $4::bigint * interval '1 millisecond' ELSE i.scheduled_at END,
    last_error = CASE WHEN i.id = f.id THEN coalesce($5::text, i.last_error) ELSE i.last_error END,
    attempt = CASE WHEN i.id = f.id THEN i.attempt ELSE i.attempt - 1 END,
    claim_token = NULL, claimed_at = NULL, lease_expires_at = NULL
FROM failed f
WHERE i.state = 'pending' AND i.consumption = 'pull' AND i.source = $1::text AND i.claim_token = $2::uuid
  AND (i.id = f.id OR i.aggregate_id = f.aggregate_id AND (i.created_at, i.id) > (f.created_at, f.id))
RETURNING i.id, i.state, i.id <> f.id AS released;
