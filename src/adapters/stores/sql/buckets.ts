import { StoreError } from "../../../model/errors.ts";
import { type ClaimToken, INBOX_COLUMNS, type MessageId } from "../../../model/rows.ts";
import type {
  BucketAt,
  BucketRow,
  BucketState,
  BucketStore,
  FinishedRow,
  Page,
  StoredRow,
  UnfinishedRow,
  WaitReason,
} from "../../../ports/bucketStore.ts";
import type { TableNames } from "./names.ts";
import {
  changeInParts,
  inKeyOrder,
  type Named,
  numberOf,
  type Row,
  SKIPPED_REASON,
  type StatementRunner,
  textOf,
  type Values,
} from "./rows.ts";
import { grant } from "./schema.ts";

/**
 * The statements on buckets. `all` answers with a row of the `server` alone where there is no bucket. Those that change
 * some answer with the `bucket` and `epoch` of each. `copy` answers with the `id` of each row stored, and fails as
 * refused, with nothing stored, where one is not stored as given; `held` with that of each row whose key is there. Pages
 * begin behind their parameters: `FIRST` is in front of every row.
 */
export interface BucketStatements<S>
  extends Named<
    S,
    | "all"
    | "open"
    | "close"
    | "renew"
    | "reopen"
    | "expect"
    | "leave"
    | "arrive"
    | "takeBack"
    | "supersede"
    | "awaitReceipts"
    | "before"
    | "finished"
    | "read"
    | "copy"
    | "held"
  > {
  /** Pages of unfinished rows, one index each, with what identifies the end of a page. */
  readonly unfinished: {
    readonly push: S;
    readonly pull: S;
    /** The first page, and those behind a key and a sequence. */
    readonly keyed: S;
    readonly keyedAfter: S;
  };
  readonly dialect: {
    /** Values for a list of rows. */
    rowsOf(rows: readonly StoredRow[]): Values;
    /** Whether the user lacks a right that the statement needs. */
    isMissingRight(error: StoreError): boolean;
  };
}

export type InboxColumn = keyof typeof INBOX_COLUMNS;

/** The columns of a row that are times. */
export const TIMES: ReadonlySet<InboxColumn> = new Set([
  "createdAt",
  "processedAt",
  "claimedAt",
  "leaseExpiresAt",
  "scheduledAt",
  "expiresAt",
]);

/** The columns of a row that is copied: those that the table has. */
export const storedColumns = (c: TableNames["inbox"]) =>
  (Object.keys(INBOX_COLUMNS) as InboxColumn[]).flatMap((key) => {
    const column = c[key];
    return column === null ? [] : [{ key, column }];
  });

/** Where pages of times and ids begin. */
const FIRST = { time: "0001-01-01T00:00:00Z", id: "00000000-0000-0000-0000-000000000000" };

