-- Retention and replay look at finished rows, which no other index holds.

-- Retention by age, and by count per state: the oldest first.
CREATE INDEX IF NOT EXISTS outbox_finished_idx ON outbox (state, updated_at, sequence) WHERE state IN ('sent', 'dead');

-- Replay walks finished rows in the order of delivery, so that a key's earlier row is pending again before a later one.
CREATE INDEX IF NOT EXISTS outbox_replay_idx ON outbox (sequence) WHERE state IN ('sent', 'dead');

-- Unfinished rows that may lie below the low-water mark of a running poller: replayed ones (and retried or scheduled ones with them).
-- A fresh row has equal times and is not in here, so this index costs nothing on the common way.
CREATE INDEX IF NOT EXISTS outbox_again_idx ON outbox (sequence) WHERE state IN ('pending', 'processing') AND scheduled_at <> created_at;

-- Retention of the inbox by age.
CREATE INDEX IF NOT EXISTS inbox_finished_idx ON inbox (created_at, id) WHERE state IN ('processed', 'dead');
