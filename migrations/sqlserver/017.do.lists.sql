-- A message for several destinations: a row for each delivery, at the place of its message (message_sequence), without payload and headers, which stay with the
-- row of the message; that row names the destinations to which the message was expanded (expanded_to, JSON), and is never delivered itself.
IF COL_LENGTH('outbox', 'message_sequence') IS NULL
  ALTER TABLE outbox ADD message_sequence bigint NULL;
IF COL_LENGTH('outbox', 'expanded_to') IS NULL
  ALTER TABLE outbox ADD expanded_to nvarchar(max) NULL;

-- An application still cannot leave out the payload.
ALTER TABLE outbox ALTER COLUMN payload nvarchar(max) NULL;
ALTER TABLE outbox WITH NOCHECK ADD CONSTRAINT outbox_payload_check CHECK (payload IS NOT NULL OR message_sequence IS NOT NULL);

-- Whether an earlier row of the key is unfinished: of deliveries, one to the same destination; of other rows, any. Deliveries to a destination that is down are
-- not among the other rows, which need not be read past them. A key of an index has 1,700 bytes: key and destination together may have more. Without the column
-- in the index the condition IS NULL reads each row itself.
CREATE INDEX outbox_delivery_idx ON outbox ([key], message_sequence) INCLUDE (state, attempt, scheduled_at, claim_token, destination)
  WHERE [key] IS NOT NULL AND state IN (N'pending', N'processing') AND message_sequence IS NOT NULL;
CREATE INDEX outbox_order_idx ON outbox ([key], sequence) INCLUDE (state, attempt, scheduled_at, claim_token, destination, routes, message_sequence)
  WHERE [key] IS NOT NULL AND state IN (N'pending', N'processing') AND message_sequence IS NULL;
DROP INDEX outbox_key_idx ON outbox;

-- A claim past blocked keys looks for the place of each row.
CREATE INDEX outbox_destination_idx ON outbox (destination, sequence) INCLUDE (id, scheduled_at, [key], attempt, message_sequence) WHERE state = N'pending'
  WITH (DROP_EXISTING = ON);
CREATE INDEX outbox_retries_idx ON outbox (destination, scheduled_at) INCLUDE (id, [key], message_sequence) WHERE state = N'pending' AND attempt > 0
  WITH (DROP_EXISTING = ON);
