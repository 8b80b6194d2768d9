import { v7 as uuidv7 } from "uuid";
import { StoreError } from "../../../model/errors.ts";
import type { InsertResult, NewInboxRow, Schedule } from "../../../model/rows.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { ReceiptCommands } from "../sql/inbox.ts";
import type { TableNames } from "../sql/names.ts";
import { retried } from "../sql/reserve.ts";
import { inKeyOrder } from "../sql/rows.ts";
import { BATCH, COLLATED, NOW, placeFrom, TO_READ, textBatch, textOf, timeOf } from "./fragments.ts";
import type { SqlServerPool } from "./pool.ts";
import { answersOf, type Statement, statement } from "./statement.ts";

export class SqlServerReceipt implements ReceiptCommands {
  readonly #pool: SqlServerPool;
  readonly #log: Log;
  readonly #insert: Statement;
  readonly #copyLast: Statement;
  /** The latest `created_at` that this process gave, in microseconds since 1970. */
  #latest: number | null = null;

  constructor(pool: SqlServerPool, names: TableNames, log: Log) {
    this.#pool = pool;
    this.#log = log;
    this.#insert = insertStatement(names);
    this.#copyLast = copyLastStatement(names);
  }

  /** Tries again when another batch has stored a key of this one meanwhile: the next try finds it. */
  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    return await retried(this.#log, () => this.#tryInsert(rows, this.#pool), isDuplicateKey);
  }

  async insertWhole(rows: readonly NewInboxRow[], isTrial: boolean): Promise<readonly InsertResult[]> {
    if (!isTrial) return await this.insert(rows);
    const trial = () => this.#pool.trial(this.#insert, (transaction) => this.#tryInsert(rows, transaction));
    return await retried(this.#log, trial, isDuplicateKey);
  }

  async insertAccepted(): Promise<boolean> {
    const id = uuidv7();
    return (await this.#pool.runAndRollBack((run) => run(this.#copyLast, { id }))).length > 0;
  }

  async #tryInsert(
    rows: readonly NewInboxRow[],
    database: Pick<SqlServerPool, "runAll">,
  ): Promise<readonly InsertResult[]> {
    if (rows.length === 0) return [];
    const firsts = inKeyOrder(firstOfEachKey(rows.map(insertedRow)));
    const results = await database.runAll(this.#insert, {
      ...textBatch(
        firsts.map((row, turn) => ({ ...row, turn })),
        INSERTED_TEXTS,
      ),
      latest: this.#latest,
    });
    const [latest, ids] = answersOf(results, 2);
    this.#remember(latest?.[0]?.latest);
    const stored = new Set((ids ?? []).map((row) => row.id));
    return rows.map((row) => (stored.has(row.id) ? STORED : DUPLICATE));
  }

  /** @param latest of one batch; batches that ran at once answer in any order */
  #remember(latest: unknown): void {
    if (latest === null || latest === undefined) return;
    this.#latest = Math.max(this.#latest ?? 0, Number(latest));
  }
}

const isDuplicateKey = (error: unknown): boolean => error instanceof StoreError && error.code === "duplicate";

const STORED: InsertResult = { kind: "stored" };
const DUPLICATE: InsertResult = { kind: "duplicate" };

function insertedRow({ schedule, expiry, ...row }: NewInboxRow, position: number) {
  return {
    ...row,
    position,
    ...(schedule === undefined ? {} : scheduleValues(schedule)),
    expiresAt: timeText(expiry?.at),
    liveMs: expiry?.afterMs ?? null,
    headers: JSON.stringify(row.headers),
  };
}

const scheduleValues = ({ delayMs, publishedAt, notBefore }: Schedule) => ({
  // An `int` of milliseconds ends after 24 days.
  delaySeconds: Math.ceil(delayMs / 1000),
  publishedAt: timeText(publishedAt),
  notBefore: timeText(notBefore),
});

const timeText = (ms: number | null | undefined): string | null =>
  ms === null || ms === undefined ? null : new Date(ms).toISOString();

type InsertedRow = ReturnType<typeof insertedRow>;

function firstOfEachKey(rows: readonly InsertedRow[]): readonly InsertedRow[] {
  const firsts = new Map<string, InsertedRow>();
  for (const row of rows) {
    const key = `${row.source.length} ${row.source} ${row.idempotencyKey}`;
    if (!firsts.has(key)) firsts.set(key, row);
  }
  return [...firsts.values()];
}

const INSERTED_TEXTS = [
  "source",
  "idempotencyKey",
  "aggregateId",
  "eventType",
  "payload",
  "correlationId",
  "headers",
  "lastError",
] as const;

/**
 * `OUTPUT` goes into a table variable, as tables with triggers require.
 *
 * `@rows` and `@texts` (see {@link textBatch}): rows in the order of their keys, with `position` in the order of
 * arrival, from 0; `@latest` the latest `created_at` of this process, in microseconds since 1970, null before the
 * first. Returns two result sets: the new `latest`, then the ids stored.
 *
 * Each row is a microsecond younger than the one before, which is less than it takes to store a row: times order the
 * rows, as a `uniqueidentifier` does not sort like its text. The server's clock may stop for milliseconds, so a batch
 * is also younger than the last one of its process, unless the clock was set back.
 *
 * All batches insert their keys in one order, so that no two deadlock, and the insert waits for a key that another
 * batch is storing. A key stored between the check and the insert is a unique violation.
 *
 * @param names already quoted
 */
