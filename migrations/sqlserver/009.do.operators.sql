-- The processes alive: each notes every 20 s that it is there.
CREATE TABLE outbox_process (
  name       nvarchar(400)     COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
  version    nvarchar(100)     NOT NULL,
  roles      nvarchar(400)     NOT NULL,
  started_at datetimeoffset(7) NOT NULL,
  seen_at    datetimeoffset(7) NOT NULL
);

-- What all processes counted in a minute about a source or a destination; kept for a day.
CREATE TABLE outbox_figures (
  minute     datetimeoffset(0) NOT NULL,
  kind       nvarchar(20)      COLLATE Latin1_General_100_BIN2 NOT NULL,
  name       nvarchar(400)     COLLATE Latin1_General_100_BIN2 NOT NULL,
  received   bigint            NOT NULL DEFAULT 0,
  duplicate  bigint            NOT NULL DEFAULT 0,
  filtered   bigint            NOT NULL DEFAULT 0,
  sent       bigint            NOT NULL DEFAULT 0,
  failed     bigint            NOT NULL DEFAULT 0,
  dead       bigint            NOT NULL DEFAULT 0,
  PRIMARY KEY (minute, kind, name)
);

-- What operators did, and when; kept for 90 days.
CREATE TABLE outbox_audit (
  id     bigint            IDENTITY NOT NULL PRIMARY KEY,
  at     datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME(),
  actor  nvarchar(400)     NOT NULL,
  action nvarchar(100)     NOT NULL,
  target nvarchar(400)     NULL,
  detail nvarchar(2000)    NULL
);
