import type { Outcome } from "../../../model/rows.ts";
import type { TableNames } from "../sql/names.ts";
import type { ClaimStatement, ClaimStatements } from "../sql/outboxClaims.ts";
import { idsOf } from "../sql/rows.ts";
import { storedOutcome } from "../sql/settlements.ts";
import {
  asBit,
  BATCH,
  BEGIN,
  BY_ID,
  COLLATED,
  COMMIT,
  hasCome,
  NAMED_IDS,
  NOW,
  ONE_BY_ONE,
  PARKED_AT,
  placeFrom,
  placeNames,
  placeTypes,
  setBack,
  TO_CHANGE,
  TO_READ,
  textBatch,
  textOf,
} from "./fragments.ts";
import { ENTRY_PARAMETERS, entryValues, noteSettled } from "./historySql.ts";
import { listStatements } from "./listSql.ts";
import type { OutboxParts } from "./outboxParts.ts";
import { hasGivenUp } from "./pool.ts";
import { answersOf, type Statement, statement } from "./statement.ts";

export function claimStatements(names: TableNames, parts: OutboxParts): ClaimStatements<Statement> {
  const { table, c, unclaimed, scheduledAtGivenBack, isDue, goesTo } = parts;
  const { hasLists, isDelivery, isNoDelivery, placeOf, stopping, joinMessage, anyBytes, anyClaimedColumns } = parts;
  const claimParameters = hasLists ? `${CLAIM_PARAMETERS}, routes text` : CLAIM_PARAMETERS;
  const inOrderParameters = `${CLAIM_PARAMETERS}, routes text, ${IN_ORDER_PARAMETERS}`;
  const hasQueues = c.destination !== null && c.routes !== null;
  const lane = hasLists ? `, CASE WHEN ${isDelivery("o")} THEN CONCAT(o.${c.destination}, N'.') ${COLLATED} END` : "";
  const oneByOne = hasLists ? `\n${ONE_BY_ONE}` : "";

  /**
   * A pending row, not a candidate, that later rows of its key wait for: it is due by a clock read after the
   * candidates, or was due when inserted or replayed. Few rows are scheduled ahead; only for those the row itself is
   * read, beyond the index.
   *
   * @param f an alias for that row, with its hints
   */
  const holdsBack = (row: string, clock: string, f = "f"): string =>
    `CASE WHEN ${row}.${c.attempt} > 0 OR ${hasCome(`${row}.${c.scheduledAt}`, clock)} THEN 1
      WHEN EXISTS (SELECT 1 FROM ${table} ${f} WHERE f.${c.sequence} = ${row}.${c.sequence}
        AND (f.${c.scheduledAt} <= f.${c.createdAt} OR f.${c.scheduledAt} <= f.${c.updatedAt})) THEN 1
      ELSE 0 END = 1`;

  /** A further condition: the rows of a queue. @param destination undefined if no destination counts */
  const inQueue = (destination: string | undefined): string =>
    destination === undefined
      ? ""
      : ` AND o.${c.destination} = ${destination} ${COLLATED} AND ${goesTo("o", destination)}`;
  const isAccepted = `NOT EXISTS (SELECT 1 FROM @except x WHERE x.id = o.${c.id})`;

  /**
   * A row in flight of this process stops only rows that go elsewhere, or are in another lane.
   *
   * @param isOneLane a condition; empty if it does not count
   * @param destination of the later rows; undefined if it does not count
   */
  const isHeld = (row: string, isOneLane: string, destination?: string): string =>
    `EXISTS (SELECT 1 FROM @held h WHERE h.token = ${row}.${c.claimToken}${
      destination === undefined ? "" : ` AND ${goesTo(row, destination)}`
    }${andIf(isOneLane)})`;

  /** @param row with the `destination` of a row that `is_new` */
  const labelBy = (row: string): string =>
    `${c.destination} = CASE WHEN ${row}.is_new = 1 THEN ${row}.destination ${COLLATED} ELSE o.${c.destination} END,
  ${c.routes} = CASE WHEN ${row}.is_new = 1 AND ${row}.destination IS NOT NULL THEN @routes ELSE o.${c.routes} END`;

  /**
   * One claim; see {@link CLAIM_PARAMETERS}. For free rows and stops see the claim of PostgreSQL. `@heldTokens`: JSON
   * array, as all lists. Returns three result sets: the counts of each queue, the answer, the claimed rows in order.
   *
   * - positions: due rows of the queues in order, except rows that another claim has locked; and rows to label
   *   (`is_new`).
   * - candidates: rows that could be locked as such: the scan may lock the index entry alone. `run` is the first
   *   candidate of the row's key and lane: keys are compared only in the table, under its collation.
   *
   * The stops are read after the candidates and skip nothing: a row that another replica claims or settles is waited
   * for, or read as before (READ_COMMITTED_SNAPSHOT), still unfinished. Everything the scan saw was committed before,
   * and so was every earlier row of a replay, which moves rows in the order of their sequence. Deliveries are read
   * last: a message that is expanded meanwhile was found before, or its deliveries are. If two claims choose the same
   * rows, the second changes fewer rows than it chose, and rolls back.
   *
   * Payloads are counted in UTF-16 code units, mostly the bytes of JSON. Answers are read after the commit, without
   * locks.
   */
  const claim = (
    [of, parameters]: readonly [of: string, parameters: string],
    isOneQueue: boolean,
    { declarations = "", positions, labelling = "", answer }: Choice,
  ): ClaimStatement<Statement> => {
    const goesThere = isOneQueue
      ? `(${isNoDelivery("r")} OR ${goesTo("o", `r.${c.destination}`)})`
      : goesTo("o", "k.destination");
    const stops = stopping("o", "r", goesThere)
      .map(
        (kind) => `
INSERT INTO @stops (run, destination, place)
SELECT k.run, k.destination, s.place
FROM (
  SELECT n.run, MIN(COALESCE(n.destination, N'')) AS destination, MAX(n.place) AS last FROM @candidates n
  WHERE n.run IS NOT NULL GROUP BY n.run, CONCAT(n.destination, N'.')
) k
JOIN ${table} r ON r.${c.sequence} = k.run
CROSS APPLY (
  SELECT TOP (1) o.${kind.place} AS place
  FROM ${table} o
  WHERE o.${c.key} = r.${c.key} AND o.${c.key} IS NOT NULL AND o.${c.state} IN (N'pending', N'processing')${kind.which}
    AND o.${kind.place} < k.last
    AND (o.${c.state} = N'processing' OR ${holdsBack("o", "@lookedAt")})
    AND NOT (o.${c.state} = N'processing' AND ${isHeld("o", kind.isOneLane, isOneQueue ? undefined : "k.destination")})
    AND NOT EXISTS (SELECT 1 FROM @candidates n WHERE n.sequence = o.${c.sequence}${andIf(kind.isOneLane)})
  ORDER BY o.${kind.place}
) s;`,
      )
      .join("");
    const choice = `
${BATCH}
${NOW}
DECLARE @held TABLE (token uniqueidentifier NOT NULL);
DECLARE @except TABLE (id uniqueidentifier NOT NULL PRIMARY KEY);
DECLARE @positions TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, destination ${NAME} NULL, is_new bit NOT NULL);
DECLARE @candidates TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, destination ${NAME} NULL, is_new bit NOT NULL,
  bytes bigint NOT NULL, run bigint NULL, place bigint NOT NULL, PRIMARY KEY (sequence, id));
DECLARE @stops TABLE (run bigint NOT NULL, destination ${NAME} NOT NULL, place bigint NOT NULL);
DECLARE @free TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, destination ${NAME} NULL, is_new bit NOT NULL,
  bytes_before bigint NOT NULL, PRIMARY KEY (sequence, id));
INSERT INTO @held (token) SELECT h.token FROM OPENJSON(@heldTokens) WITH (token uniqueidentifier '$') h;
INSERT INTO @except (id) SELECT DISTINCT x.id FROM OPENJSON(@exceptIds) WITH (id uniqueidentifier '$') x;${declarations}
BEGIN TRANSACTION;${positions}
INSERT INTO @candidates (sequence, id, destination, is_new, bytes, run, place)
SELECT o.${c.sequence}, o.${c.id}, p.destination, p.is_new, ${anyBytes},
  CASE WHEN o.${c.key} IS NOT NULL THEN MIN(o.${c.sequence}) OVER (PARTITION BY o.${c.key}${lane}) END, ${placeOf("o")}
FROM @positions p JOIN ${table} o ${BY_ID.take} ON o.${c.sequence} = p.sequence AND o.${c.id} = p.id${joinMessage}
WHERE ${isDue}${isOneQueue ? "" : ` AND (p.is_new = 1 OR ${goesTo("o", "p.destination")})`}${oneByOne};
DECLARE @lookedAt datetimeoffset(7) = SYSUTCDATETIME();${stops}
INSERT INTO @free (sequence, id, destination, is_new, bytes_before)
SELECT n.sequence, n.id, n.destination, n.is_new, SUM(n.bytes) OVER (ORDER BY n.place, n.sequence, n.id ROWS UNBOUNDED PRECEDING) - n.bytes
FROM @candidates n LEFT JOIN (
  SELECT b.run, MIN(b.place) AS place
  FROM @stops s JOIN @candidates b ON b.run = s.run AND CONCAT(b.destination, N'.') = CONCAT(s.destination, N'.')
  WHERE b.place >= s.place GROUP BY b.run
) w ON w.run = n.run
WHERE w.place IS NULL OR n.place < w.place
${READ_ONCE};`;
    return {
      chosen: statement(`outbox.rows chosen by a claim${of}(${ofChoice(parameters, hasLists)})`)`${choice}
ROLLBACK TRANSACTION;
SELECT f.id FROM @free f WHERE f.bytes_before < @maxBytes${labelling === "" ? "" : " UNION SELECT u.id FROM @unlabelled u"};`,
      claim: statement(`outbox.claim${of}(${parameters})`)`${choice}
DECLARE @lost bit = 0;
DECLARE @queues TABLE (queue ${NAME} NOT NULL, candidates int NOT NULL, held_back int NOT NULL, gap bigint NULL);
DECLARE @claimed TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL);
INSERT INTO @queues (queue, candidates, held_back, gap)
SELECT q.queue, q.candidates, q.held_back, q.first_position - w.sequence
FROM (
  SELECT MIN(COALESCE(p.destination, N'')) AS queue, COUNT(*) AS candidates,
    SUM(CASE WHEN n.id IS NOT NULL AND f.id IS NULL THEN 1 ELSE 0 END) AS held_back,
    MIN(CASE WHEN p.is_new = 0 THEN p.sequence END) AS first_position
  FROM @positions p
  LEFT JOIN @candidates n ON n.sequence = p.sequence AND n.id = p.id
  LEFT JOIN @free f ON f.sequence = p.sequence AND f.id = p.id
  GROUP BY CONCAT(p.destination, N'.')
) q
OUTER APPLY (
  SELECT TOP (1) o.${c.sequence} AS sequence FROM ${table} o ${TO_READ}
  WHERE o.${c.state} = N'pending'${inQueue(isOneQueue ? undefined : "q.queue")} AND o.${c.sequence} >= @from
  ORDER BY o.${c.sequence}
) w;
UPDATE o
SET ${c.state} = N'processing', ${c.claimToken} = @token, ${c.claimedAt} = @now, ${c.updatedAt} = @now,
  ${c.leaseExpiresAt} = DATEADD(millisecond, @leaseMs, @now)${labelling === "" ? "" : `,\n  ${labelBy("f")}`}
OUTPUT inserted.${c.sequence}, inserted.${c.id} INTO @claimed (sequence, id)
FROM ${table} o ${BY_ID.change} JOIN @free f ON o.${c.sequence} = f.sequence AND o.${c.id} = f.id
WHERE f.bytes_before < @maxBytes AND ${isDue};
IF (SELECT COUNT(*) FROM @claimed) < (SELECT COUNT(*) FROM @free WHERE bytes_before < @maxBytes) SET @lost = 1;${labelling}
IF @lost = 1 ROLLBACK TRANSACTION; ELSE COMMIT TRANSACTION;
SELECT q.queue, q.candidates, q.held_back, q.gap FROM @queues q;
SELECT ${answer}, @lost AS lost;
SELECT ${anyClaimedColumns}
FROM @claimed n JOIN ${table} o ${BY_ID.read} ON o.${c.sequence} = n.sequence AND o.${c.id} = n.id${joinMessage}
WHERE o.${c.claimToken} = @token
ORDER BY ${hasLists ? `${placeOf("o")}, ` : ""}o.${c.sequence}${oneByOne};`,
    };
  };

  /**
   * `@destinations` with `@rooms`: the queues, the first ones first, and the most rows of each. `@labelledIds` with
   * `@labels` and `@wanted`: rows to label by the routes of the hash `@routes`, and whether each is claimed if it can
   * be.
   */
  const inOrderByQueue = (): ClaimStatement<Statement> =>
    claim(["", inOrderParameters], false, {
      declarations: `
DECLARE @pending nvarchar(20) = N'pending';
DECLARE @asked TABLE (turn int NOT NULL PRIMARY KEY, destination ${NAME} NOT NULL, room int NOT NULL);
INSERT INTO @asked (turn, destination, room)
SELECT CONVERT(int, d.[key]), d.[value], CONVERT(int, r.[value])
FROM OPENJSON(@destinations) d JOIN OPENJSON(@rooms) r ON r.[key] = d.[key]
${READ_ONCE};
DECLARE @labelled TABLE (id uniqueidentifier NOT NULL PRIMARY KEY, destination ${NAME} NULL, is_wanted bit NOT NULL);
INSERT INTO @labelled (id, destination, is_wanted)
SELECT CONVERT(uniqueidentifier, i.[value]), l.[value], CONVERT(bit, w.[value])
FROM OPENJSON(@labelledIds) i JOIN OPENJSON(@labels) l ON l.[key] = i.[key] JOIN OPENJSON(@wanted) w ON w.[key] = i.[key]
${READ_ONCE};
DECLARE @unlabelled TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, destination ${NAME} NULL, is_wanted bit NOT NULL);`,
      positions: `
INSERT INTO @unlabelled (sequence, id, destination, is_wanted)
SELECT o.${c.sequence}, o.${c.id}, l.destination, CASE WHEN l.is_wanted = 1 AND ${hasCome(`o.${c.scheduledAt}`)} THEN 1 ELSE 0 END
FROM @labelled l JOIN ${table} o ${BY_ID.take} ON o.${c.id} = l.id
WHERE o.${c.state} = @pending AND o.${c.destination} IS NULL
${ONE_BY_ONE};
INSERT INTO @positions (sequence, id, destination, is_new)
SELECT u.sequence, u.id, u.destination, 1 FROM @unlabelled u WHERE u.is_wanted = 1;
INSERT INTO @positions (sequence, id, destination, is_new)
SELECT TOP (@limit) q.sequence, q.id, a.destination, 0
FROM @asked a
CROSS APPLY (
  SELECT TOP (a.room) o.${c.sequence} AS sequence, o.${c.id} AS id
  FROM ${table} o ${TO_CHANGE}
  WHERE ${isDue}${inQueue("a.destination")} AND o.${c.sequence} >= @from AND ${isAccepted}
  ORDER BY o.${c.sequence}
) q
ORDER BY a.turn;`,
      labelling: `
UPDATE o
SET ${c.destination} = u.destination, ${c.routes} = @routes
FROM ${table} o ${BY_ID.change} JOIN @unlabelled u ON o.${c.sequence} = u.sequence AND o.${c.id} = u.id
WHERE u.destination IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @claimed n WHERE n.sequence = u.sequence AND n.id = u.id);`,
      answer: `CASE WHEN EXISTS (SELECT 1 FROM ${table} o ${TO_READ}
  WHERE o.${c.state} = N'pending' AND o.${c.destination} IS NULL AND o.${c.sequence} >= COALESCE(@lookedTo, @from) AND ${isAccepted}) THEN 1 ELSE 0 END AS has_unlabelled,
  (SELECT COUNT(*) FROM @unlabelled) AS labelled`,
    });

  const inOrderOfAll = claim([" of all", claimParameters], true, {
    positions: `
INSERT INTO @positions (sequence, id, destination, is_new)
SELECT TOP (@limit) o.${c.sequence}, o.${c.id}, N'', 0
FROM ${table} o ${TO_CHANGE}
WHERE ${isDue} AND o.${c.sequence} >= @from AND ${isAccepted}
ORDER BY o.${c.sequence};`,
    answer: "0 AS has_unlabelled, 0 AS labelled",
  });

  /**
   * Due retries of a queue, and a stretch from `@from` on without the rows behind a blocked key: see the claim of
   * PostgreSQL. The scans take no locks: each row that they found behind a blocked key would stay locked. The end of
   * the stretch is read before its rows: rows that follow meanwhile are behind it.
   *
   * @param destination the parameter; undefined if no destination counts
   */
  const pastBlocked = (destination?: string): ClaimStatement<Statement> => {
    const elsewhere = destination === undefined ? "" : `WHEN NOT ${goesTo("b", destination)} THEN 1\n      `;
    const isFree = stopping("b", "o", goesTo("b", `o.${c.destination}`))
      .map(
        (kind) => `NOT EXISTS (SELECT 1 FROM (
    SELECT TOP (1) CASE WHEN b.${c.state} = N'processing' THEN 1
      ${kind.isOneLane === "" ? "" : `WHEN NOT (${kind.isOneLane}) THEN 1\n      `}${elsewhere}WHEN b.${c.attempt} > 0 THEN CASE WHEN b.${c.scheduledAt} > @now THEN 1 ELSE 0 END
      WHEN b.${c.sequence} < @from OR b.${c.sequence} > o.${c.sequence} THEN 1 ELSE 0 END AS is_blocked
    FROM ${table} b ${TO_READ}
    WHERE b.${c.key} = o.${c.key} AND b.${c.key} IS NOT NULL AND b.${c.state} IN (N'pending', N'processing')${kind.which} AND b.${kind.place} < ${placeOf("o")}
      AND (b.${c.state} = N'processing' AND NOT ${isHeld("b", kind.isOneLane, destination)}
        OR b.${c.state} = N'pending' AND ${holdsBack("b", "@now", `f ${TO_READ}`)})
    ORDER BY b.${kind.place}
  ) k WHERE k.is_blocked = 1)`,
      )
      .join("\n  AND ");
    const isWaiting = `o.${c.state} = N'pending'${inQueue(destination)}`;
    const scan = (into: string, where: string, order: string): string => `
INSERT INTO ${into} (sequence, id, destination, is_new)
SELECT TOP (@limit) o.${c.sequence}, o.${c.id}, ${destination ?? "N''"}, 0
FROM ${table} o ${TO_READ}
WHERE ${isWaiting} AND ${where} AND ${isAccepted}
  AND ${isFree}
ORDER BY o.${order};`;
    const waiting = `FROM ${table} o ${TO_READ} WHERE ${isWaiting}`;
    const isOneQueue = destination === undefined;
    const signed = isOneQueue
      ? ([" of all past blocked keys", claimParameters] as const)
      : ([" past blocked keys", `${claimParameters}, destination text`] as const);
    return claim(signed, isOneQueue, {
      positions: `
DECLARE @end bigint;
SELECT @end = o.${c.sequence} ${waiting} AND o.${c.sequence} >= @from
ORDER BY o.${c.sequence} OFFSET ${STRETCH} ROWS FETCH NEXT 1 ROWS ONLY;
DECLARE @isRead bit = CASE WHEN @end IS NULL THEN 1 ELSE 0 END;
IF @isRead = 1 SELECT @end = COALESCE(MAX(o.${c.sequence}) + 1, @from) ${waiting};
DECLARE @ahead TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, destination ${NAME} NULL, is_new bit NOT NULL);${scan(
        "@ahead",
        `(o.${c.attempt} IS NULL OR o.${c.attempt} <= 0) AND ${hasCome(`o.${c.scheduledAt}`)} AND o.${c.sequence} >= @from AND o.${c.sequence} < @end`,
        c.sequence,
      )}${scan("@positions", `o.${c.attempt} > 0 AND o.${c.scheduledAt} <= @now`, c.scheduledAt)}
INSERT INTO @positions (sequence, id, destination, is_new)
SELECT TOP (@limit - @@ROWCOUNT) a.sequence, a.id, a.destination, a.is_new FROM @ahead a
WHERE NOT EXISTS (SELECT 1 FROM @positions p WHERE p.sequence = a.sequence AND p.id = a.id)
ORDER BY a.sequence;`,
      answer:
        "0 AS has_unlabelled, 0 AS labelled, (SELECT MIN(a.sequence) FROM @ahead a) AS first_position, @end AS end_position, @isRead AS is_read",
    });
  };
  const pastBlockedOfAll = pastBlocked();

  /** No addition may leave the range of the column: the row could never be settled. */
  const attemptsPlus = (added: string): string => `CASE WHEN o.${c.attempt} > ${MAX_INT} - ${added} THEN ${MAX_INT}
    WHEN o.${c.attempt} > 0 THEN o.${c.attempt} + ${added} ELSE ${added} END`;
  /** @param noted a further statement, behind the change @param hints of the rows: whether it skips locked ones */
  const settle = (noted: string, hints: string): string => {
    const [begin, end] = noted === "" ? ["", ""] : [BEGIN, `${noted}\n${COMMIT}`];
    return `
${BATCH}
${NOW}
DECLARE @processing nvarchar(20) = N'processing';
DECLARE @settled TABLE (id uniqueidentifier NOT NULL, token uniqueidentifier NOT NULL, state nvarchar(20) ${COLLATED} NOT NULL, attempts int NOT NULL,
  delay int NULL, ${SETTLED_TEXTS.map(placeTypes).join(", ")});
DECLARE @closed TABLE (id uniqueidentifier NOT NULL);
INSERT INTO @settled (id, token, state, attempts, delay, ${SETTLED_TEXTS.map(placeNames).join(", ")})
SELECT j.id, j.token, j.state, j.attempts, j.delay, ${SETTLED_TEXTS.map(placeNames).join(", ")}
FROM OPENJSON(@rows) WITH (id uniqueidentifier '$.id', token uniqueidentifier '$.token', state nvarchar(20) ${COLLATED} '$.state',
  attempts int '$.attempts', delay int '$.delay', ${SETTLED_TEXTS.map(placeFrom).join(", ")}) j;
${begin}
UPDATE o
SET ${c.state} = r.state, ${c.attempt} = ${attemptsPlus("r.attempts")}, ${c.updatedAt} = @now, ${unclaimed},
  ${c.scheduledAt} = CASE WHEN r.delay < 0 THEN ${PARKED_AT} WHEN r.delay IS NOT NULL THEN DATEADD(millisecond, r.delay, @now)
    WHEN r.state = N'pending' THEN ${scheduledAtGivenBack} ELSE o.${c.scheduledAt} END,
  ${c.lastError} = COALESCE(${textOf("reason")}, o.${c.lastError})
OUTPUT inserted.${c.id} INTO @closed (id)
FROM ${table} o ${hints} JOIN @settled r ON o.${c.id} = r.id
WHERE o.${c.claimToken} = r.token AND o.${c.state} = @processing;
${end}
SELECT id FROM @closed;`;
  };

  const settlement = (name: string, hints: string) => ({
    plain: statement(`${name}(${SETTLE_PARAMETERS})`)(settle("", hints)),
    noting: statement(`${name} with history(${SETTLE_PARAMETERS}, ${ENTRY_PARAMETERS})`)(
      settle(noteSettled(names), hints),
    ),
  });

  return {
    inOrder: hasQueues ? inOrderByQueue() : inOrderOfAll,
    pastBlocked: hasQueues ? pastBlocked("@destination") : pastBlockedOfAll,
    oneQueue: { inOrder: inOrderOfAll, pastBlocked: pastBlockedOfAll },

    unlabelled: hasQueues
      ? statement("outbox.unlabelled rows(from bigint, limit int, exceptIds list)")`
${NOW}
SELECT TOP (@limit) o.${c.id} AS id, o.${c.sequence} AS sequence, o.${c.topic} AS topic,
  ${asBit(hasCome(`o.${c.scheduledAt}`))} AS is_due, ${asBit(`o.${c.attempt} > 0`)} AS has_failed
FROM ${table} o ${TO_READ}
WHERE o.${c.state} = N'pending' AND o.${c.destination} IS NULL AND o.${c.sequence} >= @from
  AND NOT EXISTS (SELECT 1 FROM OPENJSON(@exceptIds) WITH (id uniqueidentifier '$') x WHERE x.id = o.${c.id})
ORDER BY o.${c.sequence};`
      : undefined,

    trial: statement(`outbox.trial claim(ids list${hasQueues ? ", labelledIds list, labels list, routes text" : ""})`)`
${BATCH}
${NOW}
${NAMED_IDS}${
  hasQueues
    ? `
DECLARE @labelled TABLE (id uniqueidentifier NOT NULL PRIMARY KEY, destination ${NAME} NULL);
INSERT INTO @labelled (id, destination)
SELECT CONVERT(uniqueidentifier, i.[value]), l.[value]
FROM OPENJSON(@labelledIds) i JOIN OPENJSON(@labels) l ON l.[key] = i.[key]
${READ_ONCE};`
    : ""
}
UPDATE o
SET ${c.state} = N'processing', ${c.claimToken} = o.${c.id}, ${c.claimedAt} = @now, ${c.updatedAt} = @now, ${c.leaseExpiresAt} = @now${hasQueues ? `,\n  ${labelBy("n")}` : ""}
FROM ${hasQueues ? "(SELECT i.id, l.destination, CASE WHEN l.id IS NULL THEN 0 ELSE 1 END AS is_new FROM @named i LEFT JOIN @labelled l ON l.id = i.id)" : "@named"} n
JOIN ${table} o ${BY_ID.take} ON o.${c.id} = n.id
WHERE o.${c.state} = N'pending'
${ONE_BY_ONE};`,

    setBack: statement("outbox.set back the last sent row")(
      setBack(table, c, `f.${c.state} = N'sent'`, `f.${c.updatedAt} DESC, f.${c.sequence} DESC`),
    ),

    due: statement("outbox.due(from bigint)")`
${NOW}
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${table} o ${TO_READ} WHERE ${isDue} AND o.${c.sequence} >= @from)
    OR EXISTS (SELECT 1 FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} <= @now)
  THEN 1 ELSE 0 END AS answer,
  (SELECT MAX(o.${c.sequence}) + 1 FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'pending') AS [end];`,

    glance: statement("outbox.glance(overdueMs int)")`
${NOW}
DECLARE @before datetimeoffset(7) = DATEADD(millisecond, -@overdueMs, @now);
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${table} o ${TO_READ} WHERE ${isDue}
  AND (o.${c.scheduledAt} IS NULL OR o.${c.scheduledAt} <= @before) AND (o.${c.createdAt} IS NULL OR o.${c.createdAt} <= @before)) THEN 1 ELSE 0 END AS is_overdue;`,

    /**
     * A variable for the state matches no filtered index: rows are found by id. For `@rows` and `@texts` see
     * {@link textBatch}; a delay below 0 parks the row, a null reason keeps the last one.
     */
    settle: settlement("outbox.settle", BY_ID.change),
    settleUnlocked: settlement("outbox.settle unlocked rows", BY_ID.take),

    lists: listStatements(names, parts),

    dialect: {
      hasGivenUp,
      scanOf(results) {
        const [queues = [], [answer] = [], rows = []] = answersOf(results, 3);
        // Others have claimed the same rows: the next claim follows at once.
        const isLost = answer?.lost === true;
        return {
          rows,
          queues: queues.map((each) => ({
            queue: String(each.queue),
            candidates: Number(each.candidates),
            heldBack: Number(each.held_back),
            gap: each.gap === null ? null : Number(each.gap),
          })),
          labelled: isLost ? 1 : Number(answer?.labelled ?? 0),
          hasUnlabelled: isLost || Boolean(answer?.has_unlabelled),
          first: positionOf(answer?.first_position),
          end: positionOf(answer?.end_position),
          isRead: !isLost && answer?.is_read === true,
        };
      },
      entryValues,
      settleValues: (outcomes) => ({ ...textBatch(outcomes.map(outcomeOf), SETTLED_TEXTS) }),
      closedOf: idsOf,
    },
  };
}

