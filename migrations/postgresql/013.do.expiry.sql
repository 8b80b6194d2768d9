-- After this time a message is no longer delivered, and becomes dead; null for never.
ALTER TABLE inbox ADD COLUMN IF NOT EXISTS expires_at timestamptz;
ALTER TABLE outbox ADD COLUMN IF NOT EXISTS expires_at timestamptz;
