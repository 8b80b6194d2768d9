import type { ClientBase } from "pg";
import { v7 as uuidv7 } from "uuid";
import { deliveryId } from "../../../model/deliveries.ts";
import { StoreError } from "../../../model/errors.ts";
import type { InsertResult, NewInboxRow } from "../../../model/rows.ts";
import { listOfMessage, renderTopic } from "../../../model/topics.ts";
import type { RelayRules } from "../../../ports/store.ts";
import { type ReceiptCommands, renderHeaders } from "../sql/inbox.ts";
import type { TableNames } from "../sql/names.ts";
import { inKeyOrder, type Row, type Values } from "../sql/rows.ts";
import type { ColumnTypes } from "./columns.ts";
import type { PostgresPool } from "./pool.ts";
import { byIndex, runIn, type Statement, statement, textArray, uuidArray } from "./statement.ts";

export class PostgresReceipt implements ReceiptCommands {
  readonly #pool: PostgresPool;
  readonly #sql: ReturnType<typeof receiptStatements>;

  constructor(pool: PostgresPool, sql: ReturnType<typeof receiptStatements>) {
    this.#pool = pool;
    this.#sql = sql;
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    if (rows.length === 0) return [];
    const { statement, values } = this.#insertOf(rows);
    const stored = await this.#pool.change(statement, values);
    if (stored === rows.length) return rows.map(() => STORED);
    return outcomesOf(rows, await this.#pool.run(this.#sql.present, keyValues(rows)));
  }

  async insertWhole(rows: readonly NewInboxRow[], isTrial: boolean): Promise<readonly InsertResult[]> {
    if (rows.length === 0) return [];
    const { statement, values } = this.#insertOf(rows);
    const insert = async (client: ClientBase): Promise<readonly InsertResult[]> => {
      const { rowCount } = await runIn(client, statement, values);
      if (rowCount === rows.length) return rows.map(() => STORED);
      const outcomes = outcomesOf(rows, (await runIn(client, this.#sql.present, keyValues(rows))).rows as Row[]);
      if (outcomes.includes(SKIPPED)) throw new StoreError("skipped", SKIPPED.reason);
      return outcomes;
    };
    return await (isTrial ? this.#pool.trial(statement, insert) : this.#pool.transaction(statement, insert));
  }

  async insertAccepted(): Promise<boolean> {
    const id = uuidv7();
    return (await this.#pool.runAndRollBack((run) => run(this.#sql.copyLast, { id }))).length > 0;
  }

  #insertOf(rows: readonly NewInboxRow[]): { readonly statement: Statement; readonly values: Values } {
    const isAlike = rows.every((row) => !isTimed(row) && SHARED.every((name) => row[name] === rows[0]?.[name]));
    return {
      statement: isAlike ? this.#sql.insert : this.#sql.insertMixed,
      values: insertValues(inKeyOrder(rows), isAlike),
    };
  }
}

const STORED: InsertResult = { kind: "stored" };
const DUPLICATE: InsertResult = { kind: "duplicate" };
const SKIPPED = {
  kind: "refused",
  reason: "inbox.insert: a trigger on the inbox table skips the row: it returns NULL before the insert",
  mayPassLater: true,
} as const satisfies InsertResult;

const keyValues = (rows: readonly NewInboxRow[]): Values => ({
  ids: uuidArray(rows.map(({ id }) => id)),
  sources: textArray(rows.map(({ source }) => source)),
  idempotencyKeys: textArray(rows.map(({ idempotencyKey }) => idempotencyKey)),
});

/**
 * Ids are new: a row with one was stored just now. A row whose key is absent too was dropped, or the row with the key
 * was deleted since: its sender repeats it.
 *
 * @param present rows of `inbox.present`
 */
function outcomesOf(rows: readonly NewInboxRow[], present: readonly Row[]): readonly InsertResult[] {
  const known = new Map(present.map(({ id, is_stored }) => [id, is_stored === true ? STORED : DUPLICATE]));
  return rows.map(({ id }) => known.get(id) ?? SKIPPED);
}

/** The columns that the rows of a batch mostly have in common. */
const SHARED = ["source", "state", "consumption", "lastError"] as const;

function insertValues(rows: readonly NewInboxRow[], isAlike: boolean): Values {
  const column = columnOf(rows);
  return {
    ...ownValues(rows),
    ...(isAlike ? {} : timeValues(column)),
    ...Object.fromEntries(SHARED.map((name) => [name, isAlike ? rows[0]?.[name] : column((row) => row[name])])),
  };
}

/** @param rows `inKeyOrder` */
export function receivedValues(rows: readonly NewInboxRow[]): Values {
  return { ...ownValues(rows), sources: columnOf(rows)(({ source }) => source) };
}

/**
 * Topics, headers and destinations of the outbox rows. For several destinations, a JSON list of names that the receipt
 * expands, empty if the poller does.
 *
 * @param rows `inKeyOrder`
 */
export function renderedValues(rows: readonly NewInboxRow[], relay: RelayRules): Values {
  const { topics, droppedHeaders, routing } = relay;
  const rendered = rows.map(({ source, eventType }) => renderTopic(topics[source] ?? [], eventType));
  const lists = rows.map((row) => listOfMessage(row, relay));
  const deliveries = rows.flatMap(({ id }, n) =>
    (lists[n] ?? []).map((destination) => ({ destination, message: id, id: deliveryId(id, destination) })),
  );
  return {
    topics: textArray(rendered),
    outboxHeaders: columnOf(rows)((row) => JSON.stringify(renderHeaders(row, droppedHeaders))),
    destinations: textArray(rendered.map((topic) => routing?.destinationOf(topic) ?? null)),
    lists: textArray(lists.map((list) => (list?.length === 0 ? "" : list && JSON.stringify(list)) ?? null)),
    deliveryMessages: uuidArray(deliveries.map(({ message }) => message)),
    deliveryIds: uuidArray(deliveries.map(({ id }) => id)),
    deliveryDestinations: textArray(deliveries.map(({ destination }) => destination)),
  };
}

function ownValues(rows: readonly NewInboxRow[]): Values {
  const column = columnOf(rows);
  return {
    ids: uuidArray(rows.map((row) => row.id)),
    idempotencyKeys: column((row) => row.idempotencyKey),
    aggregateIds: column((row) => row.aggregateId),
    eventTypes: column((row) => row.eventType),
    payloads: column((row) => row.payload),
    correlationIds: column((row) => row.correlationId),
    headers: column(headersText()),
  };
}

const columnOf = (rows: readonly NewInboxRow[]) => (value: (row: NewInboxRow) => string | null) =>
  textArray(rows.map(value));

const isTimed = ({ schedule, expiry }: NewInboxRow): boolean => schedule !== undefined || expiry !== undefined;

function timeValues(column: (value: (row: NewInboxRow) => string | null) => Buffer): Values {
  const text = (ms: number | null | undefined) => (ms === null || ms === undefined ? null : String(ms));
  return {
    delayMs: column(({ schedule }) => text(schedule?.delayMs ?? 0)),
    publishedMs: column(({ schedule }) => text(schedule?.publishedAt)),
    notBeforeMs: column(({ schedule }) => text(schedule?.notBefore)),
    expiresMs: column(({ expiry }) => text(expiry?.at)),
    liveMs: column(({ expiry }) => text(expiry?.afterMs)),
  };
}

/** The headers of a row as JSON. The messages of one request share theirs. */
function headersText(): (row: NewInboxRow) => string {
  let headers: NewInboxRow["headers"] | undefined;
  let text = "";
  return (row) => {
    if (row.headers !== headers) [headers, text] = [row.headers, JSON.stringify(row.headers)];
    return text;
  };
}

/**
 * @param mayBeCitus its command tag counts the rows given to an insert with ON CONFLICT, and only with RETURNING those
 *   stored. Elsewhere that would cost a receipt of 20 messages 4 %
 */
export function receiptStatements(names: TableNames, types: ColumnTypes, mayBeCitus: boolean) {
  const inbox = names.inboxTable;
  const c = names.inbox;
  /**
   * From the source ($8) on, each parameter is one value for all rows or an array: a shared value costs an eighth of an
   * array. Returns only the number of rows stored.
   *
   * The rows of a batch have one time, read when the insert has its locks: the statement may have begun minutes
   * earlier, or later if the clock was set back, which would delay the row.
   */
  const insert = (shared: boolean): string => {
    const column = (parameter: number, name: string): string => (shared ? `$${parameter}::text` : `r.${name}`);
    const expires = shared ? null : c.expiresAt;
    return `
WITH received AS MATERIALIZED (SELECT clock_timestamp() AS at)
INSERT INTO ${inbox} (${c.id}, ${c.source}, ${c.idempotencyKey}, ${c.aggregateId}, ${c.eventType}, ${c.payload}, ${c.state},
  ${c.consumption}, ${c.correlationId}, ${c.headers}, ${c.lastError}, ${c.processedAt}, ${c.createdAt}, ${c.scheduledAt}${expires === null ? "" : `, ${expires}`})
SELECT r.id, ${column(8, "source")}, r.idempotency_key, r.aggregate_id, r.event_type, r.payload::${types.inboxPayload}, ${column(9, "state")},
  ${column(10, "consumption")}, r.correlation_id, r.headers::${types.inboxHeaders}, ${column(11, "last_error")},
  CASE ${column(9, "state")} WHEN 'dead' THEN now() END, (SELECT at FROM received),
  ${shared ? "(SELECT at FROM received)" : DUE}${expires === null ? "" : EXPIRES_AT}
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]${
      shared ? "" : `, ${Array.from({ length: 9 }, (_, n) => `$${n + 8}::text[]`).join(", ")}`
    }) AS r(id, idempotency_key, aggregate_id, event_type, payload, correlation_id, headers${
      shared
        ? ""
        : ", source, state, consumption, last_error, delay_ms, published_ms, not_before_ms, expires_ms, live_ms"
    })
ON CONFLICT (${c.source}, ${c.idempotencyKey}) DO NOTHING${mayBeCitus ? " RETURNING NULL" : ""}`;
  };
  return {
    insert: statement(`inbox.insert(${INSERT_PARAMETERS})`, { use: "receipt" })(insert(true)),
    /**
     * Of several kinds, or with a schedule or an expiry for some; an expiry counts if the table has a column for it.
     */
    insertMixed: statement(`inbox.insert of several kinds(${INSERT_PARAMETERS}, ${TIME_PARAMETERS})`, {
      use: "receipt",
    })(insert(false)),
    present: presentStatement(names, types),
    copyLast: copyLastStatement(names),
  } as const satisfies Record<string, Statement>;
}

/**
 * Which rows exist, and which only by their key, by a commit that the synchronous standby has. If a session ended, or
 * its server restarted, while the commit waited for the standby, its row is visible without that. A message in the log
 * makes this transaction wait for everything before it, which reading does not.
 */
function presentStatement({ inboxTable: inbox, inbox: c }: TableNames, types: ColumnTypes): Statement {
  return byIndex("inbox.present(ids, sources, idempotencyKeys)", { use: "receipt" })`
SELECT r.id::text AS id, r.is_stored, (SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
  THEN pg_logical_emit_message(true, 'svc', '')::text END) AS logged_at FROM (
  SELECT r.id, (SELECT true FROM ${inbox} i WHERE i.${c.id} = r.id LIMIT 1) AS is_stored,
    (SELECT true FROM ${inbox} i WHERE i.${c.source} = r.source::${types.inboxSource}
      AND i.${c.idempotencyKey} = r.key::${types.inboxIdempotencyKey} LIMIT 1) AS is_known
  FROM unnest($1::uuid[], $2::text[], $3::text[]) AS r(id, source, key)
) r WHERE r.is_stored OR r.is_known`;
}

/** A copy of the row that was processed last, received now: dead ones include what the table has refused. */
function copyLastStatement({ inboxTable: inbox, inbox: c }: TableNames): Statement {
  const kept = [c.source, c.aggregateId, c.eventType, c.payload, c.consumption, c.correlationId, c.headers];
  return statement("inbox.copy the last processed row(id)")`
INSERT INTO ${inbox} (${c.id}, ${c.idempotencyKey}, ${c.state}, ${c.createdAt}, ${c.scheduledAt}, ${kept.join(", ")})
SELECT $1::uuid, $1::text, 'pending', clock_timestamp(), clock_timestamp(), ${kept.map((name) => `f.${name}`).join(", ")}
FROM ${inbox} f WHERE f.${c.state} = 'processed' ORDER BY f.${c.createdAt} DESC, f.${c.id} DESC LIMIT 1
RETURNING ${c.id}`;
}

/** See {@link Schedule}. NULL counts neither as the least nor as the greatest. */
const DUE = `greatest((SELECT at FROM received),
    least('epoch'::timestamptz + r.published_ms::bigint * interval '1 millisecond', (SELECT at FROM received)) + r.delay_ms::bigint * interval '1 millisecond',
    'epoch'::timestamptz + r.not_before_ms::bigint * interval '1 millisecond')`;

/** The earlier one of a time and a time to live. */
const EXPIRES_AT = `,
  least('epoch'::timestamptz + r.expires_ms::bigint * interval '1 millisecond', (SELECT at FROM received) + r.live_ms::bigint * interval '1 millisecond')`;

const INSERT_PARAMETERS = `ids, idempotencyKeys, aggregateIds, eventTypes, payloads, correlationIds, headers,
  source, state, consumption, lastError`;
const TIME_PARAMETERS = "delayMs, publishedMs, notBeforeMs, expiresMs, liveMs";
