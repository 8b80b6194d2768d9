import type { Outcome } from "../../../model/rows.ts";
import type { ClaimScope } from "../../../ports/store.ts";
import type { ClaimStatements, ScopedClaims, UnscopedClaims } from "../sql/claims.ts";
import type { TableNames } from "../sql/names.ts";
import { attemptsOf, delayOf, STATE_AFTER } from "../sql/outcomes.ts";
import type { Routing } from "../sql/routing.ts";
import { idsOf } from "../sql/rows.ts";
import {
  BATCH,
  BEGIN,
  BY_ID,
  COLLATED,
  COMMIT,
  destinationOf,
  expiresInMs,
  hasCome,
  NAMED_IDS,
  NOW,
  ONE_BY_ONE,
  overrideOf,
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
import { type Statement, statement } from "./statement.ts";

/** Conditions and expressions that the statements on the outbox share. @param names already quoted */
export function outboxParts(names: TableNames, routing: Routing) {
  const table = names.outboxTable;
  const c = names.outbox;
  const destinationIn = (row: string): string => destinationOf(routing, c, row);
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;
  /**
   * `scheduled_at` of a claimed row that goes back unattempted: never ahead of its new `updated_at`, or later rows of
   * its key would overtake it.
   */
  const scheduledAtGivenBack = `CASE WHEN o.${c.scheduledAt} > @now THEN @now ELSE o.${c.scheduledAt} END`;
  const isDue = `o.${c.state} = N'pending' AND ${hasCome(`o.${c.scheduledAt}`)}`;
  return { table, c, destinationIn, unclaimed, scheduledAtGivenBack, isDue };
}

/** The statements that claim outbox rows, and close the claims with their outcomes. */
export function claimStatements(
  names: TableNames,
  { table, c, destinationIn, unclaimed, scheduledAtGivenBack, isDue }: ReturnType<typeof outboxParts>,
): ClaimStatements<Statement> {
  /**
   * For a pending row that is not a candidate: it is not scheduled ahead, so the later rows of its key wait for it. It
   * is due by a clock read after the candidates, or was due when it was inserted or replayed, whatever the clock did
   * since. Few rows are scheduled ahead; only for those the row itself is read, beyond the index.
   */
  const holdsBack = `CASE WHEN o.${c.attempt} > 0 OR ${hasCome(`o.${c.scheduledAt}`, "@lookedAt")} THEN 1
      WHEN EXISTS (SELECT 1 FROM ${table} f WHERE f.${c.sequence} = o.${c.sequence}
        AND (f.${c.scheduledAt} <= f.${c.createdAt} OR f.${c.scheduledAt} <= f.${c.updatedAt})) THEN 1
      ELSE 0 END = 1`;

  /**
   * One claim; for free rows and stops see the claim of PostgreSQL. `@from` first sequence, `@limit` rows, `@maxBytes`
   * bytes, `@token`, `@leaseMs`, `@heldTokens` tokens of claims that this process holds (JSON array). Returns two
   * result sets: the counts, then the claimed rows in order.
   *
   * - positions: due rows in order, except those that another claim has locked.
   * - candidates: those that could be locked as rows: the scan may lock the index entry alone. `run` is the first
   *   candidate of the row's key: keys are compared only in the table, under its collation.
   *
   * The stops are read after the candidates and skip nothing: a row that another replica claims or settles is waited
   * for, or read as it was before (READ_COMMITTED_SNAPSHOT), still unfinished. Everything the scan saw was committed
   * before, and so was every earlier row of a replay, which moves rows in the order of their sequence. Should two
   * claims choose the same rows, the second one changes fewer rows than it chose, and rolls back.
   *
   * Payloads are counted in UTF-16 code units, mostly the bytes of JSON, and read after the commit: no lock waits for
   * their transfer.
   */
  const claim = (positions: string, declarations = ""): string => `
${BATCH}
${NOW}
DECLARE @lost bit = 0;
DECLARE @held TABLE (token uniqueidentifier NOT NULL);
DECLARE @positions TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL);
DECLARE @candidates TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, bytes bigint NOT NULL, run bigint NULL,
  PRIMARY KEY (sequence, id));
DECLARE @stops TABLE (run bigint NOT NULL, sequence bigint NOT NULL);
DECLARE @free TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, bytes_before bigint NOT NULL);
DECLARE @claimed TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL);
INSERT INTO @held (token) SELECT h.token FROM OPENJSON(@heldTokens) WITH (token uniqueidentifier '$') h;${declarations}
BEGIN TRANSACTION;
INSERT INTO @positions (sequence, id)
${positions};
INSERT INTO @candidates (sequence, id, bytes, run)
SELECT o.${c.sequence}, o.${c.id}, COALESCE(DATALENGTH(o.${c.payload}) / DATALENGTH(N'x'), 0),
  CASE WHEN o.${c.key} IS NOT NULL THEN MIN(o.${c.sequence}) OVER (PARTITION BY o.${c.key}) END
FROM @positions p JOIN ${table} o ${BY_ID.take} ON o.${c.sequence} = p.sequence AND o.${c.id} = p.id
WHERE ${isDue};
DECLARE @lookedAt datetimeoffset(7) = SYSUTCDATETIME();
INSERT INTO @stops (run, sequence)
SELECT k.run, s.sequence
FROM (SELECT run, MAX(sequence) AS last FROM @candidates WHERE run IS NOT NULL GROUP BY run) k
JOIN ${table} r ON r.${c.sequence} = k.run
CROSS APPLY (
  SELECT TOP (1) o.${c.sequence} AS sequence
  FROM ${table} o
  WHERE o.${c.key} = r.${c.key} AND o.${c.key} IS NOT NULL AND o.${c.state} IN (N'pending', N'processing')
    AND o.${c.sequence} < k.last
    AND (o.${c.state} = N'processing' OR ${holdsBack})
    AND NOT (o.${c.state} = N'processing' AND EXISTS (SELECT 1 FROM @held h WHERE h.token = o.${c.claimToken}))
    AND NOT EXISTS (SELECT 1 FROM @candidates n WHERE n.sequence = o.${c.sequence})
  ORDER BY o.${c.sequence}
) s;
INSERT INTO @free (sequence, id, bytes_before)
SELECT n.sequence, n.id, SUM(n.bytes) OVER (ORDER BY n.sequence, n.id ROWS UNBOUNDED PRECEDING) - n.bytes
FROM @candidates n LEFT JOIN @stops s ON s.run = n.run
WHERE s.sequence IS NULL OR n.sequence < s.sequence;
UPDATE o
SET ${c.state} = N'processing', ${c.claimToken} = @token, ${c.claimedAt} = @now, ${c.updatedAt} = @now,
  ${c.leaseExpiresAt} = DATEADD(millisecond, @leaseMs, @now)
OUTPUT inserted.${c.sequence}, inserted.${c.id} INTO @claimed (sequence, id)
FROM ${table} o ${BY_ID.change} JOIN @free f ON o.${c.sequence} = f.sequence AND o.${c.id} = f.id
WHERE f.bytes_before < @maxBytes AND ${isDue};
IF (SELECT COUNT(*) FROM @claimed) < (SELECT COUNT(*) FROM @free WHERE bytes_before < @maxBytes) SET @lost = 1;
SELECT (SELECT COUNT(*) FROM @positions) AS positions, (SELECT MIN(sequence) FROM @positions) AS first_position,
  (SELECT COUNT(*) FROM @candidates) - (SELECT COUNT(*) FROM @free) AS held_back, @lost AS lost;
IF @lost = 1 ROLLBACK TRANSACTION; ELSE COMMIT TRANSACTION;
SELECT o.${c.id} AS id, o.${c.sequence} AS sequence, o.${c.topic} AS topic, ${overrideOf(c, "o")} AS destination_override, o.${c.key} AS [key],
  o.${c.aggregateType} AS aggregate_type, o.${c.payload} AS payload, o.${c.headers} AS headers, o.${c.attempt} AS attempt,
  o.${c.maxAttempts} AS max_attempts, o.${c.createdAt} AS created_at, ${expiresInMs(c.expiresAt, "o")} AS expires_in_ms
FROM @claimed n JOIN ${table} o ${BY_ID.read} ON o.${c.sequence} = n.sequence AND o.${c.id} = n.id
WHERE o.${c.claimToken} = @token
ORDER BY o.${c.sequence};`;

  const claimParameters = "from bigint, limit int, maxBytes bigint, token uuid, leaseMs ms, heldTokens list";

  const claims = (and: string, parameters: string): UnscopedClaims<Statement> => {
    const inOrder: Statement = statement(`outbox.claim(${parameters})`)(
      claim(`SELECT TOP (@limit) o.${c.sequence}, o.${c.id}
FROM ${table} o ${TO_CHANGE}
WHERE ${isDue} AND o.${c.sequence} >= @from${and}
ORDER BY o.${c.sequence}`),
    );

    /**
     * Leaves out the rows of a key behind one in backoff, or one that has been in delivery for a second. The scan takes
     * no locks: each row that it found behind a blocked key would stay locked.
     */
    const pastBlockedKeys: Statement = statement(`outbox.claim past blocked keys(${parameters})`)(
      claim(`SELECT TOP (@limit) o.${c.sequence}, o.${c.id}
FROM ${table} o ${TO_READ}
WHERE ${isDue} AND o.${c.sequence} >= @from${and}
  AND NOT EXISTS (SELECT 1 FROM (
    SELECT b.${c.key} AS blocked, b.${c.sequence} AS sequence FROM ${table} b ${TO_READ}
    WHERE b.${c.state} = N'pending' AND b.${c.attempt} > 0 AND b.${c.scheduledAt} > @now AND b.${c.key} IS NOT NULL
    UNION ALL
    SELECT b.${c.key}, b.${c.sequence} FROM ${table} b ${TO_READ}
    WHERE b.${c.state} = N'processing' AND b.${c.claimedAt} < DATEADD(second, -1, @now) AND b.${c.key} IS NOT NULL
  ) k WHERE k.blocked = o.${c.key} AND k.sequence < o.${c.sequence})
ORDER BY o.${c.sequence}`),
    );
    return {
      claimInOrder: () => inOrder,
      claimPastBlockedKeys: () => pastBlockedKeys,
      sweepPastBlockedKeys: pastBlockedKeys,
    };
  };

  const withoutSome = `
  AND NOT EXISTS (SELECT 1 FROM OPENJSON(@quarantined) WITH (id uniqueidentifier '$') x WHERE x.id = o.${c.id})
  AND NOT EXISTS (
    SELECT 1 FROM OPENJSON(@quarantined) WITH (id uniqueidentifier '$') x JOIN ${table} b ON b.${c.id} = x.id WHERE b.${c.key} = o.${c.key})`;

  /** Keys and destinations are compared letter for letter, whatever the collation; the dot keeps spaces at the end. */
  const isSame = (text: string, column: string): string =>
    `CONCAT(${text}, N'.') = CONCAT(${column}, N'.') ${COLLATED}`;
  const destinationsGiven = `
DECLARE @some TABLE (destination nvarchar(max) ${COLLATED});
INSERT INTO @some (destination) SELECT t.destination FROM OPENJSON(@destinations) WITH (destination nvarchar(max) ${COLLATED} '$') t;`;
  const keysGiven = `
DECLARE @exceptedKeys TABLE ([key] nvarchar(max) ${COLLATED});
INSERT INTO @exceptedKeys ([key]) SELECT t.[key] FROM OPENJSON(@exceptKeys) WITH ([key] nvarchar(max) ${COLLATED} '$') t;`;

  /**
   * Claims of a scope: `@to`, behind the last sequence to read, `@destinations` and `@exceptKeys`, JSON arrays,
   * `@quarantined` as in `withoutSome`. For the keys that they leave out see the claims of PostgreSQL.
   */
  const inScope = (which: ClaimScope["which"]): ScopedClaims<Statement> => {
    const goesThere = (row: string): string =>
      `${which === "only" ? "" : "NOT "}EXISTS (SELECT 1 FROM @some t WHERE ${isSame("t.destination", destinationIn(row))})`;
    const positions = (and: string, order: string): string => `SELECT TOP (@limit) o.${c.sequence}, o.${c.id}
FROM ${table} o ${TO_READ}
WHERE ${isDue} AND o.${c.sequence} >= @from AND o.${c.sequence} < @to${and}
  AND ${goesThere("o")}
  AND NOT EXISTS (SELECT 1 FROM @exceptedKeys x WHERE o.${c.key} IS NOT NULL AND ${isSame("x.[key]", `o.${c.key}`)})${withoutSome}
  AND NOT EXISTS (SELECT 1 FROM (
    SELECT TOP (1) CASE
      WHEN b.${c.state} = N'processing' THEN CASE WHEN b.${c.claimedAt} < DATEADD(second, -1, @now) THEN 1 ELSE 0 END
      WHEN b.${c.sequence} < @from OR b.${c.attempt} > 0 AND b.${c.scheduledAt} > @now THEN 1
      WHEN ${goesThere("b")} THEN 0 ELSE 1 END AS is_blocked
    FROM ${table} b ${TO_READ}
    WHERE b.${c.key} = o.${c.key} AND b.${c.key} IS NOT NULL AND b.${c.state} IN (N'pending', N'processing') AND b.${c.sequence} < o.${c.sequence}
      AND (b.${c.state} = N'processing' AND NOT EXISTS (SELECT 1 FROM @held h WHERE h.token = b.${c.claimToken})
        OR b.${c.state} = N'pending' AND (b.${c.attempt} > 0 OR ${hasCome(`b.${c.scheduledAt}`)}
          OR b.${c.scheduledAt} <= b.${c.createdAt} OR b.${c.scheduledAt} <= b.${c.updatedAt}))
    ORDER BY b.${c.sequence}
  ) k WHERE k.is_blocked = 1)
ORDER BY o.${order}`;
    const parameters = `${claimParameters}, to bigint, quarantined list, destinations list, exceptKeys list`;
    const inOrder: Statement = statement(`outbox.claim ${which} some destinations(${parameters})`)(
      claim(positions("", c.sequence), `${destinationsGiven}${keysGiven}`),
    );
    return {
      claim: () => inOrder,
      sweep: inOrder,
      sweepOn: inOrder,
      claimRetries: statement(`outbox.claim retries ${which} some destinations(${parameters}, withinMs ms)`)(
        claim(
          positions(
            `
  AND o.${c.attempt} > 0 AND o.${c.scheduledAt} <= @now AND o.${c.scheduledAt} > DATEADD(millisecond, -@withinMs, @now)`,
            c.scheduledAt,
          ),
          `${destinationsGiven}${keysGiven}`,
        ),
      ),
      dueBehind: statement(`outbox.due rows ${which} some destinations(from bigint, limit int, destinations list)`)(
        dueBehind(`\n  AND ${goesThere("o")}`, destinationsGiven),
      ),
    };
  };

  const dueBehind = (and = "", declarations = ""): string => `
${NOW}${declarations}
SELECT TOP (@limit) o.${c.id} AS id, CONVERT(nvarchar(20), o.${c.sequence}) AS sequence FROM ${table} o ${TO_READ}
WHERE ${isDue} AND o.${c.sequence} > @from${and}
ORDER BY o.${c.sequence};`;

  /** No addition may leave the range of the column: the row could never be settled. */
  const attemptsPlus = (added: string): string => `CASE WHEN o.${c.attempt} > ${MAX_INT} - ${added} THEN ${MAX_INT}
    WHEN o.${c.attempt} > 0 THEN o.${c.attempt} + ${added} ELSE ${added} END`;
  /** @param noted a further statement, behind the change */
  const settle = (noted: string): string => {
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
FROM ${table} o ${BY_ID.change} JOIN @settled r ON o.${c.id} = r.id
WHERE o.${c.claimToken} = r.token AND o.${c.state} = @processing;
${end}
SELECT id FROM @closed;`;
  };

  return {
    ...claims("", claimParameters),
    withoutSome: claims(withoutSome, `${claimParameters}, quarantined list`),
    only: inScope("only"),
    except: inScope("except"),

    dueBehind: statement("outbox.due rows(from bigint, limit int)")(dueBehind()),

    trial: statement("outbox.trial claim(ids list)")`
${BATCH}
${NOW}
${NAMED_IDS}
UPDATE o
SET ${c.state} = N'processing', ${c.claimToken} = o.${c.id}, ${c.claimedAt} = @now, ${c.updatedAt} = @now, ${c.leaseExpiresAt} = @now
FROM @named n JOIN ${table} o ${BY_ID.take} ON o.${c.id} = n.id
WHERE o.${c.state} = N'pending'
${ONE_BY_ONE};`,

    setBack: statement("outbox.set back the last sent row")(
      setBack(table, c, `f.${c.state} = N'sent'`, `f.${c.updatedAt} DESC, f.${c.sequence} DESC`),
    ),

    due: statement("outbox.due")`
${NOW}
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${table} o ${TO_READ} WHERE ${isDue}) THEN 1 ELSE 0 END AS answer;`,

    glance: statement("outbox.glance(overdueMs int)")`
${NOW}
DECLARE @before datetimeoffset(7) = DATEADD(millisecond, -@overdueMs, @now);
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${table} o ${TO_READ} WHERE ${isDue}
  AND (o.${c.scheduledAt} IS NULL OR o.${c.scheduledAt} <= @before) AND (o.${c.createdAt} IS NULL OR o.${c.createdAt} <= @before)) THEN 1 ELSE 0 END AS is_overdue;`,

    dueFrom: statement("outbox.due from a cursor(from bigint)")`
${NOW}
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${table} o ${TO_READ} WHERE ${isDue} AND o.${c.sequence} >= @from) THEN 1 ELSE 0 END AS answer;`,

    end: statement("outbox.end")`
