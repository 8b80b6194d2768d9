-- The outbox: messages to deliver. Everything an application would leave out has a default, so that
-- INSERT INTO outbox (topic, payload) VALUES (...) inside its own transaction is enough.
CREATE TABLE outbox (
  id               uuid        NOT NULL DEFAULT gen_random_uuid(),
  topic            text        NOT NULL,
  key              text,
  aggregate_type   text,
  payload          text        NOT NULL,
  headers          jsonb       NOT NULL DEFAULT '{}',
  state            text        NOT NULL DEFAULT 'pending',
  attempt          integer     NOT NULL DEFAULT 0,
  max_attempts     integer     NOT NULL DEFAULT 5,
  scheduled_at     timestamptz NOT NULL DEFAULT now(),
  created_at       timestamptz NOT NULL DEFAULT now(),
  updated_at       timestamptz NOT NULL DEFAULT now(),
  claimed_at       timestamptz,
  claim_token      uuid,
  lease_expires_at timestamptz,
  last_error       text,
  sequence         bigint      GENERATED ALWAYS AS IDENTITY,
  CONSTRAINT outbox_pkey PRIMARY KEY (id),
  CONSTRAINT outbox_state_check CHECK (state IN ('pending', 'processing', 'sent', 'dead'))
);

-- The claim scan: waiting rows in order.
CREATE INDEX outbox_claim_idx ON outbox (sequence) WHERE state = 'pending';

-- "Is an earlier row of this key unfinished?" is one probe of this index.
CREATE INDEX outbox_key_idx ON outbox (key, sequence) WHERE state IN ('pending', 'processing') AND key IS NOT NULL;

-- Claims whose lease has run out; holds only what is in flight.
CREATE INDEX outbox_lease_idx ON outbox (lease_expires_at) WHERE state = 'processing';

-- Keys whose head waits for its retry; holds only rows that have failed.
CREATE INDEX outbox_backoff_idx ON outbox (scheduled_at) WHERE state = 'pending' AND attempt > 0;

-- Each row is updated twice and the partial indexes churn: vacuum by thousands of rows, not by a fifth of the table.
ALTER TABLE outbox SET (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_vacuum_cost_delay = 1
);
