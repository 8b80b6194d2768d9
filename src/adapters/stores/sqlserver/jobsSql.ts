import type { JobStatements } from "../sql/jobs.ts";
import type { TableNames } from "../sql/names.ts";
import { BATCH } from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

const onJobs = (declaration: string) => statement(`jobs.${declaration}`, { timeoutMs: 10_000 });

/** Every statement on replay jobs. Each locks its row, and then reads the clock. */
export function jobStatements(names: TableNames): JobStatements<Statement> {
  const { job } = names.operations;
  const columns = `j.id, j.created_by, j.filter, j.per_second, j.state, j.total, j.moved, j.finished_until, j.last_sequence, j.position,
  j.created_at, j.updated_at, j.last_error`;
  const NOW = "CONVERT(datetimeoffset(7), SYSUTCDATETIME())";
  const until = `DATEADD(millisecond, @leaseMs, ${NOW})`;
  const isFree = `(j.lease_until IS NULL OR j.lease_until < ${NOW})`;
  /** @param counted how many rows count as changed */
  const change = (set: string, condition: string, counted = "@@ROWCOUNT"): string => `${BATCH}
BEGIN TRANSACTION;
DECLARE @locked int = (SELECT COUNT(*) FROM ${job} l WITH (UPDLOCK, ROWLOCK) WHERE l.id = @id);
UPDATE j SET updated_at = ${NOW}, ${set} FROM ${job} j WHERE j.id = @id AND @locked = 1 AND ${condition};
DECLARE @changed int = ${counted};
COMMIT TRANSACTION;
SELECT @changed AS changed;`;

  return {
    add: onJobs(
      `add(id uuid, by text, filter longText, perSecond int, total bigint, finishedUntil text, lastSequence text,
        token uuid, leaseMs ms)`,
    )`
INSERT INTO ${job} (id, created_by, filter, per_second, total, finished_until, last_sequence, lease_token, lease_until)
VALUES (@id, @by, @filter, @perSecond, @total, @finishedUntil, @lastSequence, @token, ${until});`,
    get: onJobs("get(id uuid)")`SELECT ${columns} FROM ${job} j WHERE j.id = @id;`,
    list: onJobs("list(limit int)")`
SELECT TOP (@limit) ${columns} FROM ${job} j ORDER BY j.created_at DESC, j.id;`,
    take: onJobs("take(id uuid, token uuid, leaseMs ms)")(
      change(`lease_token = @token, lease_until = ${until}`, `j.state = N'running' AND ${isFree}`),
    ),
    abandoned: onJobs("abandoned(limit int)")`
SELECT TOP (@limit) j.id FROM ${job} j WHERE j.state = N'running' AND ${isFree} ORDER BY j.created_at;`,
    advance: onJobs("advance(id uuid, token uuid, leaseMs ms, moved bigint, position text, left longText)")(
      change(
        `lease_until = ${until}, moved = CASE WHEN j.moved > @moved THEN j.moved ELSE @moved END, position = COALESCE(@position, j.position),
  last_error = COALESCE(@left, j.last_error)`,
        "j.state IN (N'running', N'cancelled') AND j.lease_token = @token",
        `(SELECT COUNT(*) FROM ${job} h WHERE h.id = @id AND h.state = N'running' AND h.lease_token = @token)`,
      ),
    ),
    end: onJobs("end(id uuid, token uuid, state text, error longText)")(
      change(
        "state = @state, last_error = @error, lease_token = NULL, lease_until = NULL",
        "j.state = N'running' AND j.lease_token = @token",
      ),
    ),
    cancel: onJobs("cancel(id uuid)")(
      change("state = N'cancelled'", "j.state IN (N'running', N'interrupted', N'failed')"),
    ),
    resume: onJobs("resume(id uuid)")(
      change(
        "state = N'running', last_error = CASE WHEN j.state = N'interrupted' THEN j.last_error END, lease_token = NULL, lease_until = NULL",
        "j.state IN (N'interrupted', N'failed')",
      ),
    ),
  };
}
