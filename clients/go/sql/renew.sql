-- renew: $1 source, $2 claim token, $3 lease (ms)
UPDATE inbox
SET lease_expires_at = now() + $3::bigint * interval '1 millisecond'
WHERE state = 'pending' AND consumption = 'pull' AND source = $1::text AND claim_token = $2::uuid AND lease_expires_at > now()
RETURNING id;
