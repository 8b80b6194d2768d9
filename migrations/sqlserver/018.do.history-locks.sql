-- Retention deletes the entries of thousands of rows at once. Locks that the server joins into one on the table would stop settlements.
ALTER TABLE outbox_history SET (LOCK_ESCALATION = DISABLE);
