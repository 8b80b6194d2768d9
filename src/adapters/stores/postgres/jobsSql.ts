import type { JobStatements } from "../sql/jobs.ts";
import type { TableNames } from "../sql/names.ts";
import { clockBehind, msOf, ordered } from "./fragments.ts";
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
  /**
   * Locks the row, and then reads the clock (`t.now`), as `destinationStatements` do.
   *
   * @param values by column: expressions over the locked row `j`
   * @param condition over the same
   */
  const change = (values: Readonly<Record<string, string>>, condition: string, answer: string): string => `
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
SELECT ${answer} FROM changed`;
  const changeUnfinished = (values: Readonly<Record<string, string>>): string =>
    change(values, "j.state IN ('running', 'interrupted', 'failed')", "count(*)::int AS changed");

  return {
    add: onJobs("add(id, by, filter, perSecond, total, finishedUntil, lastSequence, token)")`
INSERT INTO ${job} (id, created_by, filter, per_second, total, finished_until, last_sequence, lease_token, lease_until)
VALUES ($1::uuid, $2, $3, $4::int, $5::bigint, $6, $7, $8::uuid, 'infinity')`,
    get: onJobs("get(id)")`SELECT ${columns} FROM ${job} j WHERE j.id = $1::uuid`,
    list: onJobs("list(limit)")`
SELECT ${columns} FROM ${ordered(`${job} j`)} ORDER BY j.created_at DESC, j.id LIMIT $1::int`,
    note: onJobs("note(id, token, state, moved, position, error)")(
      change(
        {
          state: "CASE WHEN j.state = 'running' THEN $3::text ELSE j.state END",
          moved: "greatest(j.moved, $4::bigint)",
          position: "coalesce($5::text, j.position)",
          last_error: "$6::text",
        },
        "j.lease_token = $2::uuid",
        "state",
      ),
    ),
    cancel: onJobs("cancel(id)")(changeUnfinished({ state: "'cancelled'" })),
    resume: onJobs("resume(id, token)")(
      changeUnfinished({
        state: "'running'",
        lease_token: "$2::uuid",
        lease_until: "'infinity'::timestamptz",
        last_error: "CASE WHEN j.state <> 'failed' THEN j.last_error END",
      }),
    ),
  };
}
