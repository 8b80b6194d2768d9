-- An application whose driver or mapper writes NULL for "no headers" may do so. The change itself takes no time, but it waits for every transaction that
-- has the table open, and whoever writes would wait behind it: so it only ever waits for a moment, and leaves it at that when a backup or a report
-- goes on for longer. Then NULL is refused as before, until somebody runs the statement.
DO $$
BEGIN
  FOR attempt IN 1 .. 20 LOOP
    BEGIN
      SET LOCAL lock_timeout = '100ms';
      ALTER TABLE outbox ALTER COLUMN headers DROP NOT NULL;
      SET LOCAL lock_timeout = DEFAULT;
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM pg_sleep(0.2);
    END;
  END LOOP;
  RAISE WARNING 'outbox.headers still refuses NULL: ALTER TABLE outbox ALTER COLUMN headers DROP NOT NULL';
END $$;
