-- Once, even if the application tries again: the second insert finds the id, which is derived from what happened.
INSERT INTO outbox (id, topic, key, payload)
VALUES ('5f0c1c52-6d0e-5b38-9c1e-0a4b7d2f9e11', 'orders.paid', 'o-1', '{"id":"o-1","status":"paid"}')
ON CONFLICT (id) DO NOTHING;

-- In a quarter of an hour, and with 20 attempts instead of 5.
INSERT INTO outbox (topic, key, payload, scheduled_at, max_attempts)
VALUES ('orders.reminder', 'o-1', '{"id":"o-1"}', now() + interval '15 minutes', 20);

-- Several messages, in an order.
INSERT INTO outbox (topic, key, payload)
SELECT 'orders.line-added', 'o-1', json_build_object('id', 'o-1', 'line', line)
FROM generate_series(1, 3) AS line
ORDER BY line;
