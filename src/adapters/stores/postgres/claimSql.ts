import type { MessageId, Outcome } from "../../../model/rows.ts";
import type { ClaimScope } from "../../../ports/store.ts";
import type { ClaimStatements, ScopedClaims, UnscopedClaims } from "../sql/claims.ts";
import type { TableNames } from "../sql/names.ts";
import { attemptsOf, delayOf, STATE_AFTER } from "../sql/outcomes.ts";
import type { SkippedRow } from "../sql/rows.ts";
import { hasGivenUp } from "./errors.ts";
import { PARKED_AT, ROW_WAIT, setBack, skippedOf } from "./fragments.ts";
import { ENTRY_PARAMETERS, entryValues, noteSettled } from "./historySql.ts";
import {
  history,
  isSameHistory,
  literal,
  markBound,
  mayHaveChanged,
  mayLackTimes,
  newestMark,
  SEEN,
} from "./lowWater.ts";
import type { OutboxParts } from "./outboxParts.ts";
import { byIndex, perLimit, type Statement, statement, uuidArray } from "./statement.ts";
import { watchColumns } from "./watch.ts";

/** The statements that claim outbox rows, and close the claims with their outcomes. */
export function claimStatements(names: TableNames, parts: OutboxParts): ClaimStatements<Statement> {
  const { table, c, payload, destinationIn, scheduledAtGivenBack, unclaimed, claimedColumns } = parts;
  const { isDue, holdsBackAs, stops, againBelow, unparkedBelow, aboveLowWater } = parts;

  const columns = (write: (column: readonly [name: string, value: string]) => string): string =>
    claimedColumns.map(write).join(", ");
  const isClaimed = (token: string): string =>
    `(o.${c.state} || '') = 'processing' AND o.${c.claimToken} = ${token}::uuid`;
  const returned = Object.values(c).flatMap((column) => (column === null ? [] : [`o.${column}`]));

  /**
   * One claim; see {@link CLAIM_PARAMETERS}. `heldTokens` are those of claims that this process holds.
   *
   * - candidates: due rows in order; rows that another claim has locked are skipped.
   * - stops: per key the first unfinished row that is not a candidate. Later rows must wait. A row that its application
   *   scheduled ahead, and is not yet due, stops no other.
   * - free: candidates before the stop of their key, so a run of rows of one key is claimed together.
   * - taken: the first of them, up to the bytes of a claim. A trigger of the owner that returns NULL or OLD leaves one
   *   of them as it is, without an error: it is named among `skipped`.
   *
   * The first row of the answer holds the counts, the others the claimed rows. Candidates may be in another order than
   * by sequence: those left out are stops.
   *
   * Another replica that claims or settles at the same moment either has its rows locked (they are skipped, and stop
   * their key) or committed after this statement's snapshot (its rows fail the recheck on the lock, and stop their key
   * in the snapshot): in doubt a row waits.
   *
   * No row below the marks and the cursor ($1 of a claim past blocked keys) is missed as a stop: the newest mark and
   * the cursor bound only the candidates; the stable mark is below whatever may still be committed, and is lowered to
   * the first row that was set back below it. A replay moves rows in the order of their sequence, so of two replayed
   * rows of a key a claim never sees only the later one. The next sweep claims what appears below the cursor.
   */
  const claim = (
    firstCandidate: string,
    { ctes, condition, first = FIRST_CANDIDATE }: CandidateFilter,
    limit: string,
    order: string = c.sequence,
  ): string => `
WITH ${history("$7")},
again AS MATERIALIZED (${unparkedBelow("$1")}
),
low_water AS MATERIALIZED (
  SELECT least(b.sequence, (${againBelow("$1")})) AS sequence FROM (SELECT ${markBound("$7")} AS sequence) b
),${ctes}
candidates AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.key} AS key, ${payload.candidate}
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
      AND ${aboveLowWater("o")} AND o.${c.sequence} < k.last
      AND ${stops("o", "$8")}
      AND o.${c.sequence} NOT IN (SELECT sequence FROM candidates)
    ORDER BY o.${c.sequence}
    LIMIT 1
  ) s
),
free AS MATERIALIZED (
  SELECT c.id, c.sequence, c.key, ${payload.free(["sequence"])},
    now() AS claimed_at, now() + least($5::bigint, $6::bigint) * interval '1 millisecond' AS lease_expires_at
  FROM candidates c LEFT JOIN stops s ON s.key = c.key
  WHERE s.sequence IS NULL OR c.sequence < s.sequence
),
taken AS MATERIALIZED (
  SELECT f.id, f.key, f.claimed_at, f.lease_expires_at FROM ${payload.bounded("free", ["sequence"], "$3")} f WHERE f.bytes_before < $3::bigint
),
claimed AS (
  UPDATE ${table} o
  SET ${c.state} = 'processing', ${c.claimToken} = $4::uuid, ${c.claimedAt} = t.claimed_at, ${c.updatedAt} = t.claimed_at,
      ${c.leaseExpiresAt} = t.lease_expires_at
  FROM taken t
  WHERE o.${c.id} = t.id
  RETURNING ${returned.join(", ")}
)
SELECT (SELECT count(*) FROM candidates)::int AS candidates, (SELECT count(*) FROM free)::int AS free,
  ${skippedOf("taken", "key", `SELECT o.${c.id} FROM claimed o WHERE ${isClaimed("$4")}`)} AS skipped,
  (SELECT count(*) FROM candidates) >= $2::int AS more, ${first} AS first_candidate,
  NOT (SELECT is_same FROM history) AS has_gone_back, ${SEEN} AS seen, ${columns(([name]) => `NULL AS ${name}`)}
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, ${columns(([, value]) => value)} FROM claimed o
WHERE ${isClaimed("$4")}
ORDER BY sequence NULLS FIRST`;

  const inBackoff = `b.${c.state} = 'pending' AND b.${c.attempt} > 0 AND b.${c.scheduledAt} > now()`;
  const isSlow = `b.${c.claimedAt} < now() - interval '1 second'`;
  const slow = `b.${c.state} = 'processing' AND ${isSlow}`;

  /**
   * Without keys in backoff, and keys whose row has been in delivery for a second. A row that was replayed may be due in
   * front of one in backoff, which may be parked for days.
   */
  const withoutBlockedKeys: CandidateFilter = {
    ctes: `
blocked AS MATERIALIZED (
  SELECT b.${c.key} AS key FROM ${table} b WHERE ${inBackoff} AND b.${c.key} IS NOT NULL
    AND (SELECT o.${c.sequence} FROM ${table} o
      WHERE o.${c.key} = b.${c.key} AND o.${c.key} IS NOT NULL AND o.${c.state} IN ('pending', 'processing')
        AND ${aboveLowWater("o")} AND o.${c.sequence} < b.${c.sequence} AND o.${c.state} = 'pending' AND ${isDue}
      ORDER BY o.${c.sequence} LIMIT 1) IS NULL
  UNION ALL
  SELECT b.${c.key} FROM ${table} b WHERE ${slow} AND ${aboveLowWater("b")} AND b.${c.key} IS NOT NULL
),`,
    condition: `
    AND (o.${c.key} IS NULL OR o.${c.key} NOT IN (SELECT key FROM blocked))`,
  };

  /**
   * The same where most rows are free: it reads some blocked keys beforehand, and where there are more, checks the
   * first unfinished row of each candidate's key. Reading all of them made a claim of 100 twenty times as slow with
   * 100,000 keys in backoff. `in_flight` is that of {@link besideOthers}.
   */
  const withoutSomeBlockedKeys: CandidateFilter = {
    ctes: `
some_in_backoff AS MATERIALIZED (
  SELECT b.${c.key} AS key FROM ${table} b WHERE ${inBackoff} AND b.${c.key} IS NOT NULL LIMIT ${BLOCKED_KEYS_READ}
),`,
    condition: `
    AND (o.${c.key} IS NULL OR (
      o.${c.key} NOT IN (SELECT key FROM some_in_backoff UNION ALL SELECT key FROM in_flight WHERE is_slow)
      AND ((SELECT count(*) FROM some_in_backoff) < ${BLOCKED_KEYS_READ} AND (SELECT count(*) FROM in_flight) < ${IN_FLIGHT_READ}
        OR NOT coalesce((
          SELECT ${inBackoff} OR ${slow}
          FROM ${table} b
          WHERE b.${c.key} = o.${c.key} AND b.${c.key} IS NOT NULL AND b.${c.state} IN ('pending', 'processing')
            AND ${aboveLowWater("b")}
          ORDER BY b.${c.sequence}
          LIMIT 1), false))))`,
  };

  /**
   * A filter for claims from $1 on, also without keys in delivery elsewhere. This claim would only lock the rows behind
   * them, and the replica that may claim those would skip them: three replicas then drained at 0.7 of the rate of one.
   *
   * The next claim begins at the first row left out so, which may be free by then. Where one key has a long backlog,
   * each claim would read all of it: past {@link MOST_LEFT_OUT} the next one begins at the first candidate.
   */
  const besideOthers = ({ ctes, condition }: CandidateFilter): CandidateFilter => ({
    ctes: `
in_flight AS MATERIALIZED (
  SELECT b.${c.key} AS key, NOT coalesce(b.${c.claimToken} = ANY ($8::uuid[]), false) AS is_elsewhere, ${isSlow} AS is_slow
  FROM ${table} b
  WHERE b.${c.state} = 'processing' AND b.${c.key} IS NOT NULL AND ${aboveLowWater("b")} LIMIT ${IN_FLIGHT_READ}
),${ctes}`,
    condition: `${condition} AND (o.${c.key} IS NULL OR o.${c.key} NOT IN (SELECT key FROM in_flight WHERE is_elsewhere))`,
    first: `(
  SELECT CASE WHEN NOT EXISTS (SELECT FROM in_flight WHERE is_elsewhere) THEN ${FIRST_CANDIDATE}
    WHEN f.met < f.reached - ${MOST_LEFT_OUT} THEN f.reached ELSE f.met END
  FROM (SELECT coalesce(${FIRST_CANDIDATE}, (SELECT max(o.${c.sequence})::bigint + 1 FROM ${table} o WHERE o.${c.state} = 'pending')) AS reached,
    (SELECT o.${c.sequence}::bigint FROM ${table} o
      WHERE o.${c.state} = 'pending' AND ${isDue} AND o.${c.sequence} >= $1::bigint${condition} ORDER BY o.${c.sequence} LIMIT 1) AS met) f)`,
  });

  /** @param and a further condition on the candidates, with its `parameters` */
  const claims = (and: string, parameters: string): UnscopedClaims<Statement> => {
    const filtered = ({ ctes, condition }: CandidateFilter) => ({ ctes, condition: `${condition}${and}` });
    return {
      // The limit is a literal: there are few.
      claimInOrder: perLimit((limit) =>
        byIndex(`outbox.claim(${parameters})`)(claim(LOWEST_AGAIN, filtered(ALL), limit)),
      ),
      claimPastBlockedKeys: perLimit((limit) =>
        byIndex(`outbox.claim past blocked keys(${parameters})`)(
          claim("$1::bigint", besideOthers(filtered(withoutSomeBlockedKeys)), limit),
        ),
      ),
      /** From the mark, over a front of rows behind blocked keys. */
      sweepPastBlockedKeys: byIndex(`outbox.sweep past blocked keys(${parameters})`)(
        claim("$1::bigint", besideOthers(filtered(withoutBlockedKeys)), "$2::int"),
      ),
    };
  };

  const withoutQuarantined = `
    AND o.${c.id} <> ALL ($9::uuid[]) AND (o.${c.key} IS NULL OR o.${c.key} NOT IN (
      SELECT x.${c.key} FROM ${table} x WHERE x.${c.id} = ANY ($9::uuid[]) AND x.${c.key} IS NOT NULL))`;

  /**
   * Claims of a scope. Topics and keys are compared letter for letter, as the rows of a claim show them.
   *
   * A key is left out when its first row that counts cannot be claimed: it is in backoff or slow, not in the scope, or
   * before the start of the claim. Else any number of rows behind it would displace free ones. Each row checks the
   * first row of its key that holds it back: any number of earlier ones may not, being scheduled ahead or in a claim of
   * this process.
   */
  const inScope = (which: ClaimScope["which"]): ScopedClaims<Statement> => {
    const parameters = `${WITHOUT_SOME_PARAMETERS}, destinations, exceptKeys`;
    const goesThere = (row: string, destinations = "$10"): string =>
      `${destinationIn(row)} ${which === "only" ? "= ANY" : "<> ALL"} (${destinations}::text[])`;
    const filter = (firstCandidate: string): CandidateFilter => ({
      ctes: "",
      condition: `
    AND ${goesThere("o")} AND (o.${c.key} IS NULL OR o.${c.key}::text NOT IN (SELECT unnest($11::text[])))${withoutQuarantined}
    AND (o.${c.key} IS NULL OR NOT coalesce((
      SELECT CASE WHEN b.${c.state} = 'processing' THEN ${slow}
        ELSE b.${c.sequence} < ${firstCandidate} OR NOT ${goesThere("b")} OR ${inBackoff} END
      FROM ${table} b
      WHERE b.${c.key} = o.${c.key} AND b.${c.key} IS NOT NULL AND b.${c.state} IN ('pending', 'processing')
        AND ${aboveLowWater("b")} AND b.${c.sequence} < o.${c.sequence}
        AND CASE WHEN b.${c.state} = 'processing' THEN NOT coalesce(b.${c.claimToken} = ANY ($8::uuid[]), false) ELSE ${holdsBackAs("b")} END
      ORDER BY b.${c.sequence}
      LIMIT 1), false))`,
    });
    const sweepFrom = (firstCandidate: string): Statement => {
      const { ctes, condition } = filter(firstCandidate);
      const inPart = { ctes, condition: `\n    AND o.${c.sequence} < $12::bigint${condition}` };
      return byIndex(`outbox.sweep ${which} some destinations(${parameters}, to)`, { onePlan: true })(
        claim(firstCandidate, inPart, "$2::int"),
      );
    };
    const retries = (): Statement => {
      const { ctes, condition } = filter(LOWEST_AGAIN);
      const ofLate = `
    AND o.${c.sequence} < $12::bigint AND o.${c.attempt} > 0
    AND o.${c.scheduledAt} <= now() AND o.${c.scheduledAt} > now() - $13::bigint * interval '1 millisecond'`;
      return byIndex(`outbox.claim retries ${which} some destinations(${parameters}, to, withinMs)`, {
        onePlan: true,
      })(claim(LOWEST_AGAIN, { ctes, condition: `${ofLate}${condition}` }, "$2::int", c.scheduledAt));
    };
    const claimUpTo = (limit: string): Statement =>
      byIndex(`outbox.claim ${which} some destinations(${parameters})`, { onePlan: true })(
        claim("$1::bigint", filter("$1::bigint"), limit),
      );
    const claimOfAny = claimUpTo("$2::int");
    return {
      /** From the cursor. Claims `only` to some destinations vary in size: no statement is made for each. */
      claim: which === "only" ? () => claimOfAny : perLimit(claimUpTo),
      sweep: sweepFrom(LOWEST_AGAIN),
      sweepOn: sweepFrom("$1::bigint"),
      claimRetries: retries(),
      dueBehind: dueBehind(` ${which} some destinations`, `\n  AND ${goesThere("o", "$3")}`, ", destinations"),
    };
  };

  /** @param and a further condition on the rows, with `more` parameters, each after a comma */
  const dueBehind = (ofWhat: string, and: string, more: string): Statement =>
    byIndex(`outbox.due rows${ofWhat}(from, limit${more})`)`
SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence FROM ${table} o
WHERE o.${c.state} = 'pending' AND ${isDue} AND o.${c.sequence} > $1::bigint${and}
ORDER BY o.${c.sequence} LIMIT $2::int`;

  const anyDue = (lowWater: string, from: string, condition = isDue): string => `
(SELECT o.${c.sequence} FROM ${table} o WHERE o.${c.state} = 'pending' AND ${condition} AND o.${c.sequence} >= ${from}
ORDER BY o.${c.sequence} LIMIT 1) IS NOT NULL OR NOT ${isSameHistory(lowWater)}`;
  const fromNewest = (lowWater: string): string =>
    `least(${newestMark(lowWater)}, (${unparkedBelow(newestMark(lowWater))}))`;
  const isOverdue = (ms: string): string =>
    `greatest(o.${c.scheduledAt}, o.${c.createdAt}) <= now() - ${ms}::bigint * interval '1 millisecond'`;

  /** No addition may leave the range of the column: the row could never be settled. */
  const attemptsPlus = (added: string): string =>
    `CASE WHEN ${added} > 0 THEN least(greatest(coalesce(o.${c.attempt}, 0), 0)::bigint + ${added}, ${MAX_INTEGER}) ELSE o.${c.attempt} END`;

  /** @param isOfFree whether of the rows that no other transaction holds @param noted a further part of the `WITH` */
  const settleText = (isOfFree: boolean, noted = ""): string => {
    const free = `
free AS MATERIALIZED (
  SELECT f.${c.id} AS id FROM ${table} f WHERE f.${c.id} = ANY ($1::uuid[]) FOR NO KEY UPDATE OF f SKIP LOCKED
),`;
    const isFree = `\n  AND o.${c.id} = ANY (ARRAY(SELECT id FROM free))`;
    return `
WITH outcomes AS MATERIALIZED (
  SELECT u.*, now() AS now, now() + u.delay * interval '1 millisecond' AS again_at
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::bigint[], $6::text[]) AS u(id, token, state, attempts, delay, reason)
),${isOfFree ? free : ""}
closed AS (
UPDATE ${table} o
SET ${c.state} = coalesce(s.state, 'sent'), ${c.attempt} = ${attemptsPlus("s.attempts")}, ${c.updatedAt} = s.now, ${unclaimed},
    ${c.scheduledAt} = CASE WHEN s.delay < 0 THEN ${PARKED_AT} WHEN s.delay IS NOT NULL THEN s.again_at
      WHEN s.state = 'pending' THEN ${scheduledAtGivenBack("o", "s.now")} ELSE o.${c.scheduledAt} END,
    ${c.lastError} = coalesce(s.reason, o.${c.lastError})
FROM outcomes s
WHERE o.${c.id} = s.id AND o.${c.claimToken} = s.token
  AND (o.${c.state} || '') = 'processing'${isOfFree ? isFree : ""}
RETURNING o.${c.id} AS id, o.${c.claimToken} IS NULL AND o.${c.state} IS DISTINCT FROM 'processing' AS is_closed)${noted}
SELECT CASE WHEN count(*) < cardinality($1) THEN array_agg(id::text) END AS closed, count(*) AS count${
      isOfFree ? ", (SELECT array_agg(id::text) FROM free) AS free" : ""
    }
FROM closed WHERE is_closed`;
  };
  const entries = noteSettled(names, "SELECT id FROM closed WHERE is_closed", SETTLE_PARAMETERS.split(", ").length + 1);
  // Both under one name: it stands in the reason of a row whose outcome is refused.
  const settle = (isOfFree: boolean) => {
    const waits = isOfFree ? ROW_WAIT : SETTLE_WAITS;
    return {
      plain: byIndex(`outbox.settle(${SETTLE_PARAMETERS})`, waits)(settleText(isOfFree)),
      noting: byIndex(
        `outbox.settle with history(${SETTLE_PARAMETERS}, ${ENTRY_PARAMETERS})`,
        waits,
      )(settleText(isOfFree, `,\nnoted AS (${entries})`)),
    };
  };

  return {
    ...claims("", CLAIM_PARAMETERS),
    withoutSome: claims(withoutQuarantined, WITHOUT_SOME_PARAMETERS),
    only: inScope("only"),
    except: inScope("except"),
    dueBehind: dueBehind("", "", ""),

    /** It writes payload and headers as text, as a claim does: a `jsonb` of numbers may have more than 1 GB as text. */
    trial: statement("outbox.trial claim(ids)")`
UPDATE ${table} SET ${c.state} = 'processing', ${c.claimToken} = ${c.id}, ${c.claimedAt} = now(), ${c.updatedAt} = now(),
  ${c.leaseExpiresAt} = now()
WHERE ${c.id} = ANY (ARRAY(
  SELECT o.${c.id} FROM ${table} o WHERE o.${c.id} = ANY ($1::uuid[]) AND (o.${c.state} || '') = 'pending'
  FOR NO KEY UPDATE OF o SKIP LOCKED))
RETURNING octet_length(${c.payload}::text) AS payload_bytes, octet_length(${c.headers}::text) AS headers_bytes`,

    setBack: statement("outbox.set back the last sent row")(
      setBack(table, c, `f.${c.state} = 'sent'`, `f.${c.updatedAt} DESC, f.${c.sequence} DESC`),
    ),

    /**
     * From the newest mark, at a fraction of planning a claim, ten times a second while idle. Ordered, so that the
     * planner takes the index. A claim detects when the table has gone back.
     */
    due: statement("outbox.due(lowWater)")`SELECT (${anyDue("$1", fromNewest("$1"))}) AS answer`,

    glance: statement("outbox.glance(overdueMs, lowWater)", { takesTurns: true })`
SELECT (${anyDue("$2", fromNewest("$2"), isOverdue("$1"))}) AS is_overdue, ${watchColumns(`'${literal(table)}'`)}`,

    /** From a cursor on, which replaces the newest mark in `lowWater`: not of what is set back below it. */
    dueFrom: statement("outbox.due from a cursor(lowWater)")`SELECT (${anyDue("$1", newestMark("$1"))}) AS answer`,

    mayHaveChanged: statement("outbox.changed(seen)")`SELECT (${mayHaveChanged(names, "$1")}) AS answer`,
    mayLackTimes: statement("outbox.may lack times")`SELECT (${mayLackTimes(names)}) AS answer`,

    end: byIndex("outbox.end")`
SELECT coalesce(max(${c.sequence}), 0) + 1 AS "end" FROM ${table} WHERE ${c.state} = 'pending'`,

    pendingBehind: byIndex("outbox.pending row behind others(from, rows)")`
SELECT o.${c.sequence}::bigint AS sequence FROM ${table} o
WHERE o.${c.state} = 'pending' AND o.${c.sequence} >= $1::bigint ORDER BY o.${c.sequence} OFFSET $2::int LIMIT 1`,

    behindUnfinished: byIndex("outbox.rows behind unfinished ones(ids, tokens, finished)")`
SELECT o.${c.id} AS id FROM ${table} o JOIN unnest($1::uuid[], $2::uuid[]) AS s(id, token) ON o.${c.id} = s.id
WHERE o.${c.claimToken} = s.token AND (o.${c.state} || '') = 'processing' AND o.${c.key} IS NOT NULL
  AND (SELECT e.${c.sequence} FROM ${table} e
    WHERE e.${c.key} = o.${c.key} AND e.${c.key} IS NOT NULL AND e.${c.state} IN ('pending', 'processing')
      AND e.${c.sequence} < o.${c.sequence} AND (e.${c.state} = 'processing' OR ${holdsBackAs("e")})
      AND e.${c.id} <> ALL ($3::uuid[])
    ORDER BY e.${c.sequence} LIMIT 1) IS NOT NULL`,

    /**
     * The state is compared as an expression, so that rows are found by id and not by the index of everything in
     * flight.
     *
     * A delay below 0 parks the row, a null reason keeps the last one; when every row was sent the lists from the
     * states on are empty. Returns one row: null when every claim was closed, else the ids that were.
     */
    settle: settle(false),

    whenLocked: {
      free: settle(true),
      underClaim: byIndex("outbox.rows under claims(ids, tokens)", ROW_WAIT)`
SELECT o.${c.id} AS id FROM ${table} o JOIN unnest($1::uuid[], $2::uuid[]) AS s(id, token) ON o.${c.id} = s.id
WHERE (o.${c.claimToken} = s.token OR o.${c.claimToken} IS NULL) AND (o.${c.state} || '') = 'processing'`,
    },

    dialect: {
      scanOf([result = []]) {
        const [counts, ...rows] = result;
        const candidates = Number(counts?.candidates ?? 0);
        const first = counts?.first_candidate;
        return {
          rows,
          more: counts?.more === true,
          heldBack: candidates - Number(counts?.free ?? 0),
          rowsRead: candidates,
          first: typeof first === "string" ? first : undefined,
          seen: typeof counts?.seen === "string" ? counts.seen : undefined,
          hasGoneBack: counts?.has_gone_back === true,
          skipped: (counts?.skipped ?? []) as SkippedRow[],
        };
      },
      entryValues,
      settleValues: (settlements) => ({
        ids: uuidArray(settlements.map(({ id }) => id)),
        tokens: uuidArray(settlements.map(({ claimToken }) => claimToken)),
        ...(settlements.every(({ kind }) => kind === "sent") ? ALL_SENT : outcomesOf(settlements)),
      }),
      // No list of ids means that all were closed, or none.
      closedOf([row], settlements) {
        if (row?.closed) return row.closed as MessageId[];
        return row?.count === "0" ? [] : settlements.map(({ id }) => id);
      },
      freeOf: ([row]) => (row?.free ?? []) as MessageId[],
      hasGivenUp,
    },
  };
}

