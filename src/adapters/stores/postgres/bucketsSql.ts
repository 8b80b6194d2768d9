import { INBOX_COLUMNS } from "../../../model/rows.ts";
import { type StoredRow, SUPERSEDED } from "../../../ports/bucketStore.ts";
import { type BucketStatements, type InboxColumn, storedColumns, TIMES } from "../sql/buckets.ts";
import type { TableNames } from "../sql/names.ts";
import type { ColumnTypes } from "./columns.ts";
import { hasSqlState } from "./errors.ts";
import { IS_CITUS, ordered, PARKED_AT, unlessNotInserted } from "./fragments.ts";
import { SERVER } from "./lowWater.ts";
import { byIndex, type Statement, textArray } from "./statement.ts";

/** The parameters of statements on buckets with their epochs. */
const GIVEN = "unnest($1::int[], $2::bigint[]) AS r(bucket, epoch)";

const onBuckets = (declaration: string, options = {}) =>
  byIndex(`buckets.${declaration}`, { timeoutMs: 10_000, ...options });

/**
 * A condition of a receipt: each of these buckets is open here, and nobody closes one before the receipt's commit; and
 * this is the server of which that is known. It fails with `NOT_OPEN` otherwise, and by the root of -1 in a transaction
 * with a snapshot of its own.
 *
 * The server locks the tables of a statement before it takes the snapshot, and `FOR SHARE` makes that a lock which only
 * the one of `close` excludes: so the snapshot holds every close that did not wait for this receipt. That costs a
 * receipt no write, as locks on the rows would, and those would let a row be locked for ever by overlapping receipts.
 *
 * @param buckets a parameter (int[]), each bucket once
 * @param servers a parameter (text[]), each server once
 */
export function whereOpen(names: TableNames, buckets: string, servers: string): string {
  const { bucket } = names.operations;
  // As a subquery, the same plan suits every array.
  const open = `SELECT count(*) FROM ${bucket} b WHERE b.bucket = ANY ((SELECT ${buckets}::int[])::int[]) AND b.state = 'open'`;
  const locked = `EXISTS (SELECT FROM ${bucket} LIMIT 0 FOR SHARE)`;
  return `sqrt((CASE current_setting('transaction_isolation') WHEN 'read committed' THEN 1 ELSE -1 END)::float8)
  <= width_bucket(1, 0, 1, ((${open}) = cardinality(${buckets}::int[]) AND NOT ${locked}
    AND ${SERVER}::text = ALL (${servers}::text[]))::int)`;
}

