GRANT INSERT (id, topic, key, aggregate_type, payload, headers, max_attempts, scheduled_at, expires_at, destination) ON outbox TO shop;
-- For RETURNING id and ON CONFLICT (id):
GRANT SELECT (id) ON outbox TO shop;