SELECT COALESCE(MAX(o.${c.sequence}), 0) + 1 AS [end] FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'pending';`,

    pendingBehind: statement("outbox.pending row behind others(from bigint, rows int)")`
SELECT CONVERT(nvarchar(20), o.${c.sequence}) AS sequence FROM ${table} o ${TO_READ}
WHERE o.${c.state} = N'pending' AND o.${c.sequence} >= @from ORDER BY o.${c.sequence} OFFSET @rows ROWS FETCH NEXT 1 ROWS ONLY;`,

    // Only a user with rights on the whole server can see who has changed rows since.
    mayHaveChanged: undefined,
    mayLackTimes: undefined,

    behindUnfinished: statement("outbox.rows behind unfinished ones(ids list, tokens list, finished list)")`
DECLARE @processing nvarchar(20) = N'processing';
DECLARE @lookedAt datetimeoffset(7) = SYSUTCDATETIME();
SELECT p.${c.id} AS id
FROM OPENJSON(@ids) i JOIN OPENJSON(@tokens) t ON t.[key] = i.[key]
JOIN ${table} p ${BY_ID.read} ON p.${c.id} = CONVERT(uniqueidentifier, i.[value])
WHERE p.${c.claimToken} = CONVERT(uniqueidentifier, t.[value]) AND p.${c.state} = @processing AND p.${c.key} IS NOT NULL
  AND EXISTS (SELECT 1 FROM ${table} o
    WHERE o.${c.key} = p.${c.key} AND o.${c.key} IS NOT NULL AND o.${c.state} IN (N'pending', N'processing')
      AND o.${c.sequence} < p.${c.sequence} AND (o.${c.state} = N'processing' OR ${holdsBack})
      AND NOT EXISTS (SELECT 1 FROM OPENJSON(@finished) WITH (id uniqueidentifier '$') f WHERE f.id = o.${c.id}));`,

    /**
     * The state is compared with a variable, which matches no filtered index: rows are found by id. For `@rows` and
     * `@texts` see {@link textBatch}; a delay below 0 parks the row, a null reason keeps the last one.
     */
    settle: {
      plain: statement(`outbox.settle(${SETTLE_PARAMETERS})`)(settle("")),
      noting: statement(`outbox.settle with history(${SETTLE_PARAMETERS}, ${ENTRY_PARAMETERS})`)(
        settle(noteSettled(names)),
      ),
    },

    dialect: {
      scanOf([counts = [], rows = []], limit) {
        const [count] = counts;
        const positions = Number(count?.positions ?? 0);
        const first = count?.first_position;
        return {
          rows,
          more: positions >= limit || count?.lost === true,
          heldBack: Number(count?.held_back ?? 0),
          rowsRead: positions,
          first: first === null || first === undefined ? undefined : String(first),
        };
      },
      entryValues,
      settleValues: (settlements) => ({ ...textBatch(settlements.map(outcomeOf), SETTLED_TEXTS) }),
      closedOf: idsOf,
    },
  };
}

const SETTLE_PARAMETERS = "rows longText, texts bytes";
const SETTLED_TEXTS = ["reason"] as const;

const MAX_INT = 2 ** 31 - 1;

function outcomeOf(settlement: Outcome) {
  const delay = delayOf(settlement);
  return {
    id: settlement.id,
    token: settlement.claimToken,
    state: STATE_AFTER[settlement.kind],
    attempts: attemptsOf(settlement),
    delay: delay === null ? null : Math.min(delay, MAX_INT),
    reason: "reason" in settlement ? settlement.reason : null,
  };
}
