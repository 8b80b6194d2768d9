-- Replays that operators started: one process at a time executes each, under a lease. Updated in place with every batch.
CREATE TABLE IF NOT EXISTS outbox_job (
  id             uuid        NOT NULL PRIMARY KEY,
  created_at     timestamptz NOT NULL DEFAULT now(),
  created_by     text        NOT NULL,
  filter         text        NOT NULL,
  per_second     integer,
  state          text        NOT NULL DEFAULT 'running',
  total          bigint,
  moved          bigint      NOT NULL DEFAULT 0,
  finished_until text        NOT NULL,
  last_sequence  text        NOT NULL,
  position       text,
  lease_token    uuid,
  lease_until    timestamptz,
  updated_at     timestamptz NOT NULL DEFAULT now(),
  last_error     text
) WITH (fillfactor = 50);