interface Choice {
  readonly declarations?: string;
  /** Fills `@positions`. */
  readonly positions: string;
  readonly labelling?: string;
  readonly answer: string;
}

const CLAIM_PARAMETERS =
  "from bigint, limit int, maxBytes bigint, token uuid, leaseMs ms, heldTokens list, exceptIds list";
const IN_ORDER_PARAMETERS =
  "destinations list, rooms list, labelledIds list, labels list, wanted list, lookedTo bigint";

/** Without the parameters that only the change of the rows needs. */
const ofChoice = (parameters: string, hasLists: boolean): string =>
  parameters
    .split(", ")
    .filter((each) => !/^(token|leaseMs|lookedTo) /.test(each) && (hasLists || !each.startsWith("routes ")))
    .join(", ");

const NAME = `nvarchar(4000) ${COLLATED}`;

/** Each of the lists or tables that are joined is read once, however long they are. */
const READ_ONCE = "OPTION (HASH JOIN)";

const STRETCH = 5000;

const andIf = (condition: string): string => (condition === "" ? "" : ` AND ${condition}`);

function positionOf(value: unknown): string | undefined {
  return value === null || value === undefined ? undefined : String(value);
}

const SETTLE_PARAMETERS = "rows longText, texts bytes";
const SETTLED_TEXTS = ["reason"] as const;

const MAX_INT = 2 ** 31 - 1;

function outcomeOf(outcome: Outcome) {
  const stored = storedOutcome(outcome);
  const delay = stored.delay === null ? null : Math.min(stored.delay, MAX_INT);
  return { id: outcome.id, token: outcome.claimToken, ...stored, delay };
}
