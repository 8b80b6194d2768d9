-- complete: $1 source, $2 claim token, $3 ids
UPDATE inbox
SET state = 'processed', processed_at = now(), claim_token = NULL, claimed_at = NULL, lease_expires_at = NULL
WHERE state = 'pending' AND consumption = 'pull' AND source = $1::text AND claim_token = $2::uuid AND id = ANY ($3::uuid[])
RETURNING id;
