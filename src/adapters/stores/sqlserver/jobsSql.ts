import type { JobStatements } from "../sql/jobs.ts";
import type { TableNames } from "../sql/names.ts";
import { BATCH } from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

const onJobs = (declaration: string) => statement(`jobs.${declaration}`, { timeoutMs: 10_000 });

/**
 * Every statement on replay jobs. `lease_token` has the token of the latest run; processes of earlier versions would take
 * over a replay whose `lease_until` has passed.
 */
export function jobStatements(names: TableNames): JobStatements<Statement> {
  const { job } = names.operations;
  const columns = `j.id, j.created_by, j.filter, j.per_second, j.state, j.total, j.moved, j.finished_until, j.last_sequence, j.position,
  j.created_at, j.updated_at, j.last_error`;
  const changeUnfinished = (set: string): string => `${BATCH}
UPDATE j SET updated_at = SYSUTCDATETIME(), ${set} FROM ${job} j
WHERE j.id = @id AND j.state IN (N'running', N'interrupted', N'failed');
SELECT @@ROWCOUNT AS changed;`;

  return {
    add: onJobs(
      `add(id uuid, by text, filter longText, perSecond int, total bigint, finishedUntil text, lastSequence text,
        token uuid)`,
    )`
INSERT INTO ${job} (id, created_by, filter, per_second, total, finished_until, last_sequence, lease_token, lease_until)
VALUES (@id, @by, @filter, @perSecond, @total, @finishedUntil, @lastSequence, @token, '9999-12-31');`,
    get: onJobs("get(id uuid)")`SELECT ${columns} FROM ${job} j WHERE j.id = @id;`,
    list: onJobs("list(limit int)")`
SELECT TOP (@limit) ${columns} FROM ${job} j ORDER BY j.created_at DESC, j.id;`,
    note: onJobs("note(id uuid, token uuid, state text, moved bigint, position text, error longText)")(`${BATCH}
UPDATE j
SET updated_at = SYSUTCDATETIME(), state = CASE j.state WHEN N'running' THEN @state ELSE j.state END,
  moved = CASE WHEN j.moved > @moved THEN j.moved ELSE @moved END, position = COALESCE(@position, j.position), last_error = @error
FROM ${job} j WHERE j.id = @id AND j.lease_token = @token;
SELECT j.state FROM ${job} j WHERE j.id = @id AND j.lease_token = @token;`),
    cancel: onJobs("cancel(id uuid)")(changeUnfinished("state = N'cancelled'")),
    resume: onJobs("resume(id uuid, token uuid)")(
      changeUnfinished(`state = N'running', lease_token = @token, lease_until = '9999-12-31',
  last_error = CASE j.state WHEN N'failed' THEN NULL ELSE j.last_error END`),
    ),
  };
}
