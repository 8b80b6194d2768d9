-- Of several cells: the buckets of received messages that are or were in this one. A move updates 1,024 rows at most, in place.
CREATE TABLE IF NOT EXISTS outbox_bucket (
  bucket      integer     NOT NULL PRIMARY KEY,
  state       text        COLLATE "C" NOT NULL,
  epoch       bigint      NOT NULL,
  other_cell  text,
  token       uuid,
  lease_until timestamptz,
  changed_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