/** The buckets in a SQL database. @param remedy what makes the table of the buckets */
export function bucketStore<S>(
  runner: StatementRunner<S>,
  sql: BucketStatements<S>,
  { inboxTable, outboxTable, operations: { bucket } }: TableNames,
  remedy: string,
): BucketStore {
  const CHANGES = ["SELECT", "INSERT", "UPDATE"];
  const ON_BUCKETS = { [bucket]: CHANGES };
  const READS = { [inboxTable]: ["SELECT"] };
  const READS_BOTH = { ...READS, [outboxTable]: ["SELECT"] };
  const COPIES = { [inboxTable]: CHANGES };
  /** @param rights that the statement needs, by table */
  const run = async (statement: S, values: Values = {}, rights = ON_BUCKETS): Promise<readonly Row[]> => {
    try {
      return await runner.run(statement, values);
    } catch (error) {
      if (!(error instanceof StoreError && error.code === "schema")) throw error;
      if (sql.dialect.isMissingRight(error)) {
        const grants = Object.entries(rights).map(([table, each]) => grant(each, table));
        throw new StoreError("schema", `${error.message}: let the owner of the table run\n      ${grants.join(" ")}`);
      }
      if (rights !== ON_BUCKETS) throw error;
      throw new StoreError(
        "schema",
        `${error.message}: cells need this table: run \`svc migrate\`, or make it with\n      ${remedy}`,
      );
    }
  };
  /** @throws StoreError `refused` where the table has not taken each row */
  const copyAll = async (rows: readonly StoredRow[]): Promise<number> => {
    const stored = await run(sql.copy, sql.dialect.rowsOf(rows), COPIES);
    if (stored.length === rows.length) return stored.length;
    const there = new Set(stored.map(({ id }) => idOf(id)));
    const others = rows.flatMap(({ id = null, source = null, idempotencyKey = null }) =>
      there.has(idOf(id)) ? [] : [{ id, source, idempotencyKey }],
    );
    const held = await run(sql.held, sql.dialect.rowsOf(others), READS);
    if (held.length < others.length) throw new StoreError("refused", SKIPPED_REASON);
    return stored.length;
  };
  const changed = async (statement: S, values: Values) =>
    (await run(statement, values)).map(({ bucket }) => Number(bucket));

  const unfinishedPage = async ({ kind, at }: Position, limit: number): Promise<readonly Row[]> => {
    const { push, pull, keyed, keyedAfter } = sql.unfinished;
    if (kind === "push") {
      const [fromTime = FIRST.time, fromId = FIRST.id] = at;
      return await run(push, { fromTime, fromId, limit }, READS);
    }
    if (kind === "pull") {
      const [fromSource = "", fromTime = FIRST.time, fromId = FIRST.id] = at;
      return await run(pull, { fromSource, fromTime, fromId, limit }, READS);
    }
    return at.length === 0
      ? await run(keyed, { limit }, READS_BOTH)
      : await run(keyedAfter, { fromKey: at[0], fromSequence: at[1], limit }, READS_BOTH);
  };

  return {
    async all() {
      const rows = await run(sql.all);
      return {
        rows: rows.filter(({ bucket }) => bucket !== null).map(bucketRow),
        server: textOf(rows[0]?.server) ?? undefined,
      };
    },
    async open(buckets) {
      if (buckets.length > 0) await run(sql.open, epochsOf(buckets));
    },
    close: async (buckets, to, lease) => await changed(sql.close, { buckets, to, ...lease }),
    renew: async (lease) => await changed(sql.renew, { ...lease }),
    reopen: async (buckets, token) => await changed(sql.reopen, { buckets, token }),
    expect: async (buckets, { from, token, server = null }) =>
      await changed(sql.expect, { ...epochsOf(buckets), from, token, server }),
    async leave(buckets, token) {
      const rows = await run(sql.leave, { buckets, token });
      return rows.map(({ bucket, epoch }) => ({ bucket: Number(bucket), epoch: Number(epoch) }));
    },
    arrive: async (buckets, token) => await changed(sql.arrive, { ...epochsOf(buckets), token }),
    takeBack: async (buckets) =>
      await changed(sql.takeBack, {
        ...epochsOf(buckets),
        nextEpochs: buckets.map(({ nextEpoch }) => nextEpoch),
      }),
    supersede: async (buckets) =>
      await changed(sql.supersede, { ...epochsOf(buckets), cells: buckets.map(({ cell }) => cell) }),

    async unfinished(after, limit) {
      const from = after === undefined ? { kind: KINDS[0], at: [] } : (JSON.parse(after) as Position);
      const rows = await unfinishedPage(from, limit);
      const last = rows.at(-1);
      const kind = KINDS[KINDS.indexOf(from.kind) + 1];
      let next: Position | undefined;
      if (last !== undefined && rows.length >= limit) next = { kind: from.kind, at: endOf(from.kind, last) };
      else if (kind !== undefined) next = { kind, at: [] };
      return { rows: rows.map((row) => unfinishedRow(from.kind, row)), next: next && JSON.stringify(next) };
    },

    async finished(from, limit): Promise<Page<FinishedRow>> {
      const [time = FIRST.time, id = FIRST.id] = from === undefined ? [] : (JSON.parse(from) as string[]);
      const rows = await run(sql.finished, { fromTime: time, fromId: id, limit }, READS);
      const last = rows.at(-1);
      const isMore = last !== undefined && rows.length >= limit;
      return {
        rows: rows.map((row) => ({ ...keyed(row), id: idOf(row.id), bytes: numberOf(row.bytes, 0) })),
        next: isMore ? JSON.stringify([String(last.time), idOf(last.id)]) : undefined,
      };
    },

    async awaitReceipts() {
      try {
        await run(sql.awaitReceipts);
        return true;
      } catch (error) {
        if (error instanceof StoreError && error.code === "contention") return false;
        throw error;
      }
    },

    async positionBefore(ms) {
      const [row] = await run(sql.before, { ms });
      return { position: JSON.stringify([String(row?.time), FIRST.id]), nowMs: Number(row?.now_ms) };
    },

    async read(ids) {
      if (ids.length === 0) return [];
      return (await run(sql.read, { ids }, READS)).map((row) =>
        Object.fromEntries(Object.entries(INBOX_COLUMNS).map(([key, column]) => [key, textOf(row[column])])),
      );
    },

    async copy(rows, signal) {
      // As receipts do: two movers wait for each other in one direction only.
      const ordered = inKeyOrder(
        rows.map((row) => ({ row, source: row.source ?? "", idempotencyKey: row.idempotencyKey ?? "" })),
      );
      const { results, refused } = await changeInParts(
        ordered.map(({ row }) => row),
        async (part) => {
          signal?.throwIfAborted();
          return await copyAll(part).catch((error: StoreError) => {
            // A trigger that takes long, perhaps: the mover remembers that smaller parts pass.
            throw error.code === "busy" ? new StoreError("contention", error.message) : error;
          });
        },
      );
      const reasons = [...refused].map(([row, error]) => [row, refusal(inboxTable, error)] as const);
      return { stored: results.reduce((sum, count) => sum + count, 0), refused: new Map(reasons) };
    },
  };
}

