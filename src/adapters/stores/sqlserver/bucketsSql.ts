import { INBOX_COLUMNS } from "../../../model/rows.ts";
import { type StoredRow, SUPERSEDED } from "../../../ports/bucketStore.ts";
import { type BucketStatements, type InboxColumn, storedColumns, TIMES } from "../sql/buckets.ts";
import type { TableNames } from "../sql/names.ts";
import { NOT_OPEN } from "./errors.ts";
import {
  BATCH,
  BEGIN,
  COMMIT,
  ONE_BY_ONE,
  PARKED_AT,
  placeFrom,
  textBatch,
  textOf,
  timeOf,
  timeText,
} from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

const onBuckets = (declaration: string, timeoutMs = 10_000) => statement(`buckets.${declaration}`, { timeoutMs });

/**
 * In the transaction of a receipt, before its rows: fails unless each bucket of `@buckets` is open here, and each of
 * `@servers` is this one. The rows stay locked up to the commit, whatever the isolation of the database is: a close
 * waits for it.
 */
export function requireOpen({ operations: { bucket } }: TableNames): string {
  return `IF (SELECT COUNT(*) FROM OPENJSON(@buckets) WITH (bucket int '$') n
  JOIN ${bucket} b WITH (REPEATABLEREAD, ROWLOCK, FORCESEEK) ON b.bucket = n.bucket WHERE b.state = N'open')
  < (SELECT COUNT(*) FROM OPENJSON(@buckets)) OR EXISTS (SELECT 1 FROM OPENJSON(@servers) s WHERE s.[value] <> ${SERVER})
  THROW ${NOT_OPEN.number}, N'${NOT_OPEN.message}', 1;`;
}

/**
 * The server, by the time of its start, which makes `tempdb` anew, and that of the creation of this database. Managed
 * ones may not show the first.
 */
const SERVER = `(SELECT CONCAT(CONVERT(nvarchar(30), MAX(t.create_date), 126), N' ', CONVERT(nvarchar(30), MAX(d.create_date), 126))
  FROM sys.databases d LEFT JOIN sys.databases t ON t.name = N'tempdb' WHERE d.name = DB_NAME())`;

