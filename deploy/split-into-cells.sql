-- Copies the rows of one cell out of the tables of an installation without cells (docs/cells.md). PostgreSQL, tables as the
-- migrations make them; with tables of your own, name the columns.
-- Every process is stopped, and so are applications that insert. Once for each cell, with its schema and its number from 0:
--   for n in 0 1 2 3; do psql -v ON_ERROR_STOP=1 -v cell=public_$n -v number=$n -v cells=4 -f split-into-cells.sql; done
-- Destinations and audit are not moved.
BEGIN;
CREATE OR REPLACE FUNCTION pg_temp.cell_of(key text, cells integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS
  $$ SELECT ('x' || left(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 8))::bit(32)::bigint % cells $$;

-- Their processes are gone.
UPDATE outbox SET state = 'pending', claim_token = NULL, claimed_at = NULL, lease_expires_at = NULL
WHERE state = 'processing';

INSERT INTO :"cell".inbox SELECT * FROM inbox
WHERE pg_temp.cell_of(coalesce(aggregate_id, idempotency_key), :cells) = :number;

-- A row follows its inbox row. One of an application goes by its key, else by its id.
INSERT INTO :"cell".outbox OVERRIDING SYSTEM VALUE SELECT o.* FROM outbox o LEFT JOIN inbox i ON i.id = o.id
WHERE pg_temp.cell_of(coalesce(i.aggregate_id, i.idempotency_key, o.key, o.id::text), :cells) = :number;

INSERT INTO :"cell".outbox_history OVERRIDING SYSTEM VALUE SELECT h.* FROM outbox_history h
WHERE h.outbox_id IN (SELECT id FROM :"cell".outbox);

INSERT INTO :"cell".outbox_journal OVERRIDING SYSTEM VALUE SELECT j.* FROM outbox_journal j
WHERE j.message_id IN (SELECT id FROM :"cell".inbox) OR j.message_id IS NULL AND :number = 0;

-- New rows come behind the old ones.
SELECT setval(pg_get_serial_sequence(format('%I.outbox', :'cell'), 'sequence'), max(sequence)) FROM outbox;
SELECT setval(pg_get_serial_sequence(format('%I.outbox_history', :'cell'), 'id'), max(id)) FROM outbox_history;
SELECT setval(pg_get_serial_sequence(format('%I.outbox_journal', :'cell'), 'id'), max(id)) FROM outbox_journal;
COMMIT;
ANALYZE :"cell".inbox, :"cell".outbox;
