-- Inbox rows that were put off at their receipt, in the order in which they become due. Other rows are not in here, and cost nothing.
CREATE INDEX IF NOT EXISTS inbox_put_off_idx ON inbox (scheduled_at, created_at, id)
  WHERE state = 'pending' AND consumption = 'push' AND scheduled_at > created_at;
