-- Pull clients claim pending pull rows of one source in order of arrival. Push rows are in none of these indexes, and cost nothing here.
CREATE INDEX inbox_pull_idx ON inbox (source, created_at, id)
  INCLUDE (aggregate_id, scheduled_at, attempt, claim_token, lease_expires_at)
  WHERE state = N'pending' AND consumption = N'pull';

-- "Is an earlier row of this aggregate unfinished?" is one probe of this index. The source is not in its key, which would become too wide.
CREATE INDEX inbox_pull_aggregate_idx ON inbox (aggregate_id, created_at, id)
  INCLUDE (source, scheduled_at, attempt, claim_token, lease_expires_at)
  WHERE state = N'pending' AND consumption = N'pull' AND aggregate_id IS NOT NULL;

-- The rows of one claim, to extend and to close it, and the aggregates that clients are working on; holds only what is claimed.
CREATE INDEX inbox_pull_claim_idx ON inbox (source, claim_token) INCLUDE (id, created_at, aggregate_id, attempt, lease_expires_at)
  WHERE state = N'pending' AND consumption = N'pull' AND claim_token IS NOT NULL;

-- Aggregates whose row waits out a delay; holds only rows that have been given back.
CREATE INDEX inbox_pull_delay_idx ON inbox (source, scheduled_at) INCLUDE (aggregate_id, attempt, claim_token)
  WHERE state = N'pending' AND consumption = N'pull' AND attempt > 0 AND claim_token IS NULL;