export function insertStatement(names: TableNames): Statement {
  const { inboxTable: inbox, inbox: c } = names;
  return statement("inbox.insert(rows longText, texts bytes, latest bigint)", { use: "receipt" })`
${BATCH}
${NOW}
DECLARE @ahead bigint = @latest - ${microsecondsOf("@now")};
DECLARE @stored TABLE (id uniqueidentifier NOT NULL, created_at datetimeoffset(7) NOT NULL);
IF @ahead BETWEEN 0 AND 1000000 SET @now = DATEADD(microsecond, @ahead + 1, @now);
INSERT INTO ${inbox} (${c.id}, ${c.source}, ${c.idempotencyKey}, ${c.aggregateId}, ${c.eventType}, ${c.payload}, ${c.state},
  ${c.consumption}, ${c.correlationId}, ${c.headers}, ${c.lastError}, ${c.createdAt}, ${c.scheduledAt}, ${c.processedAt}${c.expiresAt === null ? "" : `, ${c.expiresAt}`})
OUTPUT inserted.${c.id}, inserted.${c.createdAt} INTO @stored (id, created_at)
SELECT r.id, ${textOf("source")}, ${textOf("idempotencyKey")}, ${textOf("aggregateId")},
  ${textOf("eventType")}, ${textOf("payload")}, r.state, r.consumption,
  ${textOf("correlationId")}, ${textOf("headers")}, ${textOf("lastError")},
  ${RECEIVED}, ${DUE}, CASE WHEN r.state = N'dead' THEN @now END${c.expiresAt === null ? "" : EXPIRES_AT}
FROM OPENJSON(@rows) WITH (turn int '$.turn', position int '$.position', id uniqueidentifier '$.id', state nvarchar(20) ${COLLATED} '$.state',
  consumption nvarchar(20) ${COLLATED} '$.consumption', delay_seconds int '$.delaySeconds',
  published_at nvarchar(40) ${COLLATED} '$.publishedAt', not_before nvarchar(40) ${COLLATED} '$.notBefore', expires_at nvarchar(40) ${COLLATED} '$.expiresAt', live_ms bigint '$.liveMs',
  ${INSERTED_TEXTS.map(placeFrom).join(", ")}) r
WHERE NOT EXISTS (
  SELECT 1 FROM ${inbox} i WITH (READCOMMITTEDLOCK, FORCESEEK)
  WHERE i.${c.source} = ${textOf("source", "nvarchar(4000)")}
    AND i.${c.idempotencyKey} = ${textOf("idempotencyKey", "nvarchar(4000)")})
ORDER BY r.turn;
SELECT ${microsecondsOf("MAX(s.created_at)")} AS latest FROM @stored s;
SELECT s.id FROM @stored s;`;
}

/** A copy of the row that was processed last, received now. Returns its `id`; no row without one. */
export function copyLastStatement({ inboxTable: inbox, inbox: c }: TableNames): Statement {
  const kept = [c.source, c.aggregateId, c.eventType, c.payload, c.consumption, c.correlationId, c.headers];
  return statement("inbox.copy the last processed row(id uuid)")`
${BATCH}
${NOW}
DECLARE @copied TABLE (id uniqueidentifier NOT NULL);
INSERT INTO ${inbox} (${c.id}, ${c.idempotencyKey}, ${c.state}, ${c.createdAt}, ${c.scheduledAt}, ${kept.join(", ")})
OUTPUT inserted.${c.id} INTO @copied (id)
SELECT TOP (1) @id, CONVERT(nvarchar(36), @id), N'pending', @now, @now, ${kept.map((name) => `f.${name}`).join(", ")}
FROM ${inbox} f ${TO_READ} WHERE f.${c.state} = N'processed' ORDER BY f.${c.createdAt} DESC, f.${c.id} DESC;
SELECT k.id FROM @copied k;`;
}

const RECEIVED = "DATEADD(microsecond, r.position, @now)";

const DUE = `(SELECT MAX(e.at) FROM (VALUES (${RECEIVED}), (${timeOf("r.not_before")}),
    (DATEADD(second, COALESCE(r.delay_seconds, 0), (SELECT MIN(p.at) FROM (VALUES (@now), (${timeOf("r.published_at")})) p (at))))) e (at))`;

/** The earlier of a time and a time to live, which is added in days and the rest of a day: see {@link AGE_BOUND}. */
const EXPIRES_AT = `,
  (SELECT MIN(e.at) FROM (VALUES (${timeOf("r.expires_at")}),
    (DATEADD(day, r.live_ms / 86400000, DATEADD(millisecond, r.live_ms % 86400000, @now)))) e (at))`;

/** Since 1970, so that JavaScript numbers hold them. */
function microsecondsOf(time: string): string {
  return `DATEDIFF_BIG(microsecond, CONVERT(datetimeoffset(7), N'1970-01-01'), ${time})`;
}
