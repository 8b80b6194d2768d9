-- A row that an operator replayed to another destination names it here; null leaves that to the routes. The change itself takes no time.
IF COL_LENGTH('outbox', 'destination_override') IS NULL
  ALTER TABLE outbox ADD destination_override nvarchar(400) COLLATE Latin1_General_100_BIN2 NULL;
