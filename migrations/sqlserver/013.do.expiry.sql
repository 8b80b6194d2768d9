-- After this time a message is no longer delivered, and becomes dead; null for never. The change itself takes no time.
IF COL_LENGTH('inbox', 'expires_at') IS NULL
  ALTER TABLE inbox ADD expires_at datetimeoffset(7) NULL;
IF COL_LENGTH('outbox', 'expires_at') IS NULL
  ALTER TABLE outbox ADD expires_at datetimeoffset(7) NULL;
