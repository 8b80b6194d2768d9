-- The processes alive: each notes every 20 s that it is there. Rows are updated in place: half of each page is left free.
CREATE TABLE IF NOT EXISTS outbox_process (
  name       text        COLLATE "C" NOT NULL PRIMARY KEY,
  version    text        NOT NULL,
  roles      text        NOT NULL,
  started_at timestamptz NOT NULL,
  seen_at    timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What all processes counted in a minute about a source or a destination; kept for a day.
CREATE TABLE IF NOT EXISTS outbox_figures (
  minute     timestamptz NOT NULL,
  kind       text        COLLATE "C" NOT NULL,
  name       text        COLLATE "C" NOT NULL,
  received   bigint      NOT NULL DEFAULT 0,
  duplicate  bigint      NOT NULL DEFAULT 0,
  filtered   bigint      NOT NULL DEFAULT 0,
  sent       bigint      NOT NULL DEFAULT 0,
  failed     bigint      NOT NULL DEFAULT 0,
  dead       bigint      NOT NULL DEFAULT 0,
  PRIMARY KEY (minute, kind, name)
) WITH (fillfactor = 50);

-- What operators did, and when; kept for 90 days.
CREATE TABLE IF NOT EXISTS outbox_audit (
  id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     timestamptz NOT NULL DEFAULT now(),
  actor  text        NOT NULL,
  action text        NOT NULL,
  target text,
  detail text
);
