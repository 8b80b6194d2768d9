import type { JobStatements } from "../sql/jobs.ts";
import type { TableNames } from "../sql/names.ts";
import { clockBehind, msOf, ordered } from "./fragments.ts";
import { byIndex, type Statement } from "./statement.ts";

const onJobs = (declaration: string) => byIndex(`jobs.${declaration}`, { timeoutMs: 10_000 });

const JOB = "id, by, filter, perSecond, total, finishedUntil, lastSequence, token, leaseMs";

/**
 * Every statement on replay jobs. A change locks the row and then reads the clock (`t.now`), as for
 * `destinationStatements`; the server gives the wait up.
 */
export function jobStatements(names: TableNames): JobStatements<Statement> {
  const { job } = names.operations;
  const columns = `j.id, j.created_by, j.filter, j.per_second, j.state, j.total, j.moved, j.finished_until, j.last_sequence, j.position,
  ${msOf("j.created_at")} AS created_at, ${msOf("j.updated_at")} AS updated_at, j.last_error`;
  const until = (leaseMs: string, now: string): string => `${now} + ${leaseMs}::bigint * interval '1 millisecond'`;
  const isFree = (now: string): string => `(j.lease_until IS NULL OR j.lease_until < ${now})`;
  /**
   * @param values by column: expressions over the locked row `j` and `t.now`
   * @param condition over the same
   * @param counts whether a row that was changed counts
   */
  const change = (values: Readonly<Record<string, string>>, condition: string, counts = "true"): string => `
WITH j AS MATERIALIZED (SELECT r.* FROM ${job} r WHERE r.id = $1::uuid FOR NO KEY UPDATE OF r),
t AS MATERIALIZED (${clockBehind("j")}),
n AS MATERIALIZED (
  SELECT j.id, t.now, ${Object.entries(values)
    .map(([column, value]) => `${value} AS ${column}`)
    .join(", ")}
  FROM j CROSS JOIN t WHERE ${condition}
),
changed AS (
  UPDATE ${job} u SET updated_at = n.now, ${Object.keys(values)
    .map((column) => `${column} = n.${column}`)
    .join(", ")}
  FROM n WHERE u.id = n.id RETURNING u.state
)
SELECT count(*) FILTER (WHERE ${counts})::int AS changed FROM changed`;
  const NO_LEASE = { lease_token: "NULL::uuid", lease_until: "NULL::timestamptz" };

  return {
    add: onJobs(`add(${JOB})`)`
INSERT INTO ${job} (id, created_by, filter, per_second, total, finished_until, last_sequence, lease_token, lease_until)
VALUES ($1::uuid, $2, $3, $4::int, $5::bigint, $6, $7, $8::uuid, ${until("$9", "clock_timestamp()")})`,
    get: onJobs("get(id)")`SELECT ${columns} FROM ${job} j WHERE j.id = $1::uuid`,
    list: onJobs("list(limit)")`
SELECT ${columns} FROM ${ordered(`${job} j`)} ORDER BY j.created_at DESC, j.id LIMIT $1::int`,
    take: onJobs("take(id, token, leaseMs)")(
      change(
        { lease_token: "$2::uuid", lease_until: until("$3", "t.now") },
        `j.state = 'running' AND ${isFree("t.now")}`,
      ),
    ),
    abandoned: onJobs("abandoned(limit)")`
SELECT j.id FROM ${job} j WHERE j.state = 'running' AND ${isFree("clock_timestamp()")} ORDER BY j.created_at LIMIT $1::int`,
    advance: onJobs("advance(id, token, leaseMs, moved, position, left)")(
      change(
        {
          lease_until: until("$3", "t.now"),
          moved: "greatest(j.moved, $4::bigint)",
          position: "coalesce($5::text, j.position)",
          last_error: "coalesce($6::text, j.last_error)",
        },
        "j.state IN ('running', 'cancelled') AND j.lease_token = $2::uuid",
        "state = 'running'",
      ),
    ),
    end: onJobs("end(id, token, state, error)")(
      change(
        { state: "$3::text", last_error: "$4::text", ...NO_LEASE },
        "j.state = 'running' AND j.lease_token = $2::uuid",
      ),
    ),
    cancel: onJobs("cancel(id)")(change({ state: "'cancelled'" }, "j.state IN ('running', 'interrupted', 'failed')")),
    resume: onJobs("resume(id)")(
      change(
        { state: "'running'", last_error: "CASE WHEN j.state = 'interrupted' THEN j.last_error END", ...NO_LEASE },
        "j.state IN ('interrupted', 'failed')",
      ),
    ),
  };
}
