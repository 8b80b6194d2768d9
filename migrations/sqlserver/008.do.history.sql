-- What happened to each outbox row: failed attempts (with outbox.history: all each attempt), and what operators did. Deleted with the row.
CREATE TABLE outbox_history (
  id          bigint            IDENTITY NOT NULL PRIMARY KEY,
  outbox_id   uniqueidentifier  NOT NULL,
  at          datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME(),
  event       nvarchar(20)      NOT NULL,
  attempt     int               NULL,
  actor       nvarchar(400)     NULL,
  destination nvarchar(400)     NULL,
  code        nvarchar(100)     NULL,
  status      nvarchar(100)     NULL,
  duration_ms int               NULL,
  reason      nvarchar(2000)    NULL
);

-- The history of one row, in order.
CREATE INDEX outbox_history_outbox_idx ON outbox_history (outbox_id, id);
