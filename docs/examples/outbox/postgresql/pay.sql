BEGIN;

-- Locks the order: other changes of it wait here, and send their messages later.
UPDATE orders SET status = 'paid' WHERE id = 'o-1';

INSERT INTO outbox (topic, key, payload, headers)
VALUES ('orders.paid', 'o-1', json_build_object('id', 'o-1', 'status', 'paid'), '{"x-tenant": "acme"}');

COMMIT;