/** @param error of a single row */
function refusal(table: string, { message }: StoreError): string {
  return message.endsWith(SKIPPED_REASON)
    ? `a trigger of ${table} leaves out or changes copied rows: let rows through as they are that come in as processed or dead`
    : `${table} refuses copied rows: ${message}`;
}

const KINDS = ["push", "pull", "keyed"] as const;
type Kind = (typeof KINDS)[number];

/** Where a page begins: behind the row of these values, or with the first one. */
interface Position {
  readonly kind: Kind;
  readonly at: readonly string[];
}

function endOf(kind: Kind, row: Row): readonly string[] {
  if (kind === "keyed") return [String(row.key), String(row.sequence)];
  const end = [String(row.time), idOf(row.id)];
  return kind === "push" ? end : [String(row.source), ...end];
}

const epochsOf = (buckets: readonly BucketAt[]) => ({
  buckets: buckets.map(({ bucket }) => bucket),
  epochs: buckets.map(({ epoch }) => epoch),
});

const idOf = (id: unknown): MessageId => String(id).toLowerCase() as MessageId;

const keyed = (row: Row) => ({
  source: String(row.source),
  idempotencyKey: String(row.idempotency_key),
  aggregateId: textOf(row.aggregate_id),
});

function unfinishedRow(kind: Kind, row: Row): UnfinishedRow {
  const dueInMs = Math.max(0, numberOf(row.due_in_ms, 0));
  return {
    id: idOf(row.id),
    received: row.source === null || row.source === undefined ? null : keyed(row),
    key: kind === "keyed" ? textOf(row.key) : null,
    waitsFor: waitReason(kind, row, dueInMs > 0),
    dueInMs,
  };
}

function waitReason(kind: Kind, row: Row, isAhead: boolean): WaitReason {
  if (kind === "pull") return "pull";
  if (kind === "push") return isAhead ? "time" : "relay";
  if (row.state === "processing") return "delivery";
  if (Number(row.is_parked) === 1) return "operator";
  if (!isAhead) return "turn";
  return numberOf(row.attempt, 0) > 0 ? "retry" : "time";
}

function bucketRow(row: Row): BucketRow {
  return {
    bucket: Number(row.bucket),
    state: row.state as BucketState,
    epoch: Number(row.epoch),
    otherCell: textOf(row.other_cell),
    token: (textOf(row.token)?.toLowerCase() ?? null) as ClaimToken | null,
    hasLeaseEnded: Number(row.has_ended) === 1,
  };
}
