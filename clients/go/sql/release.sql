-- release: $1 source, $2 claim token
UPDATE inbox
SET attempt = attempt - 1, claim_token = NULL, claimed_at = NULL, lease_expires_at = NULL
WHERE state = 'pending' AND consumption = 'pull' AND source = $1::text AND claim_token = $2::uuid
RETURNING id;
