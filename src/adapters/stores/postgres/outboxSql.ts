import type { ClaimScope } from "../../../ports/store.ts";
import type { TableNames } from "../sql/names.ts";
import type { TopicRoute } from "../sql/routing.ts";
import { msOf, PARKED_AT } from "./fragments.ts";
import type { Question } from "./looks.ts";
import { history, isSameHistory, markBound, markRead, newestMark } from "./lowWater.ts";
import { destinationOf } from "./routing.ts";
import { mayHaveChanged, SEEN } from "./seenTable.ts";
import { perLimit, type Statement } from "./statement.ts";

/**
 * Every statement on the outbox, with the configured names woven in once. States stand as literals: a parameter in their
 * place would keep the planner from the partial indexes.
 */
export function outboxStatements(names: TableNames, payloadType: string, routes: readonly TopicRoute[] = []) {
  const table = names.outboxTable;
  const c = names.outbox;
  const payloadText = payloadType === "text" ? `o.${c.payload}` : `o.${c.payload}::text`;
  /** An owner's table may let NULL in, which counts as due. */
  const scheduledAtOf = (row: string): string => `coalesce(${row}.${c.scheduledAt}, '-infinity')`;
  const scheduledAt = scheduledAtOf("o");
  /** No addition may leave the range of the column: the row could never be settled. */
  const attemptsPlus = (added: string): string =>
    `CASE WHEN ${added} > 0 THEN least(greatest(coalesce(o.${c.attempt}, 0), 0)::bigint + ${added}, ${MAX_INTEGER}) ELSE o.${c.attempt} END`;
  const destinationIn = (row: string): string => destinationOf(routes, `${row}.${c.topic}`);
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;

  /**
   * Of a pending row: its time has come. One that was not scheduled ahead is due from its insert on, whatever the clock
   * says: `now()` is the time at which this transaction began, and its snapshot, taken behind a wait for a lock, also
   * holds rows of transactions that began later. A clock that has been set back makes no difference either. The attempt
   * keeps a retry from being due for its age.
   */
  const isDue = `(${scheduledAt} <= now() OR (coalesce(o.${c.attempt}, 0) = 0 AND o.${c.scheduledAt} <= o.${c.createdAt}))`;
  /**
   * Of a pending row that is not a candidate: it is not scheduled ahead, so the later rows of its key wait for it. When it
   * was inserted, or replayed, its time had come; or it has come by now, by a clock that is read after the snapshot was
   * taken.
   */
  const holdsBackAs = (row: string): string =>
    `(${row}.${c.attempt} > 0 OR ${scheduledAtOf(row)} <= greatest(${row}.${c.createdAt}, ${row}.${c.updatedAt}, clock_timestamp()))`;
  const holdsBack = holdsBackAs("o");

  /** Whether a row is among those that are looked for below a mark. */
  const isAgain = (row: string): string =>
    `${row}.${c.state} IN ('pending', 'processing') AND ${row}.${c.scheduledAt} <> ${row}.${c.createdAt}`;
  /** Whether a pending row is parked, and found below a mark: one without `created_at` would not be. */
  const isParkedAgain = (row: string): string =>
    `coalesce(${row}.${c.state} = 'pending' AND ${row}.${c.attempt} > 0 AND ${row}.${c.scheduledAt} = ${PARKED_AT} AND ${row}.${c.createdAt} <> ${PARKED_AT}, false)`;

  /**
   * The lowest unfinished row below the first sequence to look at, null when there is none. The mark is up to a second old, and a replay may have set
   * rows below it back to pending since. Such a row has `scheduled_at <> created_at`, which a fresh one has not, so this is one probe of a
   * small index of its own: 0.01 of the 4 ms that a claim takes with 200,000 rows pending. While an old snapshot keeps the index
   * entries of finished rows alive, it walks over those that were retried or replayed since: 0.4 s for 200,000, as long as
   * refreshing the mark takes then.
   *
   * @param from the parameter that holds the first sequence
   */
  const againBelow = (from: string): string => `
  SELECT min(o.${c.sequence}) AS sequence FROM ${table} o
  WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint`;
  /**
   * The same without parked rows. They stay unfinished for days: a mark passes them, so that only looks for the order of their keys begin at them, which walk over
   * no more than the rows of one key. Of very many parked rows some are not passed: finding out what they are takes as long as walking over them.
   */
  const unparkedBelow = (from: string): string => `
  SELECT coalesce(min(a.sequence) FILTER (WHERE NOT a.is_parked), CASE WHEN count(*) = ${PARKED_PASSED} THEN max(a.sequence) END) AS sequence
  FROM (SELECT o.${c.sequence} AS sequence, ${isParkedAgain("o")} AS is_parked FROM ${table} o
    WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint ORDER BY o.${c.sequence} LIMIT ${PARKED_PASSED}) a`;

  /**
   * The first sequence at which anything unfinished can be, also what is back below the mark. @param bound as in
   * `markBound`
   */
  const settledFrom = (bound: string, below = againBelow): string => `${history(bound)},
known AS MATERIALIZED (SELECT ${markBound(bound)} AS sequence),
settled AS MATERIALIZED (
  SELECT least((SELECT sequence FROM known), (${below("(SELECT sequence FROM known)")})) AS sequence
)`;
  /** The same of rows that are not parked. */
  const unparkedFrom = (bound: string): string => settledFrom(bound, unparkedBelow);
  const unfinishedFrom = (alias: string): string => `${alias}.${c.sequence} >= (SELECT sequence FROM settled)`;

  /**
   * One claim. $1 first sequence to look at, $2 row limit, $3 byte limit, $4 token, $5 lease (ms), $6 claim timeout (ms),
   * $7 bound of the marks, $8 tokens of claims that this process holds.
   *
   * - candidates: due rows in order; rows that another claim is looking at are skipped.
   * - stops: per key the first unfinished row that is not a candidate. Whatever lies behind it must wait. A row that was scheduled
   *   ahead by its application, and is not yet due, stops nobody.
   * - free: candidates before the stop of their key, so a run of rows of one key is claimed together.
   *
   * The first row of the answer holds the counts, the others the claimed rows. Candidates may be chosen in another order than by sequence: those that are left out
   * are stops.
   *
   * Another replica that claims or settles at the same moment either holds its rows locked (they are skipped, and stop their key)
   * or has committed after this statement's snapshot (its rows then fail the recheck on the lock, and stop their key in the
   * snapshot): the error is always on the side of waiting.
   *
   * No row below the marks and the cursor ($1 of a claim past blocked keys) is overlooked as a stop: the newest mark and the cursor bound the
   * candidates alone; the settled mark lies below whatever may still be committed, and is lowered to the first row that was set back below it. A replay moves rows in the order of their sequence, so of two
   * replayed rows of a key a claim sees neither, the earlier one, or both, and never the later one alone. What appears below the
   * cursor is claimed at the next sweep.
   */
  const claim = (
    firstCandidate: string,
    { ctes, condition }: CandidateFilter,
    limit: string,
    order: string = c.sequence,
  ): string => `
WITH ${history("$7")},
again AS MATERIALIZED (${unparkedBelow("$1")}
),
settled AS MATERIALIZED (
  SELECT least(b.sequence, (${againBelow("$1")})) AS sequence FROM (SELECT ${markBound("$7")} AS sequence) b
),${ctes}
candidates AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.key} AS key, coalesce(octet_length(${payloadText}), 0) AS bytes
  FROM ${table} o
  WHERE o.${c.state} = 'pending' AND ${isDue} AND o.${c.sequence} >= ${firstCandidate}${condition}
  ORDER BY o.${order}
  LIMIT ${limit}
  FOR NO KEY UPDATE OF o SKIP LOCKED
),
stops AS MATERIALIZED (
  SELECT k.key, s.sequence
  FROM (SELECT key, max(sequence) AS last FROM candidates WHERE key IS NOT NULL GROUP BY key) k
  CROSS JOIN LATERAL (
    SELECT o.${c.sequence} AS sequence
    FROM ${table} o
    WHERE o.${c.key} = k.key AND o.${c.key} IS NOT NULL AND o.${c.state} IN ('pending', 'processing')
      AND ${unfinishedFrom("o")} AND o.${c.sequence} < k.last
      AND (o.${c.state} = 'processing' OR ${holdsBack})
      AND NOT (o.${c.state} = 'processing' AND coalesce(o.${c.claimToken} = ANY ($8::uuid[]), false))
      AND o.${c.sequence} NOT IN (SELECT sequence FROM candidates)
    ORDER BY o.${c.sequence}
    LIMIT 1
  ) s
),
free AS MATERIALIZED (
  SELECT c.id, c.sequence, sum(c.bytes) OVER (ORDER BY c.sequence) - c.bytes AS bytes_before
  FROM candidates c LEFT JOIN stops s ON s.key = c.key
  WHERE s.sequence IS NULL OR c.sequence < s.sequence
),
claimed AS (
  UPDATE ${table} o
  SET ${c.state} = 'processing', ${c.claimToken} = $4::uuid, ${c.claimedAt} = now(), ${c.updatedAt} = now(),
      ${c.leaseExpiresAt} = now() + least($5::bigint, $6::bigint) * interval '1 millisecond'
  FROM free f
  WHERE o.${c.id} = f.id AND f.bytes_before < $3::bigint
  RETURNING o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, o.${c.key}::text AS key,
    o.${c.aggregateType}::text AS aggregate_type, ${payloadText} AS payload, o.${c.headers}::text AS headers,
    o.${c.attempt} AS attempt, o.${c.maxAttempts} AS max_attempts, ${msOf(`o.${c.createdAt}`)} AS created_at
)
SELECT (SELECT count(*) FROM candidates)::int AS candidates, (SELECT count(*) FROM free)::int AS free,
  (SELECT count(*) FROM candidates) >= $2::int AS more, (SELECT min(sequence) FROM candidates) AS first_candidate, NULL AS id, NULL AS sequence, NULL AS topic, NULL AS key,
  NULL AS aggregate_type, NULL AS payload, NULL AS headers, NULL AS attempt, NULL AS max_attempts, NULL AS created_at,
  NOT (SELECT is_same FROM history) AS has_gone_back, ${SEEN} AS seen
UNION ALL
SELECT NULL, NULL, NULL, NULL, r.*, NULL, NULL FROM claimed r
ORDER BY sequence NULLS FIRST`;

  const inBackoff = `b.${c.state} = 'pending' AND b.${c.attempt} > 0 AND b.${c.scheduledAt} > now()`;
  const slow = `b.${c.state} = 'processing' AND b.${c.claimedAt} < now() - interval '1 second'`;

  /** Without keys in backoff, and keys whose row has been in delivery for a second: rows behind them are not worth looking at. */
  const withoutBlockedKeys: CandidateFilter = {
    ctes: "",
    condition: `
    AND (o.${c.key} IS NULL OR o.${c.key} NOT IN (
      SELECT b.${c.key} FROM ${table} b WHERE ${inBackoff} AND b.${c.key} IS NOT NULL
      UNION ALL
      SELECT b.${c.key} FROM ${table} b WHERE ${slow} AND ${unfinishedFrom("b")} AND b.${c.key} IS NOT NULL))`,
  };

  /**
   * The same where most rows are free: at most a few blocked keys are read beforehand, and where there are more, the first unfinished row of each
   * key that is met is asked. Reading all of them made a claim of 100 twenty times as slow with 100,000 keys in backoff.
   */
  const withoutBlockedKeysMet: CandidateFilter = {
    ctes: `
some_in_backoff AS MATERIALIZED (
  SELECT b.${c.key} AS key FROM ${table} b WHERE ${inBackoff} AND b.${c.key} IS NOT NULL LIMIT ${BLOCKED_KEYS_READ}
),
some_slow AS MATERIALIZED (
  SELECT b.${c.key} AS key FROM ${table} b WHERE ${slow} AND ${unfinishedFrom("b")} AND b.${c.key} IS NOT NULL LIMIT ${BLOCKED_KEYS_READ}
),`,
    condition: `
    AND (o.${c.key} IS NULL OR (
      o.${c.key} NOT IN (SELECT key FROM some_in_backoff UNION ALL SELECT key FROM some_slow)
      AND ((SELECT count(*) FROM some_in_backoff) < ${BLOCKED_KEYS_READ} AND (SELECT count(*) FROM some_slow) < ${BLOCKED_KEYS_READ}
        OR NOT coalesce((
          SELECT ${inBackoff} OR ${slow}
          FROM ${table} b
          WHERE b.${c.key} = o.${c.key} AND b.${c.key} IS NOT NULL AND b.${c.state} IN ('pending', 'processing')
            AND ${unfinishedFrom("b")}
          ORDER BY b.${c.sequence}
          LIMIT 1), false))))`,
  };

  /** @param and a further condition on the candidates */
  const claims = (and: string) => {
    const filtered = ({ ctes, condition }: CandidateFilter) => ({ ctes, condition: `${condition}${and}` });
    return {
      /** @param limit $2 as a literal: it is always the same */
      claimInOrder: perLimit((limit) => ({
        byIndex: true,
        name: "outbox.claim",
        text: claim(LOWEST_AGAIN, filtered(ALL), limit),
      })),
      /** From the cursor. */
      claimPastBlockedKeys: perLimit((limit) => ({
        byIndex: true,
        name: "outbox.claim past blocked keys",
        text: claim("$1::bigint", filtered(withoutBlockedKeysMet), limit),
      })),
      /** From the mark, over a front of rows behind blocked keys. */
      sweepPastBlockedKeys: {
        byIndex: true,
        name: "outbox.sweep past blocked keys",
        text: claim("$1::bigint", filtered(withoutBlockedKeys), "$2::int"),
      },
    };
  };

  const withoutLeftOut = `
    AND o.${c.id} <> ALL ($9::uuid[]) AND (o.${c.key} IS NULL OR o.${c.key} NOT IN (
      SELECT x.${c.key} FROM ${table} x WHERE x.${c.id} = ANY ($9::uuid[]) AND x.${c.key} IS NOT NULL))`;

  /**
   * Claims of a scope: $10 its destinations, $11 the keys it leaves out. Topics and keys are compared letter for letter, as the rows of a claim show them.
   *
   * Keys behind whose first row that counts nothing can be claimed are passed over: it is in backoff or slow, not in the scope, or lies in front of where
   * the claim begins. Else the rows behind it, of which there may be any number, would be looked at in place of free ones. Each row is asked for the first
   * one of its key that holds it back: in front of that there may be any number that hold nobody back, being scheduled ahead or in a claim of this process.
   */
  const inScope = (which: ClaimScope["which"]) => {
    const goesThere = (row: string, destinations = "$10"): string =>
      `${destinationIn(row)} ${which === "only" ? "= ANY" : "<> ALL"} (${destinations}::text[])`;
    const filter = (firstCandidate: string): CandidateFilter => ({
      ctes: "",
      condition: `
    AND ${goesThere("o")} AND (o.${c.key} IS NULL OR o.${c.key}::text NOT IN (SELECT unnest($11::text[])))${withoutLeftOut}
    AND (o.${c.key} IS NULL OR NOT coalesce((
      SELECT CASE WHEN b.${c.state} = 'processing' THEN ${slow}
        ELSE b.${c.sequence} < ${firstCandidate} OR NOT ${goesThere("b")} OR ${inBackoff} END
      FROM ${table} b
      WHERE b.${c.key} = o.${c.key} AND b.${c.key} IS NOT NULL AND b.${c.state} IN ('pending', 'processing')
        AND ${unfinishedFrom("b")} AND b.${c.sequence} < o.${c.sequence}
        AND CASE WHEN b.${c.state} = 'processing' THEN NOT coalesce(b.${c.claimToken} = ANY ($8::uuid[]), false) ELSE ${holdsBackAs("b")} END
      ORDER BY b.${c.sequence}
      LIMIT 1), false))`,
    });
    const sweepFrom = (firstCandidate: string): Statement => {
      const { ctes, condition } = filter(firstCandidate);
      const inPart = { ctes, condition: `\n    AND o.${c.sequence} < $12::bigint${condition}` };
      return {
        byIndex: true,
        onePlan: true,
        name: `outbox.sweep ${which} some destinations`,
        text: claim(firstCandidate, inPart, "$2::int"),
      };
    };
    const retries = (): Statement => {
      const { ctes, condition } = filter(LOWEST_AGAIN);
      const ofLate = `
    AND o.${c.sequence} < $12::bigint AND o.${c.attempt} > 0
    AND o.${c.scheduledAt} <= now() AND o.${c.scheduledAt} > now() - $13::bigint * interval '1 millisecond'`;
      return {
        byIndex: true,
        onePlan: true,
        name: `outbox.claim retries ${which} some destinations`,
        text: claim(LOWEST_AGAIN, { ctes, condition: `${ofLate}${condition}` }, "$2::int", c.scheduledAt),
      };
    };
    const claimUpTo = (limit: string): Statement => ({
      byIndex: true,
      onePlan: true,
      name: `outbox.claim ${which} some destinations`,
      text: claim("$1::bigint", filter("$1::bigint"), limit),
    });
    const claimOfAny = claimUpTo("$2::int");
    return {
      /** From the cursor. Of `only` some destinations few rows are claimed, and not always as many: no statement is made for each number. */
      claim: which === "only" ? () => claimOfAny : perLimit(claimUpTo),
      /** From the mark: $12 the first sequence that is not looked at. */
      sweep: sweepFrom(LOWEST_AGAIN),
      /** The same further on. */
      sweepOn: sweepFrom("$1::bigint"),
      /**
       * Rows in front of the cursor ($12) that have failed and have fallen due in the last so many ms ($13): a range of the index of rows in backoff, whatever else is
       * in front, in backoff or parked.
       */
      claimRetries: retries(),
      /** Due rows of the scope behind a sequence: $1 sequence, $2 limit, $3 destinations. */
      dueBehind: dueBehind(` ${which} some destinations`, `\n  AND ${goesThere("o", "$3")}`),
    };
  };

  /** @param and a further condition on the rows */
  const dueBehind = (ofWhat: string, and: string): Statement => ({
    byIndex: true,
    name: `outbox.due rows${ofWhat}`,
    text: `
SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence FROM ${table} o
WHERE o.${c.state} = 'pending' AND ${isDue} AND o.${c.sequence} > $1::bigint${and}
ORDER BY o.${c.sequence} LIMIT $2::int`,
  });

  const anyDue = (bound: string, from: string): string => `
(SELECT o.${c.sequence} FROM ${table} o WHERE o.${c.state} = 'pending' AND ${isDue} AND o.${c.sequence} >= ${from}
ORDER BY o.${c.sequence} LIMIT 1) IS NOT NULL OR NOT ${isSameHistory(bound)}`;

  /** $1 limit, $2 claim timeout (ms), $3 bound of the marks */
  const expired = `
  SELECT o.${c.id} AS id FROM ${table} o
  WHERE o.${c.state} = 'processing' AND ${unfinishedFrom("o")}
    AND (o.${c.leaseExpiresAt} < now() OR (o.${c.leaseExpiresAt} IS NULL
      AND coalesce(o.${c.claimedAt}, o.${c.updatedAt}, '-infinity') < now() - $2::bigint * interval '1 millisecond'))
  LIMIT $1::int`;
  const toPending = `UPDATE ${table}
SET ${c.state} = 'pending', ${c.updatedAt} = now(), ${unclaimed}
WHERE (${c.state} || '') = 'processing'`;

  /** @param and a further condition on the rows */
  const settle = (and: string): string => `
WITH closed AS (
UPDATE ${table} o
SET ${c.state} = coalesce(s.state, 'sent'), ${c.attempt} = ${attemptsPlus("s.attempts")}, ${c.updatedAt} = now(), ${unclaimed},
    ${c.scheduledAt} = CASE WHEN s.delay IS NULL THEN o.${c.scheduledAt} WHEN s.delay < 0 THEN ${PARKED_AT} ELSE now() + s.delay * interval '1 millisecond' END,
    ${c.lastError} = coalesce(s.reason, o.${c.lastError})
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::bigint[], $6::text[]) AS s(id, token, state, attempts, delay, reason)
WHERE o.${c.id} = s.id AND o.${c.claimToken} = s.token
  AND (o.${c.state} || '') = 'processing'${and}
RETURNING o.${c.id} AS id)
SELECT CASE WHEN count(*) < cardinality($1) THEN array_agg(id::text) END AS closed, count(*) AS count FROM closed`;

  /** The backlog of all. @param pending a query for the number of pending rows */
  const totals = (pending: string): string => `SELECT (${pending}) AS all_pending,
  (SELECT extract(epoch FROM now() - o.${c.createdAt}) * 1000 FROM ${table} o
   WHERE o.${c.state} = 'pending' AND ${isDue} AND isfinite(o.${c.createdAt}) AND ${unfinishedFrom("o")} ORDER BY o.${c.sequence} LIMIT 1) AS all_oldest_ms,
  (SELECT count(DISTINCT ${c.key}) FROM ${table}
   WHERE ${c.state} = 'pending' AND ${c.attempt} > 0 AND ${c.scheduledAt} > now() AND ${c.key} IS NOT NULL) AS blocked_keys,
  (SELECT count(*) FROM ${table} WHERE ${c.state} = 'pending' AND ${c.attempt} > 0 AND ${c.scheduledAt} = ${PARKED_AT}) AS parked`;

  return {
    ...claims(""),
    /** Without some rows, and the others of their keys, which would only be held back: $9 ids. */
    withoutSome: claims(withoutLeftOut),
    only: inScope("only"),
    except: inScope("except"),

    /** Due rows behind a sequence: $1 sequence, $2 limit. */
    dueBehind: dueBehind("", ""),

    /** What a claim changes in named rows, to be rolled back: $1 ids. */
    trial: {
      name: "outbox.trial claim",
      text: `
UPDATE ${table} SET ${c.state} = 'processing', ${c.claimToken} = gen_random_uuid(), ${c.claimedAt} = now(), ${c.updatedAt} = now(),
  ${c.leaseExpiresAt} = now()
WHERE ${c.id} = ANY (ARRAY(
  SELECT o.${c.id} FROM ${table} o WHERE o.${c.id} = ANY ($1::uuid[]) AND (o.${c.state} || '') = 'pending'
  FOR NO KEY UPDATE OF o SKIP LOCKED))`,
    },

    /**
     * Is anything due? Of the bound of the marks: looks from the newest mark on. Costs a fraction of planning a claim,
     * which an idle poller would do ten times a second. Ordered, so that the planner takes the index. The claim finds
     * out what the marks are worth when the table has gone back.
     */
    due: {
      name: "outbox.due",
      sql: (bound: string) => anyDue(bound, `least(${newestMark(bound)}, (${unparkedBelow(newestMark(bound))}))`),
    },

    /** The same from a cursor on, which stands in the bound for the newest mark: not of what is set back below it. */
    dueFrom: {
      name: "outbox.due from a cursor",
      sql: (bound: string) => anyDue(bound, newestMark(bound)),
    },

    /** Can a sweep meet more than the one that saw this? */
    mayHaveChanged: { name: "outbox.changed", sql: (seen: string) => mayHaveChanged(names, seen) },

    /**
     * The lowest sequence that is unfinished and not parked (the low-water mark). With a bound it looks no further back than that asks for.
     *
     * Parameters as in `markRead`.
     */
    mark: {
      byIndex: true,
      name: "outbox.mark",
      text: `
WITH${unparkedFrom("$1")}
${markRead(table, {
  position: c.sequence,
  lowest: `least(
  (SELECT min(o.${c.sequence}) FROM ${table} o WHERE o.${c.state} = 'pending' AND NOT ${isParkedAgain("o")} AND ${unfinishedFrom("o")}),
  (SELECT min(o.${c.sequence}) FROM ${table} o WHERE o.${c.state} = 'processing' AND ${unfinishedFrom("o")}))`,
})}`,
    },

    /** The sequence behind the last pending row: where a claim may begin when everything before is blocked. */
    end: {
      byIndex: true,
      name: "outbox.end",
      text: `SELECT coalesce(max(${c.sequence}), 0) + 1 AS "end" FROM ${table} WHERE ${c.state} = 'pending'`,
    },

    /** The sequence of a pending row behind others: $1 where they begin, $2 how many. */
    pendingBehind: {
      byIndex: true,
      name: "outbox.pending row behind others",
      text: `
SELECT o.${c.sequence}::bigint AS sequence FROM ${table} o
WHERE o.${c.state} = 'pending' AND o.${c.sequence} >= $1::bigint ORDER BY o.${c.sequence} OFFSET $2::int LIMIT 1`,
    },

    /**
     * A row that somebody else holds is left out, not waited for: it would keep all claims from being renewed. The rows
     * are found once, and then by their ids: as in `settle`.
     *
     * $1 tokens, $2 lease (ms), $3 claim timeout (ms), $4 bound of the marks
     */
    renew: {
      byIndex: true,
      // Far below the lease: a renewal that hangs must not keep the next one from being tried in time.
      timeoutMs: 4000,
      name: "outbox.renew",
      text: `
WITH${unparkedFrom("$4")}
UPDATE ${table} o
SET ${c.leaseExpiresAt} = least(now() + $2::bigint * interval '1 millisecond',
                                o.${c.claimedAt} + $3::bigint * interval '1 millisecond')
WHERE (o.${c.state} || '') = 'processing' AND o.${c.claimToken} = ANY ($1::uuid[]) AND o.${c.id} = ANY (ARRAY(
  SELECT h.${c.id} FROM ${table} h
  WHERE h.${c.state} = 'processing' AND ${unfinishedFrom("h")} AND h.${c.claimToken} = ANY ($1::uuid[])
  FOR NO KEY UPDATE OF h SKIP LOCKED))
RETURNING o.${c.id} AS id`,
    },

    /**
     * The state is compared as an expression, so that the rows are found by their ids and not by walking the index of everything in flight.
     *
     * $1 ids, $2 tokens, $3 new states, $4 attempts to add, $5 delays (ms; below 0 parks the row), $6 reasons (null leaves the last one). $3 to $6 are empty when every
     * row was sent. Answers with one row: null when every claim was closed, else the ids of those that were.
     */
    settle: { byIndex: true, lockTimeoutMs: SETTLE_LOCK_TIMEOUT_MS, name: "outbox.settle", text: settle("") },
    /** Those rows that nobody else holds. Parameters as in `settle`. */
    settleFree: {
      byIndex: true,
      lockTimeoutMs: SETTLE_LOCK_TIMEOUT_MS,
      name: "outbox.settle of rows that nobody holds",
      text: settle(`
  AND o.${c.id} = ANY (ARRAY(SELECT f.${c.id} FROM ${table} f WHERE f.${c.id} = ANY ($1::uuid[]) FOR NO KEY UPDATE OF f SKIP LOCKED))`),
    },
    /** Which rows are under their claims: $1 ids, $2 tokens. */
    underClaim: {
      byIndex: true,
      name: "outbox.rows under claims",
      text: `
SELECT o.${c.id} AS id FROM ${table} o JOIN unnest($1::uuid[], $2::uuid[]) AS s(id, token) ON o.${c.id} = s.id
WHERE o.${c.claimToken} = s.token AND (o.${c.state} || '') = 'processing'`,
    },

    /** The rows are found once, and then by their ids: as in `settle`. Parameters as in `expired`. */
    reclaim: {
      byIndex: true,
      timeoutMs: 4000,
      name: "outbox.reclaim",
      text: `
WITH${unparkedFrom("$3")}
${toPending} AND ${c.id} = ANY (ARRAY(${expired}
  FOR NO KEY UPDATE OF o SKIP LOCKED))
RETURNING ${c.id} AS id`,
    },
    expired: { byIndex: true, timeoutMs: 4000, name: "outbox.expired", text: `WITH${unparkedFrom("$3")}${expired}` },
    /** Of named rows whose claim has expired: $1 ids. */
    reclaimNamed: {
      byIndex: true,
      timeoutMs: 4000,
      name: "outbox.reclaim of named rows",
      text: `${toPending} AND ${c.id} = ANY ($1::uuid[]) AND coalesce(${c.leaseExpiresAt} < now(), true) RETURNING ${c.id} AS id`,
    },

    /** $1 bound of the marks */
    backlogTotals: {
      name: "outbox.backlog",
      text: `
WITH${settledFrom("$1")}
${totals(`SELECT count(*) FROM ${table} o WHERE o.${c.state} = 'pending' AND ${unfinishedFrom("o")}`)}`,
    },

    /**
     * A row for each destination with unfinished rows, one at least; each with the figures of all. Every pending row is read once, for its topic.
     *
     * $1 bound of the marks
     */
    backlog: {
      name: "outbox.backlog by destination",
      text: `
WITH${settledFrom("$1")},
unfinished AS MATERIALIZED (
  SELECT ${destinationIn("o")} AS destination, count(*) AS pending, 0 AS processing,
    extract(epoch FROM now() - min(o.${c.createdAt}) FILTER (WHERE ${isDue} AND isfinite(o.${c.createdAt}))) * 1000 AS oldest_ms
  FROM ${table} o WHERE o.${c.state} = 'pending' AND ${unfinishedFrom("o")} GROUP BY 1
  UNION ALL
  SELECT ${destinationIn("o")}, 0, count(*), NULL
  FROM ${table} o WHERE o.${c.state} = 'processing' AND ${unfinishedFrom("o")} GROUP BY 1
),
destinations AS (
  SELECT destination, sum(pending) AS pending, max(oldest_ms) AS oldest_ms, sum(processing) AS processing FROM unfinished GROUP BY destination
)
SELECT d.*, a.* FROM (${totals("SELECT sum(pending) FROM unfinished")}
) a LEFT JOIN destinations d ON true`,
    },
  } as const satisfies Record<string, OutboxStatement | Readonly<Record<string, OutboxStatement>>>;
}

type OutboxStatement = Statement | Question | ((limit: number) => Statement);

/** What rows a claim leaves out beforehand. */
interface CandidateFilter {
  readonly ctes: string;
  readonly condition: string;
}

const ALL: CandidateFilter = { ctes: "", condition: "" };

/** Far below the lease: one row that somebody else holds must not keep the others until theirs have run out. */
const SETTLE_LOCK_TIMEOUT_MS = 10_000;

/** Of PostgreSQL's `integer`. */
const MAX_INTEGER = 2 ** 31 - 1;

/** Parked rows that a mark passes: finding them takes half a millisecond. */
const PARKED_PASSED = 1000;

/** Where a claim from the mark begins: the mark is up to a second old. */
const LOWEST_AGAIN = "least($1::bigint, (SELECT sequence FROM again))";

/** Blocked keys that each claim reads: as many as cost nothing beside the claim itself. */
const BLOCKED_KEYS_READ = 100;

export type OutboxStatements = ReturnType<typeof outboxStatements>;