/** Parameters of every claim, in the order of their numbers. */
const CLAIM_PARAMETERS = "from, limit, maxBytes, token, leaseMs, claimTimeoutMs, lowWater, heldTokens";
const WITHOUT_SOME_PARAMETERS = `${CLAIM_PARAMETERS}, quarantined`;

const SETTLE_PARAMETERS = "ids, tokens, states, attempts, delays, reasons";

interface CandidateFilter {
  readonly ctes: string;
  readonly condition: string;
  /** Where the next claim begins; by default at the first candidate. */
  readonly first?: string;
}

const FIRST_CANDIDATE = "(SELECT min(sequence) FROM candidates)";

const ALL: CandidateFilter = { ctes: "", condition: "" };

/** Where a claim from the mark begins: the mark is up to a second old. */
const LOWEST_AGAIN = "least($1::bigint, (SELECT sequence FROM again))";

/** Keys in backoff that each claim reads, at a negligible cost. */
const BLOCKED_KEYS_READ = 100;

/** More than three replicas hold at a time, read in a tenth of the time of a claim. */
const IN_FLIGHT_READ = 3000;
/** In sequence numbers: as many rows are read in a quarter of the time of a claim. */
const MOST_LEFT_OUT = 5000;

/** It may wait for row after row. Where it runs as long without a wait, the one of free rows has the time it needs. */
const SETTLE_WAITS = { ...ROW_WAIT, serverTimeoutMs: 5000 };

const MAX_INTEGER = 2 ** 31 - 1;

const ALL_SENT = { states: [], attempts: [], delays: [], reasons: [] };

function outcomesOf(settlements: readonly Outcome[]) {
  return {
    states: settlements.map((settlement) => STATE_AFTER[settlement.kind]),
    attempts: settlements.map(attemptsOf),
    delays: settlements.map(delayOf),
    reasons: settlements.map((settlement) => ("reason" in settlement ? settlement.reason : null)),
  };
}
