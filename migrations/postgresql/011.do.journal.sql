-- Received messages that left no row: a filter dropped them, or they are duplicates. Kept for 24 hours.
-- Entries are only added, and the oldest deleted: vacuum by thousands of them, not by a fifth of the table.
CREATE TABLE IF NOT EXISTS outbox_journal (
  id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at              timestamptz NOT NULL,
  source          text        NOT NULL,
  outcome         text        NOT NULL,
  idempotency_key text,
  correlation_id  text,
  message_id      uuid,
  replica         text        NOT NULL
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 1
);

-- The duplicates of one message, in order.
CREATE INDEX IF NOT EXISTS outbox_journal_message_idx ON outbox_journal (message_id, id);
-- Where is the message of this key, or of this correlation id.
CREATE INDEX IF NOT EXISTS outbox_journal_key_idx ON outbox_journal (idempotency_key, outcome, id);
CREATE INDEX IF NOT EXISTS outbox_journal_correlation_idx ON outbox_journal (correlation_id, outcome, id);
