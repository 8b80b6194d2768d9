import type { JobStatements } from "../sql/jobs.ts";
import type { TableNames } from "../sql/names.ts";
import { msOf, ordered } from "./fragments.ts";
import { byIndex, type Statement } from "./statement.ts";

/** The server gives up the wait for a lock. */
const onJobs = (declaration: string) => byIndex(`jobs.${declaration}`, { timeoutMs: 10_000 });

/**
 * Every statement on replay jobs. `lease_token` has the token of the latest run; processes of earlier versions would take
 * over a replay whose `lease_until` has passed.
 */
export function jobStatements(names: TableNames): JobStatements<Statement> {
  const { job } = names.operations;
  const columns = `j.id, j.created_by, j.filter, j.per_second, j.state, j.total, j.moved, j.finished_until, j.last_sequence, j.position,
  ${msOf("j.created_at")} AS created_at, ${msOf("j.updated_at")} AS updated_at, j.last_error`;
  const changeUnfinished = (set: string): string => `
WITH changed AS (
  UPDATE ${job} j SET updated_at = clock_timestamp(), ${set}
  WHERE j.id = $1::uuid AND j.state IN ('running', 'interrupted', 'failed')
  RETURNING j.id
)
SELECT count(*)::int AS changed FROM changed`;

  return {
    add: onJobs("add(id, by, filter, perSecond, total, finishedUntil, lastSequence, token)")`
INSERT INTO ${job} (id, created_by, filter, per_second, total, finished_until, last_sequence, lease_token, lease_until)
VALUES ($1::uuid, $2, $3, $4::int, $5::bigint, $6, $7, $8::uuid, 'infinity')`,
    get: onJobs("get(id)")`SELECT ${columns} FROM ${job} j WHERE j.id = $1::uuid`,
    list: onJobs("list(limit)")`
SELECT ${columns} FROM ${ordered(`${job} j`)} ORDER BY j.created_at DESC, j.id LIMIT $1::int`,
    note: onJobs("note(id, token, state, moved, position, error)")`
UPDATE ${job} j
SET updated_at = clock_timestamp(), state = CASE j.state WHEN 'running' THEN $3::text ELSE j.state END,
  moved = greatest(j.moved, $4::bigint), position = coalesce($5::text, j.position), last_error = $6::text
WHERE j.id = $1::uuid AND j.lease_token = $2::uuid
RETURNING j.state`,
    cancel: onJobs("cancel(id)")(changeUnfinished("state = 'cancelled'")),
    resume: onJobs("resume(id, token)")(
      changeUnfinished(`state = 'running', lease_token = $2::uuid, lease_until = 'infinity',
    last_error = CASE j.state WHEN 'failed' THEN NULL ELSE j.last_error END`),
    ),
  };
}
