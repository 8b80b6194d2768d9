-- The destination of a row, and the hash of the routes that chose it. A destination without such a hash was chosen by the application or by an operator. The column
-- of number 12 held only destinations of operators, and becomes the new one.
IF COL_LENGTH('outbox', 'destination_override') IS NOT NULL
  EXEC sp_rename N'outbox.destination_override', N'destination', N'COLUMN';
IF COL_LENGTH('outbox', 'destination') IS NULL
  ALTER TABLE outbox ADD destination nvarchar(400) COLLATE Latin1_General_100_BIN2 NULL;
IF COL_LENGTH('outbox', 'routes') IS NULL
  ALTER TABLE outbox ADD routes nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL;

-- Waiting rows of each destination in order, and its rows that wait for their retry.
CREATE INDEX outbox_destination_idx ON outbox (destination, sequence) INCLUDE (id, scheduled_at, [key], attempt) WHERE state = N'pending';
CREATE INDEX outbox_retries_idx ON outbox (destination, scheduled_at) INCLUDE (id, [key]) WHERE state = N'pending' AND attempt > 0;

-- Whether an earlier row holds back the later ones of its key depends on its destination too.
CREATE INDEX outbox_key_idx ON outbox ([key], sequence) INCLUDE (state, attempt, scheduled_at, claim_token, destination)
  WHERE [key] IS NOT NULL AND state IN (N'pending', N'processing') WITH (DROP_EXISTING = ON);
