-- Replays that operators started: one process at a time executes each, under a lease. Updated in place with every batch.
CREATE TABLE outbox_job (
  id             uniqueidentifier  NOT NULL PRIMARY KEY,
  created_at     datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME(),
  created_by     nvarchar(400)     NOT NULL,
  filter         nvarchar(max)     NOT NULL,
  per_second     int               NULL,
  state          nvarchar(20)      NOT NULL DEFAULT N'running',
  total          bigint            NULL,
  moved          bigint            NOT NULL DEFAULT 0,
  finished_until nvarchar(100)     NOT NULL,
  last_sequence  nvarchar(20)      NOT NULL,
  position       nvarchar(100)     NULL,
  lease_token    uniqueidentifier  NULL,
  lease_until    datetimeoffset(7) NULL,
  updated_at     datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME(),
  last_error     nvarchar(2000)    NULL
);
