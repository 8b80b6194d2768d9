-- dead: $1 source, $2 claim token, $3 id, $4 reason
UPDATE inbox
SET state = 'dead', processed_at = now(), last_error = $4::text, claim_token = NULL, claimed_at = NULL, lease_expires_at = NULL
WHERE state = 'pending' AND consumption = 'pull' AND source = $1::text AND claim_token = $2::uuid AND id = $3::uuid
RETURNING id;
