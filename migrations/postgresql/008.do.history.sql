-- What happened to each outbox row: failed attempts (with outbox.history: all each attempt), and what operators did. Deleted with the row.
-- Entries are only added, and deleted by retention: vacuum by thousands of them, not by a fifth of the table.
CREATE TABLE IF NOT EXISTS outbox_history (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  outbox_id   uuid        NOT NULL,
  at          timestamptz NOT NULL DEFAULT now(),
  event       text        NOT NULL,
  attempt     integer,
  actor       text,
  destination text,
  code        text,
  status      text,
  duration_ms integer,
  reason      text
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 1
);

-- The history of one row, in order.
CREATE INDEX IF NOT EXISTS outbox_history_outbox_idx ON outbox_history (outbox_id, id);