/** The statements on buckets, and on the rows that a move reads and copies. */
export function bucketStatements(names: TableNames): BucketStatements<Statement> {
  const table = names.operations.bucket;
  const [inbox, outbox, c, o] = [names.inboxTable, names.outboxTable, names.inbox, names.outbox];
  const copied = storedColumns(c);
  /** The rows `r` to copy. */
  const GIVEN_ROWS = `OPENJSON(@rows) WITH (${Object.keys(INBOX_COLUMNS).map(placeFrom).join(", ")}) r`;
  const hasKeyOfGiven = (row: string): string =>
    `${row}.${c.source} = ${textOf("source", "nvarchar(4000)")} AND ${row}.${c.idempotencyKey} = ${textOf("idempotencyKey", "nvarchar(4000)")}`;
  const NOW = "CONVERT(datetimeoffset(7), SYSUTCDATETIME())";
  const until = `DATEADD(millisecond, @leaseMs, ${NOW})`;
  const FREE = "token = NULL, lease_until = NULL";
  const OPENED = `state = N'open', other_cell = NULL, ${FREE}`;
  /** What arrives may still be opened. */
  const isNewer = "(b.epoch < g.epoch OR (b.epoch = g.epoch AND b.state = N'arriving'))";
  /** The parameters of statements on buckets with their epochs. */
  const GIVEN = `DECLARE @given TABLE (bucket int NOT NULL PRIMARY KEY, epoch bigint NOT NULL);
INSERT INTO @given (bucket, epoch)
SELECT CONVERT(int, n.[value]), CONVERT(bigint, e.[value]) FROM OPENJSON(@buckets) n JOIN OPENJSON(@epochs) e ON e.[key] = n.[key];`;
  /** Of a bucket `b`, the item of a list that goes with the buckets. */
  const givenIn = (
    list: string,
  ): string => `(SELECT v.[value] FROM OPENJSON(@buckets) n JOIN OPENJSON(@${list}) v ON v.[key] = n.[key]
    WHERE CONVERT(int, n.[value]) = b.bucket)`;
  /**
   * The connection goes back into the pool: it must wait for locks as before.
   *
   * @param set besides the time of the change
   * @param from the buckets `b` to change
   */
  const changed = (set: string, from: string): string => `
SET LOCK_TIMEOUT ${LONGEST_RECEIPT_MS};
DECLARE @changed TABLE (bucket int NOT NULL, epoch bigint NOT NULL);
BEGIN TRY
  UPDATE b SET changed_at = ${NOW}, ${set} OUTPUT inserted.bucket, inserted.epoch INTO @changed (bucket, epoch)
  FROM ${table} b WITH (ROWLOCK) ${from};
END TRY
BEGIN CATCH
  SET LOCK_TIMEOUT -1;
  THROW;
END CATCH;
SET LOCK_TIMEOUT -1;
SELECT c.bucket, c.epoch FROM @changed c;`;
  /** @param condition besides the buckets */
  const change = (set: string, condition: string): string =>
    `${BATCH}${changed(set, `WHERE b.bucket IN (SELECT n.bucket FROM OPENJSON(@buckets) WITH (bucket int '$') n) AND ${condition}`)}`;
  /** @param condition besides the buckets, on which `g` has the epoch of each */
  const changeGiven = (set: string, condition: string): string =>
    `${BATCH}\n${GIVEN}${changed(set, `JOIN @given g ON g.bucket = b.bucket WHERE ${condition}`)}`;

  const dueInMs = (time: string): string =>
    `CASE WHEN ${time} > ${NOW} THEN DATEDIFF_BIG(millisecond, ${NOW}, ${time}) ELSE 0 END AS due_in_ms`;
  const keys = (row: string): string =>
    `${row}.${c.source} AS source, ${row}.${c.idempotencyKey} AS idempotency_key, ${row}.${c.aggregateId} AS aggregate_id`;
  const waiting = (consumption: string, time: string): string => `
SELECT TOP (@limit) i.${c.id} AS id, ${keys("i")}, ${timeText(`i.${time}`)} AS time, ${dueInMs(`i.${c.scheduledAt}`)}
FROM ${inbox} i WHERE i.${c.state} = N'pending' AND i.${c.consumption} = N'${consumption}'`;
  const behind = (time: string): string =>
    `(i.${time} > ${timeOf("@fromTime")} OR (i.${time} = ${timeOf("@fromTime")} AND i.${c.id} > @fromId))`;

  /** One index holds both states: a row that is claimed or released meanwhile stays at its place. */
  const keyed = (after: string): string => `
SELECT w.id, w.[key], CONVERT(nvarchar(20), w.sequence) AS sequence, w.state, w.attempt, w.is_parked, w.due_in_ms, ${keys("i")}
FROM (
  SELECT TOP (@limit) o.${o.id} AS id, o.${o.key} AS [key], o.${o.sequence} AS sequence, o.${o.state} AS state, o.${o.attempt} AS attempt,
    CASE WHEN o.${o.attempt} > 0 AND o.${o.scheduledAt} = ${PARKED_AT} THEN 1 ELSE 0 END AS is_parked, ${dueInMs(`o.${o.scheduledAt}`)}
  FROM ${outbox} o
  WHERE o.${o.state} IN (N'pending', N'processing') AND o.${o.key} IS NOT NULL${after}
  ORDER BY o.${o.key}, o.${o.sequence}
) w LEFT JOIN ${inbox} i ON i.${c.id} = w.id
ORDER BY w.[key], w.sequence;`;

  return {
    all: onBuckets("all")`
SELECT s.server, b.bucket, b.state, b.epoch, b.other_cell, b.token, CASE WHEN b.lease_until < ${NOW} THEN 1 ELSE 0 END AS has_ended
FROM (SELECT ${SERVER} AS server) s LEFT JOIN ${table} b ON 1 = 1;`,

    open: onBuckets("open(buckets list, epochs list)")`${BATCH}
${BEGIN}
${GIVEN}
UPDATE b SET ${OPENED}, epoch = g.epoch, changed_at = ${NOW}
FROM ${table} b WITH (UPDLOCK, HOLDLOCK) JOIN @given g ON g.bucket = b.bucket WHERE ${isNewer};
INSERT INTO ${table} (bucket, state, epoch, changed_at)
SELECT g.bucket, N'open', g.epoch, ${NOW} FROM @given g
WHERE NOT EXISTS (SELECT 1 FROM ${table} b WITH (UPDLOCK, HOLDLOCK) WHERE b.bucket = g.bucket);
${COMMIT}`,

    close: onBuckets("close(buckets list, to text, token uuid, leaseMs ms)")(
      change(`state = N'moving', other_cell = @to, token = @token, lease_until = ${until}`, "b.state = N'open'"),
    ),

    renew: onBuckets("renew(token uuid, leaseMs ms)")`${BATCH}
UPDATE b SET lease_until = ${until} FROM ${table} b WHERE b.token = @token AND b.state = N'moving';
SELECT b.bucket, b.epoch FROM ${table} b WHERE b.token = @token AND b.state = N'moving';`,

    reopen: onBuckets("reopen(buckets list, token uuid)")(
      change(OPENED, `b.state = N'moving' AND (b.token = @token OR (@token IS NULL AND b.lease_until < ${NOW}))`),
    ),

    expect: onBuckets("expect(buckets list, epochs list, from text, token uuid, server text)")`${BATCH}
${BEGIN}
${GIVEN}
IF @server <> ${SERVER} DELETE FROM @given;
UPDATE b SET state = N'arriving', epoch = g.epoch, other_cell = @from, token = @token, lease_until = NULL, changed_at = ${NOW}
FROM ${table} b WITH (UPDLOCK, HOLDLOCK) JOIN @given g ON g.bucket = b.bucket WHERE ${isNewer};
INSERT INTO ${table} (bucket, state, epoch, other_cell, token, changed_at)
SELECT g.bucket, N'arriving', g.epoch, @from, @token, ${NOW} FROM @given g
WHERE NOT EXISTS (SELECT 1 FROM ${table} b WITH (UPDLOCK, HOLDLOCK) WHERE b.bucket = g.bucket);
SELECT b.bucket, b.epoch FROM ${table} b JOIN @given g ON g.bucket = b.bucket
WHERE b.epoch = g.epoch AND b.state = N'arriving' AND b.token = @token;
${COMMIT}`,

    leave: onBuckets("leave(buckets list, token uuid)")(
      change("state = N'left', epoch = b.epoch + 1, lease_until = NULL", "b.state = N'moving' AND b.token = @token"),
    ),

    arrive: onBuckets("arrive(buckets list, epochs list, token uuid)")(
      changeGiven(OPENED, "b.epoch = g.epoch AND (b.state = N'open' OR (b.state = N'arriving' AND b.token = @token))"),
    ),

    takeBack: onBuckets("take back(buckets list, epochs list, nextEpochs list)")(
      changeGiven(
        `epoch = CONVERT(bigint, ${givenIn("nextEpochs")}), ${OPENED}`,
        "b.epoch = g.epoch AND b.state = N'left'",
      ),
    ),

    supersede: onBuckets("supersede(buckets list, epochs list, cells list)")(
      changeGiven(
        `state = N'left', epoch = g.epoch, other_cell = ${givenIn("cells")}, token = '${SUPERSEDED}', lease_until = NULL`,
        "b.epoch < g.epoch AND b.state IN (N'open', N'moving')",
      ),
    ),

    unfinished: {
      // The only index on rows that wait for the relay begins with the time at which they become due.
      push: onBuckets("waiting rows(fromTime text, fromId uuid, limit int)")`${waiting("push", c.scheduledAt)}
  AND ${behind(c.scheduledAt)}
ORDER BY i.${c.scheduledAt}, i.${c.id};`,
      pull: onBuckets(
        "pull rows(fromSource text, fromTime text, fromId uuid, limit int)",
      )`${waiting("pull", c.createdAt)}
  AND (i.${c.source} > @fromSource OR (i.${c.source} = @fromSource AND ${behind(c.createdAt)}))
ORDER BY i.${c.source}, i.${c.createdAt}, i.${c.id};`,
      keyed: onBuckets("keyed rows(limit int)")(keyed("")),
      keyedAfter: onBuckets("keyed rows behind a row(fromKey text, fromSequence bigint, limit int)")(
        keyed(` AND (o.${o.key} > @fromKey OR (o.${o.key} = @fromKey AND o.${o.sequence} > @fromSequence))`),
      ),
    },

    awaitReceipts: onBuckets("await receipts")`${BATCH}
SET LOCK_TIMEOUT ${LONGEST_RECEIPT_MS};
BEGIN TRY
  UPDATE b SET changed_at = b.changed_at FROM ${table} b WITH (ROWLOCK);
END TRY
BEGIN CATCH
  SET LOCK_TIMEOUT -1;
  THROW;
END CATCH;
SET LOCK_TIMEOUT -1;`,

    before: onBuckets("time before(ms ms)")`
SELECT ${timeText(`DATEADD(millisecond, -@ms, ${NOW})`)} AS time, DATEDIFF_BIG(millisecond, CONVERT(datetimeoffset(7), N'1970-01-01'), ${NOW}) AS now_ms;`,

    finished: onBuckets("finished rows(fromTime text, fromId uuid, limit int)", 60_000)`
SELECT TOP (@limit) i.${c.id} AS id, ${keys("i")}, ${timeText(`i.${c.createdAt}`)} AS time, DATALENGTH(i.${c.payload}) AS bytes
FROM ${inbox} i WHERE i.${c.state} IN (N'processed', N'dead') AND ${behind(c.createdAt)}
ORDER BY i.${c.createdAt}, i.${c.id};`,

    read: onBuckets("read(ids list)", 60_000)`
SELECT ${copied
      .map(
        ({ key, column }) => `${TIMES.has(key) ? timeText(`i.${column}`) : `i.${column}`} AS [${INBOX_COLUMNS[key]}]`,
      )
      .join(", ")}
FROM OPENJSON(@ids) WITH (id uniqueidentifier '$') n JOIN ${inbox} i ON i.${c.id} = n.id
WHERE i.${c.state} IN (N'processed', N'dead') ${ONE_BY_ONE};`,

    // The places of both keys stay locked: of two movers one finds what the other has stored.
    copy: onBuckets("copy(rows longText, texts bytes)", 60_000)`${BATCH}
${BEGIN}
DECLARE @stored TABLE (id uniqueidentifier NOT NULL);
UPDATE i SET ${copied.map(({ key, column }) => `${column} = ${stored(key)}`).join(", ")}
OUTPUT inserted.${c.id} INTO @stored (id)
FROM ${GIVEN_ROWS}
JOIN ${inbox} i WITH (UPDLOCK, HOLDLOCK, FORCESEEK) ON ${hasKeyOfGiven("i")}
WHERE i.${c.state} IN (N'processed', N'dead') AND (i.${c.createdAt} < ${stored("createdAt")}
  OR (i.${c.createdAt} = ${stored("createdAt")} AND i.${c.processedAt} < ${stored("processedAt")})) ${ONE_BY_ONE};
INSERT INTO ${inbox} (${copied.map(({ column }) => column).join(", ")})
OUTPUT inserted.${c.id} INTO @stored (id)
SELECT ${copied.map(({ key }) => stored(key)).join(", ")}
FROM ${GIVEN_ROWS}
WHERE NOT EXISTS (SELECT 1 FROM ${inbox} i WITH (UPDLOCK, HOLDLOCK, FORCESEEK) WHERE i.${c.id} = ${stored("id")})
  AND NOT EXISTS (SELECT 1 FROM ${inbox} k WITH (UPDLOCK, HOLDLOCK, FORCESEEK) WHERE ${hasKeyOfGiven("k")});
IF EXISTS (SELECT 1 FROM ${GIVEN_ROWS} JOIN @stored s ON s.id = ${stored("id")}
  WHERE NOT EXISTS (SELECT 1 FROM ${inbox} i WHERE i.${c.id} = s.id AND ${hasKeyOfGiven("i")} AND i.${c.state} IN (N'processed', N'dead')))
  THROW 51016, N'svc: a trigger leaves out or changes copied rows', 1;
SELECT s.id FROM @stored s;
${COMMIT}`,

    held: onBuckets("held keys(rows longText, texts bytes)")`
SELECT ${stored("id")} AS id FROM ${GIVEN_ROWS} WHERE EXISTS (SELECT 1 FROM ${inbox} i WHERE ${hasKeyOfGiven("i")});`,

    dialect: {
      isMissingRight: ({ message }) => /\(error 2(29|30)\)$/.test(message),
      rowsOf(rows: readonly StoredRow[]) {
        const keys = Object.keys(INBOX_COLUMNS);
        const whole = rows.map((row) => Object.fromEntries(keys.map((key) => [key, row[key] ?? null])));
        return { ...textBatch(whole, keys) };
      },
    },
  };
}

/** A close waits as long for a receipt. */
const LONGEST_RECEIPT_MS = 1000;

function stored(key: InboxColumn): string {
  if (TIMES.has(key)) return timeOf(textOf(key, "nvarchar(4000)"));
  if (key === "id" || key === "claimToken") return `CONVERT(uniqueidentifier, ${textOf(key, "nvarchar(4000)")})`;
  return key === "attempt" ? `CONVERT(int, ${textOf(key, "nvarchar(4000)")})` : textOf(key);
}
