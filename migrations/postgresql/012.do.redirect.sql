-- A row that an operator replayed to another destination names it here; null leaves that to the routes.
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS destination_override text;
