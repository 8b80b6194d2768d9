import type { MessageId, Outcome } from "../../../model/rows.ts";
import type { TableNames } from "../sql/names.ts";
import type { ClaimScan, ClaimStatement, ClaimStatements } from "../sql/outboxClaims.ts";
import { textOf } from "../sql/rows.ts";
import { storedOutcome } from "../sql/settlements.ts";
import { hasGivenUp } from "./errors.ts";
import { allWritten, PARKED_AT, setBack } from "./fragments.ts";
import { ENTRY_PARAMETERS, entryValues, noteSettled } from "./historySql.ts";
import { listStatements } from "./listSql.ts";
import { literal, markBound, newestMark } from "./lowWater.ts";
import type { OutboxParts } from "./outboxParts.ts";
import { arraysOf, byIndex, type Statement, statement, uuidArray } from "./statement.ts";
import { isWatched } from "./wake.ts";

export function claimStatements(names: TableNames, parts: OutboxParts): ClaimStatements<Statement> {
  const { table, c, payload, bytes, scheduledAtGivenBack, unclaimed, anyClaimedColumns, besideClaimed } = parts;
  const { isDue, holdsBackAs, stopsOf, againBelow, unparkedBelow, aboveLowWater } = parts;
  const { hasLists, isDelivery, isNoDelivery, placeOf, laneOf, mayGoTo } = parts;
  const ms = c.messageSequence;

  const columns = (write: (column: readonly [name: string, value: string]) => string): string =>
    anyClaimedColumns.map(write).join(", ");
  const isClaimed = (token: string): string => `(o.${c.state} || '') = 'processing' AND o.${c.claimToken} = ${token}`;
  const returned = Object.values(c).flatMap((column) => (column === null ? [] : [`o.${column}`]));
  const hasQueues = c.destination !== null && c.routes !== null;
  const skipLocked = "FOR NO KEY UPDATE OF o SKIP LOCKED";

  /** @param isOneQueue whether no destination counts @param label of a row without one @param isWanted whether to claim it */
  const candidate = (isOneQueue: boolean, label?: string, isWanted = "true"): string =>
    `o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, ${placeOf("o")} AS place, o.${c.key} AS key, ${laneOf("o")} AS lane, ${
      isOneQueue ? "''" : (label ?? `o.${c.destination}`)
    } AS destination, ${label !== undefined} AS is_new, ${isWanted} AS is_wanted, ${bytes} AS bytes`;
  /** Conditions on the destination are ranges: with an equation the planner would read all queues by their sequence. */
  const inQueue = (destination: string | undefined, from: string): string =>
    destination === undefined
      ? `o.${c.sequence} >= ${from}`
      : `(o.${c.destination}, o.${c.sequence}) >= (${destination}, ${from}) AND o.${c.destination} <= ${destination}`;
  const inOrderOf = (destination: string | undefined, column = c.sequence): string =>
    `ORDER BY ${destination === undefined ? "" : `o.${c.destination}, `}o.${column}`;

  /**
   * One claim; see {@link CLAIM_PARAMETERS}. `heldTokens` are those of claims that this process holds.
   *
   * - candidates: due rows in order; rows that another claim has locked are skipped.
   * - stops: per lane and destination the first unfinished row that is not a candidate of it. Later rows must wait. A
   *   row that its application scheduled ahead, and is not yet due, stops no other. A row that this process holds stops
   *   only rows that go elsewhere: they would wait in this process, for a destination that is not theirs. Rows of
   *   another lane stop those for the same destination; a row without one may go there.
   * - waiting: the first candidate of each lane behind its stop. Later rows of the lane wait too, wherever they go.
   * - free: candidates before that one, so a run of rows of one key is claimed together.
   * - taken: the first of them, up to the bytes of a claim. The claim fails if a trigger drops one of them.
   *
   * The first row of the answer holds the counts, the others the claimed rows. Candidates may be in another order than
   * by sequence: those left out are stops.
   *
   * Another replica that claims or settles at the same moment either has its rows locked (they are skipped, and stop
   * their key) or committed after this statement's snapshot (its rows fail the recheck on the lock, and stop their key
   * in the snapshot): in doubt a row waits.
   *
   * No row below the marks and the cursor ($1) is missed as a stop: the newest mark and the cursor bound only the
   * candidates; the stable mark is below whatever may still be committed, and is lowered to the first row that was set
   * back below it. A replay moves rows in the order of their sequence, so of two replayed rows of a key a claim never
   * sees only the later one.
   *
   * @param of part of the name of the statements
   * @param candidates the part of the `WITH` that ends with them
   * @param answer further columns of the first row: `labelled`, `has_unlabelled`, `first`, `end`, `is_read`
   * @param labelling a further part of the `WITH`
   */
  const claim = (
    [of, parameters]: readonly [of: string, parameters: string],
    isOneQueue: boolean,
    candidates: string,
    answer: string,
    labelling = "",
  ): ClaimStatement<Statement> => {
    const ofLabels = (count: string): string => (labelling === "" ? "" : ` + (SELECT count(*) FROM ${count})`);
    const chosen = `(SELECT count(*) FROM taken)${ofLabels("unlabelled u WHERE u.id NOT IN (SELECT id FROM taken)")}`;
    const written = `(SELECT count(*) FROM claimed o WHERE ${isClaimed("$4::uuid")})${ofLabels("left_behind WHERE is_labelled")}`;
    const chosenFrom = (from: string): string => `
WITH again AS MATERIALIZED (${unparkedBelow("$1")}
),
low_water AS MATERIALIZED (
  SELECT least(b.sequence, (${againBelow("$1")})) AS sequence FROM (SELECT ${markBound("$7")} AS sequence) b
),${from}`;
    const choice = `${chosenFrom(candidates)},
stops AS MATERIALIZED (
  SELECT k.key, k.lane, k.destination, min(s.place) AS place
  FROM (SELECT key, lane, destination, max(place) AS last FROM candidates WHERE key IS NOT NULL GROUP BY key, lane, destination) k
  CROSS JOIN LATERAL (${stopsOf("$8", isOneQueue, true, "$10::text", (column) => `o.${column} < k.last`, `o.${c.sequence} NOT IN (SELECT sequence FROM candidates)`)}) s
  GROUP BY k.key, k.lane, k.destination
),
waiting AS MATERIALIZED (
  SELECT c.key, c.lane, min(c.place) AS place
  FROM candidates c JOIN stops s ON s.key = c.key AND s.lane = c.lane AND s.destination = c.destination
  WHERE c.place >= s.place
  GROUP BY c.key, c.lane
),
free AS MATERIALIZED (
  SELECT c.id, c.sequence, c.destination, c.is_new, ${payload.free(["place", "sequence"])},
    now() AS claimed_at, now() + least($5::bigint, $6::bigint) * interval '1 millisecond' AS lease_expires_at
  FROM candidates c LEFT JOIN waiting w ON w.key = c.key AND w.lane = c.lane
  WHERE w.place IS NULL OR c.place < w.place
),
taken AS MATERIALIZED (
  SELECT f.id, f.destination, f.is_new, f.claimed_at, f.lease_expires_at FROM free f WHERE f.bytes_before < $3::bigint AND ($10::text IS NULL OR true)
)`;
    const ofAll = ["$3::bigint", "$4::uuid", "$5::bigint", "$6::bigint", "$8::uuid[]", "$10::text"];
    const others = [...ofAll, ...(labelling === "" ? [] : ["$16::bigint"])];
    return {
      // Without their sizes, which may be what cannot be read.
      chosen: byIndex(
        `outbox.rows chosen by a claim${of}(${parameters})`,
      )`${chosenFrom(candidates.replaceAll(`${bytes} AS bytes`, "0 AS bytes"))}
SELECT id FROM candidates${labelling === "" ? "" : " UNION SELECT id FROM unlabelled"} WHERE num_nulls(${others.join(", ")}) >= 0`,
      claim: byIndex(`outbox.claim${of}(${parameters})`, { onePlan: true })`${choice},
claimed AS (
  UPDATE ${table} o
  SET ${c.state} = 'processing', ${c.claimToken} = $4::uuid, ${c.claimedAt} = t.claimed_at, ${c.updatedAt} = t.claimed_at,
      ${c.leaseExpiresAt} = t.lease_expires_at${labelling === "" ? "" : `, ${labelBy("t")}`}
  FROM taken t
  WHERE o.${c.id} = t.id
  RETURNING ${returned.join(", ")}
)${labelling}
SELECT (SELECT json_agg(json_build_object('queue', q.queue, 'candidates', q.candidates, 'heldBack', q.held_back, 'gap', q.first - (
    SELECT o.${c.sequence}::bigint FROM ${table} o
    WHERE o.${c.state} = 'pending' AND ${inQueue(isOneQueue ? undefined : "q.queue", "$1::bigint")} ${inOrderOf(isOneQueue ? undefined : "q.queue")} LIMIT 1)))
  FROM (SELECT coalesce(c.destination, '') AS queue, count(*) AS candidates, count(*) - count(f.id) AS held_back,
    min(c.sequence) FILTER (WHERE NOT c.is_new) AS first
    FROM candidates c LEFT JOIN free f ON f.id = c.id GROUP BY 1) q) AS queues, ${answer},
  ${allWritten(chosen, written)} AS all_written, ${columns(([name]) => `NULL AS ${name}`)}
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, ${columns(([, value]) => value)} FROM claimed o${besideClaimed}
ORDER BY place NULLS FIRST, sequence`,
    };
  };

  /** @param row with the `destination` of a row that `is_new` */
  const labelBy = (row: string, routes = "$10"): string =>
    `${c.destination} = CASE WHEN ${row}.is_new THEN ${row}.destination ELSE o.${c.destination} END,
      ${c.routes} = CASE WHEN ${row}.is_new THEN ${routes} ELSE o.${c.routes} END`;
  const isAccepted = `o.${c.id} <> ALL ($9::uuid[])`;
  const notUnlabelled = `0 AS labelled, false AS has_unlabelled`;

  const inOrderByQueue = claim(
    ["", IN_ORDER_PARAMETERS],
    false,
    `
labels AS MATERIALIZED (SELECT * FROM unnest($13::uuid[], $14::text[], $15::boolean[]) AS l(id, destination, is_wanted)),
unlabelled AS MATERIALIZED (
  SELECT ${candidate(false, "l.destination", `l.is_wanted AND ${isDue}`)}
  FROM labels l JOIN ${table} o ON o.${c.id} = l.id
  WHERE (o.${c.state} || '') = 'pending' AND o.${c.destination} IS NULL
  ${skipLocked}
),
labelled AS MATERIALIZED (
  SELECT q.* FROM unnest($11::text[], $12::int[]) AS a(destination, room)
  CROSS JOIN LATERAL (
    SELECT ${candidate(false)}
    FROM ${table} o
    WHERE o.${c.state} = 'pending' AND ${isDue} AND ${inQueue("a.destination", LOWEST_AGAIN)} AND ${isAccepted}
    ${inOrderOf("a.destination")}
    LIMIT a.room
    ${skipLocked}
  ) q
  LIMIT $2::int
),
candidates AS MATERIALIZED (
  SELECT * FROM labelled UNION ALL SELECT * FROM unlabelled WHERE is_wanted
)`,
    `(SELECT count(*) FROM unlabelled)::int AS labelled,
  (SELECT o.${c.sequence} FROM ${table} o WHERE o.${c.state} = 'pending' AND o.${c.destination} IS NULL AND o.${c.sequence} >= coalesce($16::bigint, ${LOWEST_AGAIN}) AND ${isAccepted}
   ${inOrderOf("NULL")} LIMIT 1) IS NOT NULL AS has_unlabelled, NULL AS first, NULL AS "end", NULL AS is_read`,
    `,
left_behind AS (
  UPDATE ${table} o SET ${labelBy("u")}
  FROM (SELECT id, destination, is_new FROM unlabelled WHERE id NOT IN (SELECT id FROM taken) OFFSET 0) u
  WHERE o.${c.id} = u.id
  RETURNING o.${c.destination} IS NOT NULL AS is_labelled
)`,
  );

  const inOrderOfAll = claim(
    [" of all", CLAIM_PARAMETERS],
    true,
    `
candidates AS MATERIALIZED (
  SELECT ${candidate(true)}
  FROM ${table} o
  WHERE o.${c.state} = 'pending' AND ${isDue} AND o.${c.sequence} >= ${LOWEST_AGAIN} AND ${isAccepted}
  ORDER BY o.${c.sequence}
  LIMIT $2::int
  ${skipLocked}
)`,
    `${notUnlabelled}, NULL AS first, NULL AS "end", NULL AS is_read`,
  );

  /**
   * Due retries of a queue, and a stretch from $1 on without the rows behind a blocked key, which would displace free
   * ones. Each row checks the first row of its key that holds it back; that row may be claimed with it if it has
   * the same destination and is a due retry or in the stretch.
   *
   * @param destination the parameter; undefined if no destination counts
   */
  const pastBlocked = (destination: string | undefined): ClaimStatement<Statement> => {
    const isHere = (row: string): string =>
      destination === undefined ? "true" : `${row}.${c.destination} IS NOT DISTINCT FROM ${destination}`;
    const isOwn = (row: string): string =>
      `${row}.${c.state} = 'processing' AND coalesce(${row}.${c.claimToken} = ANY ($8::uuid[]), false) AND ${isHere(row)}`;
    // A delivery that was made late has an earlier place than others that are read before it, and would displace it.
    const isLate = hasLists ? ` OR b.${c.sequence} > o.${c.sequence}` : "";
    const isBlocked = `b.${c.state} = 'processing' OR NOT ${isHere("b")}
        OR CASE WHEN b.${c.attempt} > 0 THEN b.${c.scheduledAt} > now() ELSE b.${c.sequence} < $1::bigint${isLate} END`;
    const ofKey = `b.${c.key} = o.${c.key} AND b.${c.key} IS NOT NULL AND b.${c.state} IN ('pending', 'processing')`;
    const isNotHeld = `CASE WHEN b.${c.state} = 'processing' THEN NOT (${isOwn("b")}) ELSE ${holdsBackAs("b")} END`;
    const ofOthers = `${ofKey} AND ${isNoDelivery("b")} AND ${aboveLowWater("b")} AND b.${c.sequence} < ${placeOf("o")}`;
    const firstOf = (what: string, which: string, order: string | null): string => `(
      SELECT ${what} FROM ${table} b WHERE ${which} ORDER BY b.${order} LIMIT 1)`;
    const notBehindOthers = `NOT coalesce(${firstOf(isBlocked, `${ofOthers} AND ${isNotHeld}`, c.sequence)}, false)`;
    const sameLane = `${ofKey} AND ${isDelivery("b")} AND b.${c.destination} = o.${c.destination} AND b.${ms} < ${placeOf("o")}`;
    const holdsBack = `(b.${c.state} = 'processing' OR ${holdsBackAs("b")})`;
    const isFreeOfLists = `CASE WHEN ${isDelivery("o")}
      THEN NOT coalesce(${firstOf(isBlocked, `${sameLane} AND ${isNotHeld}`, ms)}, false)
        AND ${firstOf("true", `${ofOthers} AND ${mayGoTo("b", `o.${c.destination}`, "$10::text")} AND ${holdsBack}`, c.sequence)} IS NULL
      ELSE ${notBehindOthers} AND ${firstOf("true", `${sameLane} AND ${holdsBack}`, ms)} IS NULL END`;
    const isFree = `(o.${c.key} IS NULL OR ${hasLists ? isFreeOfLists : notBehindOthers})`;
    const pending = `o.${c.state} = 'pending' AND ${isAccepted}`;
    const dueRetries =
      destination === undefined
        ? `o.${c.scheduledAt} <= now()`
        : `(o.${c.destination}, o.${c.scheduledAt}) <= (${destination}, now()) AND o.${c.destination} >= ${destination}`;
    const isOneQueue = destination === undefined;
    return claim(
      isOneQueue
        ? [" of all past blocked keys", CLAIM_PARAMETERS]
        : [" past blocked keys", `${CLAIM_PARAMETERS}, destination`],
      isOneQueue,
      `
stretch AS MATERIALIZED (
  SELECT o.${c.sequence}::bigint AS "end" FROM ${table} o
  WHERE o.${c.state} = 'pending' AND ${inQueue(destination, "$1::bigint")} ${inOrderOf(destination)} OFFSET ${STRETCH} LIMIT 1
),
retries AS MATERIALIZED (
  SELECT ${candidate(isOneQueue)}
  FROM ${table} o
  WHERE ${pending} AND o.${c.attempt} > 0 AND ${dueRetries} AND ${isFree}
  ${inOrderOf(destination, c.scheduledAt)}
  LIMIT $2::int
  ${skipLocked}
),
ahead AS MATERIALIZED (
  SELECT ${candidate(isOneQueue)}
  FROM ${table} o
  WHERE ${pending} AND coalesce(o.${c.attempt}, 0) <= 0 AND ${isDue} AND ${inQueue(destination, "$1::bigint")}
    AND o.${c.sequence} < coalesce((SELECT "end" FROM stretch), ${LAST_POSITION}) AND ${isFree}
  ${inOrderOf(destination)}
  LIMIT $2::int
  ${skipLocked}
),
candidates AS MATERIALIZED (SELECT * FROM retries UNION ALL SELECT * FROM ahead LIMIT $2::int)`,
      `${notUnlabelled}, (SELECT min(sequence) FROM ahead)::text AS first,
  coalesce((SELECT "end" FROM stretch), (
    SELECT o.${c.sequence}::bigint + 1 FROM ${table} o WHERE o.${c.state} = 'pending'${destination === undefined ? "" : ` AND o.${c.destination} <= ${destination} AND o.${c.destination} >= ${destination}`}
    ORDER BY ${destination === undefined ? "" : `o.${c.destination} DESC, `}o.${c.sequence} DESC LIMIT 1), $1::bigint)::text AS "end",
  (SELECT "end" FROM stretch) IS NULL AS is_read`,
    );
  };

  const anyDue = (from: string, condition = isDue): string => `
(SELECT o.${c.sequence} FROM ${table} o WHERE o.${c.state} = 'pending' AND ${condition} AND o.${c.sequence} >= ${from}
ORDER BY o.${c.sequence} LIMIT 1) IS NOT NULL`;
  const fromNewest = (lowWater: string): string =>
    `least(${newestMark(lowWater)}, (${unparkedBelow(newestMark(lowWater))}))`;
  const isOverdue = (ms: string): string =>
    `greatest(o.${c.scheduledAt}, o.${c.createdAt}) <= now() - ${ms}::bigint * interval '1 millisecond'`;

  /** No addition may leave the range of the column: the row could never be settled. */
  const attemptsPlus = (added: string): string =>
    `CASE WHEN ${added} > 0 THEN least(greatest(coalesce(o.${c.attempt}, 0), 0)::bigint + ${added}, ${MAX_INTEGER}) ELSE o.${c.attempt} END`;

  /** @param isOfFree whether of the rows that no other transaction holds @param noted a further part of the `WITH` */
  const settleText = (isOfFree: boolean, noted = ""): string => {
    const free = `SELECT f.${c.id} FROM ${table} f WHERE f.${c.id} = ANY ($1::uuid[]) FOR NO KEY UPDATE OF f SKIP LOCKED`;
    return `
WITH outcomes AS MATERIALIZED (
  SELECT u.*, now() AS now, now() + u.delay * interval '1 millisecond' AS again_at
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::bigint[], $6::text[]) AS u(id, token, state, attempts, delay, reason)
),
closed AS (
UPDATE ${table} o
SET ${c.state} = coalesce(s.state, 'sent'), ${c.attempt} = ${attemptsPlus("s.attempts")}, ${c.updatedAt} = s.now, ${unclaimed},
    ${c.scheduledAt} = CASE WHEN s.delay < 0 THEN ${PARKED_AT} WHEN s.delay IS NOT NULL THEN s.again_at
      WHEN s.state = 'pending' THEN ${scheduledAtGivenBack("o", "s.now")} ELSE o.${c.scheduledAt} END,
    ${c.lastError} = coalesce(s.reason, o.${c.lastError})
FROM outcomes s
WHERE o.${c.id} = s.id AND o.${c.claimToken} = s.token
  AND (o.${c.state} || '') = 'processing'${isOfFree ? `\n  AND o.${c.id} = ANY (ARRAY(${free}))` : ""}
RETURNING o.${c.id} AS id, o.${c.claimToken} IS NULL AS is_closed)${noted}
SELECT CASE WHEN count(*) < cardinality($1) THEN array_agg(id::text) END AS closed, count(*) AS count
FROM closed WHERE is_closed`;
  };
  const entries = noteSettled(names, "SELECT id FROM closed WHERE is_closed", SETTLE_PARAMETERS.split(", ").length + 1);
  // Both under one name: it stands in the reason of a row whose outcome is refused.
  const settle = (isOfFree: boolean) => ({
    plain: byIndex(`outbox.settle(${SETTLE_PARAMETERS})`, SETTLE_WAITS)(settleText(isOfFree)),
    noting: byIndex(
      `outbox.settle with history(${SETTLE_PARAMETERS}, ${ENTRY_PARAMETERS})`,
      SETTLE_WAITS,
    )(settleText(isOfFree, `,\nnoted AS (${entries})`)),
  });

  return {
    inOrder: hasQueues ? inOrderByQueue : inOrderOfAll,
    pastBlocked: pastBlocked("$11::text"),
    oneQueue: { inOrder: inOrderOfAll, pastBlocked: pastBlocked(undefined) },
    unlabelled: hasQueues
      ? byIndex("outbox.unlabelled rows(from, limit, isFromMark, exceptIds)", { onePlan: true })`
WITH again AS MATERIALIZED (${unparkedBelow("$1")}
)
SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, ${isDue} AS is_due, coalesce(o.${c.attempt}, 0) > 0 AS has_failed FROM ${table} o
WHERE o.${c.state} = 'pending' AND o.${c.destination} IS NULL AND o.${c.sequence} >= CASE WHEN $3::boolean THEN ${LOWEST_AGAIN} ELSE $1::bigint END
  AND o.${c.id} <> ALL ($4::uuid[])
${inOrderOf("NULL")} LIMIT $2::int`
      : undefined,
    lists: listStatements(names, parts),

    /** It writes payload and headers as text, as a claim does: a `jsonb` of numbers may have more than 1 GB as text. */
    trial: statement(`outbox.trial claim(ids${hasQueues ? ", labelledIds, labels, routes" : ""})`)`
WITH chosen AS MATERIALIZED (
  SELECT o.${c.id} AS id${hasQueues ? ", l.destination, l.id IS NOT NULL AS is_new" : ""}
  FROM ${table} o${hasQueues ? ` LEFT JOIN unnest($2::uuid[], $3::text[]) AS l(id, destination) ON l.id = o.${c.id}` : ""}
  WHERE o.${c.id} = ANY ($1::uuid[]) AND (o.${c.state} || '') = 'pending'
  FOR NO KEY UPDATE OF o SKIP LOCKED
),
claimed AS (
  UPDATE ${table} o SET ${c.state} = 'processing', ${c.claimToken} = n.id, ${c.claimedAt} = now(), ${c.updatedAt} = now(),
    ${c.leaseExpiresAt} = now()${hasQueues ? `,\n    ${labelBy("n", "$4")}` : ""}
  FROM chosen n
  WHERE o.${c.id} = n.id
  RETURNING ${isClaimed(`o.${c.id}`)} AS is_claimed, octet_length(o.${c.payload}::text) AS payload_bytes, octet_length(o.${c.headers}::text) AS headers_bytes
)
SELECT ${allWritten("(SELECT count(*) FROM chosen)", "count(*) FILTER (WHERE is_claimed)")} AS all_claimed, max(payload_bytes), max(headers_bytes)
FROM claimed`,

    setBack: statement("outbox.set back the last sent row")(
      setBack(table, c, `f.${c.state} = 'sent'`, `f.${c.updatedAt} DESC, f.${c.sequence} DESC`),
    ),

    /** A fraction of planning a claim, ten times a second while idle. Ordered for the planner to take the index. */
    due: statement("outbox.due(from, lowWater)", {
      takesTurns: true,
    })`SELECT (${anyDue(`CASE WHEN $1::bigint = ${newestMark("$2")} THEN ${fromNewest("$2")} ELSE $1 END`)})
  OR (SELECT o.${c.sequence} FROM ${table} o WHERE o.${c.state} = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} <= now()
    ORDER BY o.${c.scheduledAt} LIMIT 1) IS NOT NULL AS answer,
  (SELECT o.${c.sequence}::bigint + 1 FROM ${table} o WHERE o.${c.state} = 'pending' AND o.${c.sequence} >= $1::bigint
    ORDER BY o.${c.sequence} DESC LIMIT 1)::text AS "end"`,

    glance: statement("outbox.glance(overdueMs, lowWater)", { takesTurns: true })`
SELECT (${anyDue(fromNewest("$2"), isOverdue("$1"))}) AS is_overdue, ${isWatched(`'${literal(table)}'`)} AS is_watched`,

    /**
     * The state is compared as an expression, so that rows are found by id and not by the index of everything in
     * flight. A delay below 0 parks the row, a null reason keeps the last one; if every row was sent the lists from the
     * states on are empty. Returns one row: null when every claim was closed, else the ids that were.
     */
    settle: settle(false),
    settleUnlocked: settle(true),

    dialect: {
      scanOf([result = []]) {
        const [counts, ...rows] = result;
        return {
          rows,
          queues: (counts?.queues ?? []) as ClaimScan["queues"],
          labelled: Number(counts?.labelled ?? 0),
          hasUnlabelled: counts?.has_unlabelled === true,
          first: textOf(counts?.first) ?? undefined,
          end: textOf(counts?.end) ?? undefined,
          isRead: counts?.is_read === true,
        };
      },
      entryValues,
      settleValues: (outcomes) => ({
        ids: uuidArray(outcomes.map(({ id }) => id)),
        tokens: uuidArray(outcomes.map(({ claimToken }) => claimToken)),
        ...(outcomes.every(({ kind }) => kind === "sent") ? ALL_SENT : outcomesOf(outcomes)),
      }),
      closedOf([row], outcomes) {
        if (row?.closed) return row.closed as MessageId[];
        return row?.count === "0" ? [] : outcomes.map(({ id }) => id);
      },
      hasGivenUp,
    },
  };
}

