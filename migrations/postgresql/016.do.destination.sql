-- The destination of a row, and the hash of the routes that chose it. A destination without such a hash was chosen by the application or by an operator. The column
-- of number 12 held only destinations of operators, and becomes the new one.
ALTER TABLE outbox RENAME COLUMN destination_override TO destination;
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS destination text;
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS routes text;

-- Waiting rows of each destination in order.
CREATE INDEX IF NOT EXISTS outbox_destination_idx ON outbox (destination, sequence) WHERE state = 'pending';

-- Retries of each destination by their time; holds only rows that have failed.
CREATE INDEX IF NOT EXISTS outbox_retries_idx ON outbox (destination, scheduled_at) WHERE state = 'pending' AND attempt > 0;
