-- Received messages that left no row: a filter dropped them, or they are duplicates. Kept for 24 hours. Keys compare letter for letter.
CREATE TABLE outbox_journal (
  id              bigint            IDENTITY NOT NULL PRIMARY KEY,
  at              datetimeoffset(7) NOT NULL,
  source          nvarchar(400)     COLLATE Latin1_General_100_BIN2 NOT NULL,
  outcome         nvarchar(20)      COLLATE Latin1_General_100_BIN2 NOT NULL,
  idempotency_key nvarchar(255)     COLLATE Latin1_General_100_BIN2 NULL,
  correlation_id  nvarchar(255)     COLLATE Latin1_General_100_BIN2 NULL,
  message_id      uniqueidentifier  NULL,
  replica         nvarchar(400)     NOT NULL
);

-- The duplicates of one message, in order.
CREATE INDEX outbox_journal_message_idx ON outbox_journal (message_id, id);
-- Where is the message of this key, or of this correlation id.
CREATE INDEX outbox_journal_key_idx ON outbox_journal (idempotency_key, outcome, id);
CREATE INDEX outbox_journal_correlation_idx ON outbox_journal (correlation_id, outcome, id);
