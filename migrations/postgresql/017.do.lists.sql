-- A message for several destinations: a row for each delivery, at the place of its message (`message_sequence`), without payload and headers, which stay with the
-- row of the message; that row names the destinations to which the message was expanded (`expanded_to`, JSON), and is never delivered itself.
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS message_sequence bigint;
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS expanded_to text;

-- An application still cannot leave out the payload.
ALTER TABLE outbox ALTER COLUMN payload DROP NOT NULL;
ALTER TABLE outbox DROP CONSTRAINT IF EXISTS outbox_payload_check, ADD CONSTRAINT outbox_payload_check CHECK (payload IS NOT NULL OR message_sequence IS NOT NULL) NOT VALID;

-- Whether an earlier row of the key is unfinished: of deliveries, one to the same destination; of other rows, any. Deliveries to a destination that is down are
-- not among the other rows, which need not be read past them.
CREATE INDEX IF NOT EXISTS outbox_delivery_idx ON outbox (key, destination, message_sequence)
  WHERE state IN ('pending', 'processing') AND key IS NOT NULL AND message_sequence IS NOT NULL;
CREATE INDEX IF NOT EXISTS outbox_order_idx ON outbox (key, sequence)
  WHERE state IN ('pending', 'processing') AND key IS NOT NULL AND message_sequence IS NULL;
DROP INDEX IF EXISTS outbox_key_idx;
