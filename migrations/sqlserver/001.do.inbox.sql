-- The inbox: every message as it was received, once per (source, idempotency_key).
-- `payload` is text, whatever it holds: a body must come out as it came in (number precision, key order, escapes).
-- Rows lie in the order in which they came (`sequence`), never in that of their random ids. Text that is compared has a binary collation: keys that
-- differ by letter case or by an accent are different keys. Its width fits the 1,700 bytes that the key of an index may have.
CREATE TABLE inbox (
  sequence         bigint           NOT NULL IDENTITY (1, 1),
  id               uniqueidentifier NOT NULL CONSTRAINT inbox_id_default DEFAULT NEWID(),
  source           nvarchar(200)    COLLATE Latin1_General_100_BIN2 NOT NULL,
  idempotency_key  nvarchar(255)    COLLATE Latin1_General_100_BIN2 NOT NULL,
  aggregate_id     nvarchar(800)    COLLATE Latin1_General_100_BIN2 NULL,
  event_type       nvarchar(400)    COLLATE Latin1_General_100_BIN2 NULL,
  payload          nvarchar(max)    NOT NULL,
  state            nvarchar(20)     COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT inbox_state_default DEFAULT N'pending',
  created_at       datetimeoffset(7) NOT NULL CONSTRAINT inbox_created_at_default DEFAULT SYSUTCDATETIME(),
  processed_at     datetimeoffset(7) NULL,
  claimed_at       datetimeoffset(7) NULL,
  claim_token      uniqueidentifier NULL,
  lease_expires_at datetimeoffset(7) NULL,
  correlation_id   nvarchar(400)    NULL,
  consumption      nvarchar(20)     COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT inbox_consumption_default DEFAULT N'push',
  scheduled_at     datetimeoffset(7) NOT NULL CONSTRAINT inbox_scheduled_at_default DEFAULT SYSUTCDATETIME(),
  attempt          int              NOT NULL CONSTRAINT inbox_attempt_default DEFAULT 0,
  last_error       nvarchar(max)    NULL,
  headers          nvarchar(max)    NOT NULL CONSTRAINT inbox_headers_default DEFAULT N'{}',
  CONSTRAINT inbox_sequence_key UNIQUE CLUSTERED (sequence),
  CONSTRAINT inbox_pkey PRIMARY KEY NONCLUSTERED (id),
  CONSTRAINT inbox_source_idempotency_key_key UNIQUE NONCLUSTERED (source, idempotency_key),
  CONSTRAINT inbox_state_check CHECK (state IN (N'pending', N'processed', N'dead')),
  CONSTRAINT inbox_consumption_check CHECK (consumption IN (N'push', N'pull'))
);

-- The relay reads pending push rows in order of arrival, and what it needs to know of the rows before them. Finished rows are not in this index, so
-- the cost of a pass depends on what waits, not on what has been.
CREATE INDEX inbox_relay_idx ON inbox (created_at, id) INCLUDE (scheduled_at, source, aggregate_id)
  WHERE state = N'pending' AND consumption = N'push';

-- Every claim locks its rows one by one. Locks that the server joins into one on the table would stop all other claims, and the applications.
ALTER TABLE inbox SET (LOCK_ESCALATION = DISABLE);
