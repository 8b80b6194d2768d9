-- The relay reads rows in the order in which they become due, so that a row that was put off at its receipt takes its place among those that came meanwhile.
-- A filter cannot compare two columns, as that of PostgreSQL does: this index replaces the one in order of arrival.
CREATE INDEX inbox_relay_order_idx ON inbox (scheduled_at, created_at, id) INCLUDE (source, aggregate_id)
  WHERE state = N'pending' AND consumption = N'push';
DROP INDEX inbox_relay_idx ON inbox;