const CLAIM_PARAMETERS =
  "from, limit, maxBytes, token, leaseMs, claimTimeoutMs, lowWater, heldTokens, exceptIds, routes";
const IN_ORDER_PARAMETERS = `${CLAIM_PARAMETERS}, destinations, rooms, labelledIds, labels, wanted, lookedTo`;

const SETTLE_PARAMETERS = "ids, tokens, states, attempts, delays, reasons";

/** The lowest sequence of a claim from the mark, which is up to a second old. */
const LOWEST_AGAIN = "least($1::bigint, (SELECT sequence FROM again))";

/** Rows of a blocked front that one claim reads: it takes some 10 ms. */
const STRETCH = 5000;
const LAST_POSITION = "9223372036854775807";

/** Longer than this a row is held by hand. The statement may wait for row after row. */
const SETTLE_WAITS = { lockTimeoutMs: 2000, serverTimeoutMs: 5000 };

const MAX_INTEGER = 2 ** 31 - 1;

const ALL_SENT = { states: [], attempts: [], delays: [], reasons: [] };

function outcomesOf(outcomes: readonly Outcome[]) {
  const stored = outcomes.map(storedOutcome);
  return arraysOf(stored, { states: "state", attempts: "attempts", delays: "delay", reasons: "reason" });
}
