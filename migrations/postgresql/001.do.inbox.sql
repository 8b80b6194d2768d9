-- The inbox: every message as it was received, once per (source, idempotency_key).
-- `payload` is text, not json: a body must come out byte for byte as it came in (number precision, key order, escapes).
CREATE TABLE inbox (
  id               uuid        NOT NULL DEFAULT gen_random_uuid(),
  source           text        NOT NULL,
  idempotency_key  text        NOT NULL,
  aggregate_id     text,
  event_type       text,
  payload          text        NOT NULL,
  state            text        NOT NULL DEFAULT 'pending',
  created_at       timestamptz NOT NULL DEFAULT now(),
  processed_at     timestamptz,
  claimed_at       timestamptz,
  claim_token      uuid,
  lease_expires_at timestamptz,
  correlation_id   text,
  consumption      text        NOT NULL DEFAULT 'push',
  scheduled_at     timestamptz NOT NULL DEFAULT now(),
  attempt          integer     NOT NULL DEFAULT 0,
  last_error       text,
  headers          jsonb       NOT NULL DEFAULT '{}',
  CONSTRAINT inbox_pkey PRIMARY KEY (id),
  CONSTRAINT inbox_source_idempotency_key_key UNIQUE (source, idempotency_key),
  CONSTRAINT inbox_state_check CHECK (state IN ('pending', 'processed', 'dead')),
  CONSTRAINT inbox_consumption_check CHECK (consumption IN ('push', 'pull'))
);

-- The relay reads pending push rows in order of arrival. Finished rows are not in this index, so the cost of
-- a pass depends on what waits, not on what has been. There is no index on aggregate_id: each index costs every receipt.
CREATE INDEX inbox_relay_idx ON inbox (created_at, id) WHERE state = 'pending' AND consumption = 'push';

-- Each row is updated once and the partial indexes churn: vacuum by thousands of rows, not by a fifth of the table.
ALTER TABLE inbox SET (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_vacuum_cost_delay = 1
);