/** The statements on buckets, and on the rows that a move reads and copies. */
export function bucketStatements(names: TableNames, types: ColumnTypes): BucketStatements<Statement> {
  const table = names.operations.bucket;
  const [inbox, outbox, c, o] = [names.inboxTable, names.outboxTable, names.inbox, names.outbox];
  const until = (leaseMs: string): string => `now() + ${leaseMs}::bigint * interval '1 millisecond'`;
  const ended = "lease_until < now()";
  // On Citus the coordinator's lock is enough, which every receipt takes: of a wait on a worker it would say nothing.
  const lockAgainstReceipts = `SET LOCAL citus.enable_ddl_propagation = off; LOCK TABLE ${table} IN EXCLUSIVE MODE`;
  /** @param set besides the time of the change @param condition besides the buckets of $1 */
  const change = (set: string, condition: string): string => `
UPDATE ${table} b SET changed_at = now(), ${set}
WHERE b.bucket = ANY ($1::int[]) AND ${condition}
RETURNING b.bucket, b.epoch`;
  const changeGiven = (set: string, condition: string, given = GIVEN): string => `
UPDATE ${table} b SET changed_at = now(), ${set}
FROM ${given} WHERE b.bucket = r.bucket AND ${condition}
RETURNING b.bucket, b.epoch`;
  const FREE = "token = NULL, lease_until = NULL";
  const OPENED = `state = 'open', other_cell = NULL, ${FREE}`;
  /** Of a row that is written over, and of one that is about to replace it: what arrives may still be opened. */
  const isNewer = "b.epoch < excluded.epoch OR (b.epoch = excluded.epoch AND b.state = 'arriving')";

  /** A time with its microseconds, in whatever style the server writes times. */
  const timeOf = (time: string): string => `to_jsonb((${time})::timestamptz) #>> '{}'`;
  const dueInMs = (time: string): string =>
    `CASE WHEN isfinite(${time}) AND ${time} > now() THEN least(ceil(date_part('epoch', (${time})::timestamptz - now()) * 1000), 1e15)::bigint ELSE 0 END`;
  const keys = (row: string): string =>
    `${row}.${c.source}::text AS source, ${row}.${c.idempotencyKey}::text AS idempotency_key, ${row}.${c.aggregateId}::text AS aggregate_id`;
  const waiting = (consumption: string): string => `
SELECT i.${c.id}::text AS id, ${keys("i")}, ${timeOf(`i.${c.createdAt}`)} AS time, ${dueInMs(`i.${c.scheduledAt}`)} AS due_in_ms
FROM ${ordered(`${inbox} i`)} WHERE i.${c.state} = 'pending' AND i.${c.consumption} = '${consumption}'`;
  const received = `i.${c.createdAt}, i.${c.id}`;
  const copied = storedColumns(c);
  /** The rows `r` to copy. */
  const GIVEN_ROWS = `unnest(${Object.keys(INBOX_COLUMNS)
    .map((_, n) => `$${n + 1}::text[]`)
    .join(", ")}) AS r(${Object.values(INBOX_COLUMNS).join(", ")})`;
  const hasKeyOfGiven = (source: string, key: string): string =>
    `${source} = r.source::${typeOf("source", types)} AND ${key} = r.idempotency_key::${typeOf("idempotencyKey", types)}`;

  /** One index holds both states: a row that is claimed or released meanwhile stays at its place. */
  const keyed = (after: string, limit: string): string => `
SELECT w.id, w.key, w.sequence, w.state, w.attempt, w.is_parked, w.due_in_ms, ${keys("i")}
FROM (
  SELECT o.${o.id} AS id, o.${o.key}::text AS key, o.${o.sequence}::bigint AS sequence, o.${o.state}::text AS state, o.${o.attempt} AS attempt,
    (o.${o.attempt} > 0 AND o.${o.scheduledAt} = ${PARKED_AT})::int AS is_parked, ${dueInMs(`o.${o.scheduledAt}`)} AS due_in_ms
  FROM ${outbox} o
  WHERE o.${o.state} IN ('pending', 'processing') AND o.${o.key} IS NOT NULL${after}
  ORDER BY o.${o.key}, o.${o.sequence} LIMIT ${limit}
) w LEFT JOIN ${inbox} i ON i.${c.id} = w.id`;

  return {
    // On Citus a change asks the coordinator for its start, and this the node of the table.
    all: onBuckets("all")`
SELECT s.server, b.bucket, b.state, b.epoch, b.other_cell, b.token, coalesce(b.${ended}, false)::int AS has_ended
FROM (SELECT CASE WHEN NOT ${IS_CITUS} THEN ${SERVER}::text END AS server) s LEFT JOIN ${table} b ON true`,

    open: onBuckets("open(buckets, epochs)")`
INSERT INTO ${table} AS b (bucket, state, epoch, changed_at)
SELECT r.bucket, 'open', r.epoch, now() FROM ${GIVEN} ORDER BY r.bucket
ON CONFLICT (bucket) DO UPDATE SET state = excluded.state, epoch = excluded.epoch, other_cell = NULL, ${FREE}, changed_at = excluded.changed_at
WHERE ${isNewer}`,

    close: onBuckets("close(buckets, to, token, leaseMs)", {
      first: lockAgainstReceipts,
      lockTimeoutMs: LONGEST_RECEIPT_MS,
    })(
      change(
        `state = 'moving', other_cell = $2::text, token = $3::uuid, lease_until = ${until("$4")}`,
        "b.state = 'open'",
      ),
    ),

    renew: onBuckets("renew(token, leaseMs)")`
UPDATE ${table} b SET lease_until = ${until("$2")} WHERE b.token = $1::uuid AND b.state = 'moving' RETURNING b.bucket, b.epoch`,

    reopen: onBuckets("reopen(buckets, token)")(
      change(OPENED, `b.state = 'moving' AND (b.token = $2::uuid OR ($2::uuid IS NULL AND b.${ended}))`),
    ),

    expect: onBuckets("expect(buckets, epochs, from, token, server)")`
INSERT INTO ${table} AS b (bucket, state, epoch, other_cell, token, changed_at)
SELECT r.bucket, 'arriving', r.epoch, $3::text, $4::uuid, now() FROM ${GIVEN} WHERE $5::text IS NULL OR ${SERVER}::text = $5::text ORDER BY r.bucket
ON CONFLICT (bucket) DO UPDATE SET state = excluded.state, epoch = excluded.epoch, other_cell = excluded.other_cell,
  token = excluded.token, lease_until = NULL, changed_at = excluded.changed_at
WHERE ${isNewer}
RETURNING b.bucket, b.epoch`,

    leave: onBuckets("leave(buckets, token)")(
      change("state = 'left', epoch = b.epoch + 1, lease_until = NULL", "b.state = 'moving' AND b.token = $2::uuid"),
    ),

    arrive: onBuckets("arrive(buckets, epochs, token)")(
      changeGiven(OPENED, "b.epoch = r.epoch AND (b.state = 'open' OR (b.state = 'arriving' AND b.token = $3::uuid))"),
    ),

    takeBack: onBuckets("take back(buckets, epochs, nextEpochs)")(
      changeGiven(
        `epoch = r.next_epoch, ${OPENED}`,
        "b.epoch = r.epoch AND b.state = 'left'",
        "unnest($1::int[], $2::bigint[], $3::bigint[]) AS r(bucket, epoch, next_epoch)",
      ),
    ),

    supersede: onBuckets("supersede(buckets, epochs, cells)")(
      changeGiven(
        `state = 'left', epoch = r.epoch, other_cell = r.cell, token = '${SUPERSEDED}', lease_until = NULL`,
        "b.epoch < r.epoch AND b.state IN ('open', 'moving')",
        "unnest($1::int[], $2::bigint[], $3::text[]) AS r(bucket, epoch, cell)",
      ),
    ),

    unfinished: {
      push: onBuckets("waiting rows(fromTime, fromId, limit)")`${waiting("push")}
  AND (${received}) > ($1::timestamptz, $2::uuid)
ORDER BY ${received} LIMIT $3::int`,
      pull: onBuckets("pull rows(fromSource, fromTime, fromId, limit)")`${waiting("pull")}
  AND (i.${c.source}, ${received}) > ($1::${types.inboxSource}, $2::timestamptz, $3::uuid)
ORDER BY i.${c.source}, ${received} LIMIT $4::int`,
      keyed: onBuckets("keyed rows(limit)")(keyed("", "$1::int")),
      keyedAfter: onBuckets("keyed rows behind a row(fromKey, fromSequence, limit)")(
        keyed(` AND (o.${o.key}, o.${o.sequence}) > ($1::${types.outboxKey}, $2::bigint)`, "$3::int"),
      ),
    },

    awaitReceipts: onBuckets("await receipts", { first: lockAgainstReceipts, lockTimeoutMs: LONGEST_RECEIPT_MS })`
SELECT FROM ${table} LIMIT 0`,

    before: onBuckets("time before(ms)")`
SELECT ${timeOf("now() - $1::bigint * interval '1 millisecond'")} AS time, floor(date_part('epoch', now()) * 1000)::bigint AS now_ms`,

    finished: onBuckets("finished rows(fromTime, fromId, limit)", { timeoutMs: 60_000 })`
SELECT i.${c.id}::text AS id, ${keys("i")}, ${timeOf(`i.${c.createdAt}`)} AS time, pg_column_size(i.${c.payload}) AS bytes
FROM ${ordered(`${inbox} i`)} WHERE i.${c.state} IN ('processed', 'dead') AND (${received}) > ($1::timestamptz, $2::uuid)
ORDER BY ${received} LIMIT $3::int`,

    read: onBuckets("read(ids)", { timeoutMs: 60_000 })`
SELECT ${copied
      .map(
        ({ key, column }) => `${TIMES.has(key) ? timeOf(`i.${column}`) : `i.${column}::text`} AS ${INBOX_COLUMNS[key]}`,
      )
      .join(", ")}
FROM ${inbox} i WHERE i.${c.id} = ANY ($1::uuid[]) AND (i.${c.state} || '') IN ('processed', 'dead')`,

    // The server ends it itself: behind a client's timeout it would go on, and the next try wait for it.
    copy: onBuckets(`copy(${Object.keys(INBOX_COLUMNS).join(", ")})`, {
      timeoutMs: 60_000,
      serverTimeoutMs: 55_000,
    })`
WITH stored AS (
  INSERT INTO ${inbox} AS i (${copied.map(({ column }) => column).join(", ")})
  SELECT ${copied.map(({ key }) => `r.${INBOX_COLUMNS[key]}::${typeOf(key, types)}`).join(", ")}
  FROM ${GIVEN_ROWS}
  ON CONFLICT (${c.source}, ${c.idempotencyKey}) DO UPDATE
  SET ${copied.map(({ column }) => `${column} = excluded.${column}`).join(", ")}
  WHERE i.${c.state} IN ('processed', 'dead')
    AND (i.${c.createdAt}, i.${c.processedAt}) < (excluded.${c.createdAt}, excluded.${c.processedAt})
  RETURNING i.${c.id} AS id, i.${c.source} AS source, i.${c.idempotencyKey} AS idempotency_key, i.${c.state} AS state
)
SELECT s.id::text AS id, ${unlessNotInserted("1", "(r.id IS NOT NULL AND (s.state || '') IN ('processed', 'dead'))::int")} AS is_as_given
FROM stored s LEFT JOIN ${GIVEN_ROWS} ON r.id::uuid = s.id AND ${hasKeyOfGiven("s.source", "s.idempotency_key")}`,

    held: onBuckets(`held keys(${Object.keys(INBOX_COLUMNS).join(", ")})`)`
SELECT r.id FROM ${GIVEN_ROWS}
WHERE EXISTS (SELECT FROM ${inbox} i WHERE ${hasKeyOfGiven(`i.${c.source}`, `i.${c.idempotencyKey}`)})`,

    dialect: {
      isMissingRight: (error) => hasSqlState(error, "42501"),
      rowsOf: (rows: readonly StoredRow[]) =>
        Object.fromEntries(
          Object.keys(INBOX_COLUMNS).map((key) => [key, textArray(rows.map((row) => row[key] ?? null))]),
        ),
    },
  };
}

/** Receipts wait as long for a close that waits for one of them. */
const LONGEST_RECEIPT_MS = 1000;

function typeOf(key: InboxColumn, types: ColumnTypes): string {
  if (TIMES.has(key)) return "timestamptz";
  if (key === "id" || key === "claimToken") return "uuid";
  if (key === "attempt") return "int";
  if (key === "payload") return types.inboxPayload;
  if (key === "headers") return types.inboxHeaders;
  if (key === "source") return types.inboxSource;
  return key === "idempotencyKey" ? types.inboxIdempotencyKey : "text";
}
