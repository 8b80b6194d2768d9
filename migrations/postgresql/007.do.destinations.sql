-- What replicas share about destinations: a row for each destination about which there is something to say. Names compare letter for letter.
-- Rows are updated in place several times a second: half of each page is left free, so that the new version finds room beside the old one.
CREATE TABLE IF NOT EXISTS outbox_destination (
  name              text        COLLATE "C" NOT NULL PRIMARY KEY,
  paused_at         timestamptz,
  paused_until      timestamptz,
  paused_by         text,
  pause_reason      text,
  breaker_state     text        NOT NULL DEFAULT 'closed',
  openings          integer     NOT NULL DEFAULT 0,
  opened_at         timestamptz,
  open_until        timestamptz,
  breaker_reason    text,
  closed_at         timestamptz,
  probe_token       uuid,
  probe_at          timestamptz,
  probe_until       timestamptz,
  rate_next_at      timestamptz,
  rate_second       timestamptz,
  rate_taken        bigint      NOT NULL DEFAULT 0,
  rate_taken_before bigint      NOT NULL DEFAULT 0,
  last_success_at   timestamptz,
  last_failure_at   timestamptz,
  last_error        text,
  slow_at           timestamptz
) WITH (fillfactor = 50);
