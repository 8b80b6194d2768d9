-- Retention and replay look at finished rows, which no other index holds.

-- Retention by age, and by count per state: the oldest first.
CREATE INDEX outbox_finished_idx ON outbox (state, updated_at, sequence) WHERE state IN (N'sent', N'dead');

-- Replay walks finished rows in the order of delivery, so that a key's earlier row is pending again before a later one.
CREATE INDEX outbox_replay_idx ON outbox (sequence) INCLUDE (state) WHERE state IN (N'sent', N'dead');

-- Retention of the inbox by age.
CREATE INDEX inbox_finished_idx ON inbox (created_at, id) INCLUDE (state) WHERE state IN (N'processed', N'dead');
