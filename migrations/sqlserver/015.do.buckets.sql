-- Of several cells: the buckets of received messages that are or were in this one.
CREATE TABLE outbox_bucket (
  bucket      int               NOT NULL PRIMARY KEY,
  state       nvarchar(20)      COLLATE Latin1_General_100_BIN2 NOT NULL,
  epoch       bigint            NOT NULL,
  other_cell  nvarchar(400)     NULL,
  token       uniqueidentifier  NULL,
  lease_until datetimeoffset(7) NULL,
  changed_at  datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()
);
