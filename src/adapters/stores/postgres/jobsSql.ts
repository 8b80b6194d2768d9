import type { JobStatements } from "../sql/jobs.ts";
import type { TableNames } from "../sql/names.ts";
import { msOf } from "./fragments.ts";
import { byIndex, type Statement } from "./statement.ts";

const onJobs = (declaration: string) => byIndex(`jobs.${declaration}`, { timeoutMs: 10_000 });

const JOB = "id, by, filter, perSecond, total, finishedUntil, lastSequence, token, leaseMs";

/** Every statement on replay jobs. The clock is read after the wait for a row's lock; the server gives that wait up. */
export function jobStatements(names: TableNames): JobStatements<Statement> {
  const { job } = names.operations;
  const columns = `j.id, j.created_by, j.filter, j.per_second, j.state, j.total, j.moved, j.finished_until, j.last_sequence, j.position,
  ${msOf("j.created_at")} AS created_at, ${msOf("j.updated_at")} AS updated_at, j.last_error`;
  const until = (leaseMs: string): string => `clock_timestamp() + ${leaseMs}::bigint * interval '1 millisecond'`;
  const isFree = "(j.lease_until IS NULL OR j.lease_until < clock_timestamp())";
  /** @param counts whether a row that was changed counts */
  const change = (set: string, condition: string, counts = "true"): string => `
WITH changed AS (UPDATE ${job} j SET updated_at = clock_timestamp(), ${set} WHERE j.id = $1::uuid AND ${condition} RETURNING j.state)
SELECT count(*) FILTER (WHERE ${counts})::int AS changed FROM changed`;

  return {
    add: onJobs(`add(${JOB})`)`
INSERT INTO ${job} (id, created_by, filter, per_second, total, finished_until, last_sequence, lease_token, lease_until)
VALUES ($1::uuid, $2, $3, $4::int, $5::bigint, $6, $7, $8::uuid, ${until("$9")})`,
    get: onJobs("get(id)")`SELECT ${columns} FROM ${job} j WHERE j.id = $1::uuid`,
    list: onJobs("list(limit)")`
SELECT ${columns} FROM ${job} j ORDER BY j.created_at DESC, j.id LIMIT $1::int`,
    take: onJobs("take(id, token, leaseMs)")(
      change(`lease_token = $2::uuid, lease_until = ${until("$3")}`, `j.state = 'running' AND ${isFree}`),
    ),
    abandoned: onJobs("abandoned(limit)")`
SELECT j.id FROM ${job} j WHERE j.state = 'running' AND ${isFree} ORDER BY j.created_at LIMIT $1::int`,
    advance: onJobs("advance(id, token, leaseMs, moved, position)")(
      change(
        `lease_until = ${until("$3")}, moved = greatest(j.moved, $4::bigint), position = coalesce($5::text, j.position)`,
        "j.state IN ('running', 'cancelled') AND j.lease_token = $2::uuid",
        "state = 'running'",
      ),
    ),
    end: onJobs("end(id, token, state, error)")(
      change(
        "state = $3, last_error = $4, lease_token = NULL, lease_until = NULL",
        "j.state = 'running' AND j.lease_token = $2::uuid",
      ),
    ),
    cancel: onJobs("cancel(id)")(change("state = 'cancelled'", "j.state IN ('running', 'interrupted', 'failed')")),
    resume: onJobs("resume(id)")(
      change(
        "state = 'running', last_error = NULL, lease_token = NULL, lease_until = NULL",
        "j.state IN ('interrupted', 'failed')",
      ),
    ),
  };
}
