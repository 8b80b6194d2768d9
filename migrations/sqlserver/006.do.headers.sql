-- An application whose driver or mapper writes NULL for "no headers" may do so. The change itself takes no time.
ALTER TABLE outbox ALTER COLUMN headers nvarchar(max) NULL;
