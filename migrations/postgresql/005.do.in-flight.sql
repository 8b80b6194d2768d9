-- What is in flight, in the order of its sequence: below the low-water mark nothing is, so that whoever looks passes over the entries of rows that have
-- finished since, which a transaction that stays open keeps in every index. By the end of the lease they would all lie in front.
CREATE INDEX IF NOT EXISTS outbox_in_flight_idx ON outbox (sequence) WHERE state = 'processing';
DROP INDEX IF EXISTS outbox_lease_idx;
