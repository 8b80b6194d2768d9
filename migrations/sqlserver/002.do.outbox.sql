-- The outbox: messages to deliver. Everything an application would leave out has a default, so that
-- INSERT INTO outbox (topic, payload) VALUES (...) inside its own transaction is enough.
-- Rows lie in the order of delivery (`sequence`): applications append, and the claim reads from the front.
CREATE TABLE outbox (
  sequence         bigint           NOT NULL IDENTITY (1, 1),
  id               uniqueidentifier NOT NULL CONSTRAINT outbox_id_default DEFAULT NEWID(),
  topic            nvarchar(1000)   COLLATE Latin1_General_100_BIN2 NOT NULL,
  [key]            nvarchar(800)    COLLATE Latin1_General_100_BIN2 NULL,
  aggregate_type   nvarchar(400)    NULL,
  payload          nvarchar(max)    NOT NULL,
  headers          nvarchar(max)    NOT NULL CONSTRAINT outbox_headers_default DEFAULT N'{}',
  state            nvarchar(20)     COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT outbox_state_default DEFAULT N'pending',
  attempt          int              NOT NULL CONSTRAINT outbox_attempt_default DEFAULT 0,
  max_attempts     int              NOT NULL CONSTRAINT outbox_max_attempts_default DEFAULT 5,
  scheduled_at     datetimeoffset(7) NOT NULL CONSTRAINT outbox_scheduled_at_default DEFAULT SYSUTCDATETIME(),
  created_at       datetimeoffset(7) NOT NULL CONSTRAINT outbox_created_at_default DEFAULT SYSUTCDATETIME(),
  updated_at       datetimeoffset(7) NOT NULL CONSTRAINT outbox_updated_at_default DEFAULT SYSUTCDATETIME(),
  claimed_at       datetimeoffset(7) NULL,
  claim_token      uniqueidentifier NULL,
  lease_expires_at datetimeoffset(7) NULL,
  last_error       nvarchar(max)    NULL,
  CONSTRAINT outbox_sequence_key UNIQUE CLUSTERED (sequence),
  CONSTRAINT outbox_pkey PRIMARY KEY NONCLUSTERED (id),
  CONSTRAINT outbox_state_check CHECK (state IN (N'pending', N'processing', N'sent', N'dead'))
);

-- The claim scan: waiting rows in order.
CREATE INDEX outbox_claim_idx ON outbox (sequence) INCLUDE (id, scheduled_at, [key]) WHERE state = N'pending';

-- "Is an earlier row of this key unfinished?" is one probe of this index, which holds all that the answer depends on: a look at the row itself would
-- wait for two locks and could deadlock with whoever changes it.
CREATE INDEX outbox_key_idx ON outbox ([key], sequence) INCLUDE (state, attempt, scheduled_at, claim_token)
  WHERE [key] IS NOT NULL AND state IN (N'pending', N'processing');

-- Claims whose lease has run out, and the rows of a claim; holds only what is in flight.
CREATE INDEX outbox_lease_idx ON outbox (lease_expires_at) INCLUDE (id, claim_token, claimed_at, updated_at, [key]) WHERE state = N'processing';

-- Keys whose head waits for its retry; holds only rows that have failed.
CREATE INDEX outbox_backoff_idx ON outbox (scheduled_at) INCLUDE ([key], attempt) WHERE state = N'pending' AND attempt > 0;

-- Every claim locks its rows one by one. Locks that the server joins into one on the table would stop all other claims, and the applications.
ALTER TABLE outbox SET (LOCK_ESCALATION = DISABLE);
