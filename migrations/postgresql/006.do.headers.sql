-- An application whose driver or mapper writes NULL for "no headers" may do so.
ALTER TABLE outbox ALTER COLUMN headers DROP NOT NULL;
