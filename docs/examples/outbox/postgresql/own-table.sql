ALTER TABLE outbox RENAME TO events;
ALTER TABLE events RENAME COLUMN topic TO type;
ALTER TABLE events RENAME COLUMN key TO entity_id;
ALTER TABLE events RENAME COLUMN payload TO body;
ALTER TABLE events ALTER COLUMN body TYPE jsonb USING body::jsonb;
