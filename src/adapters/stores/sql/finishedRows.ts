import { deliveryId, destinationsIn } from "../../../model/deliveries.ts";
import type { StoreError } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type {
  FinishedRow,
  ReplayFilter,
  ReplayScope,
  ReplayStore,
  RetentionPolicy,
  RetentionRange,
  RetentionStore,
} from "../../../ports/finishedRows.ts";
import type { ParkedRow, ParkedStore } from "../../../ports/store.ts";
import { noteValues, type SqlHistory } from "./history.ts";
import type { TableNames } from "./names.ts";
import {
  changeInParts,
  countChanged,
  countOf,
  dateOf,
  idsOf,
  listedRow,
  type Named,
  type Row,
  routedAgain,
  type StatementRunner,
  type Values,
} from "./rows.ts";

/**
 * `untried` answers `untried`; `move`, `add` and `receiveAgain` answer `changed`; `lists` answers `id` and
 * `expanded_to`.
 */
export type ReplayStatements<S> = Named<
  S,
  "begin" | "page" | "find" | "lists" | "untried" | "move" | "receiveAgain"
> & {
  /** Undefined for a table that can have no delivery rows. */
  readonly add: S | undefined;
  readonly dialect: {
    pageOf(results: readonly (readonly Row[])[]): {
      readonly rows: readonly Row[];
      readonly rowsRead: unknown;
      readonly last: unknown;
    };
  };
};

/** What a delivery row has of its message row, as a list of columns. */
export const copied = (c: TableNames["outbox"], row = ""): string =>
  [c.topic, c.key, c.maxAttempts].map((column) => `${row}${column}`).join(", ");

/** Short statements find their rows by index, and so block no other work. */
export function replayStore<S>(
  runner: StatementRunner<S>,
  sql: ReplayStatements<S>,
  destinationRemedy: string | undefined,
): ReplayStore {
  return {
    destinationRemedy,

    async begin() {
      const [row] = await runner.run(sql.begin);
      return { finishedUntil: row?.finished_until as string, lastSequence: row?.last_sequence as string };
    },

    async page(scope, filter, after, limit) {
      const values = { ...filterValues(scope, filter), from: after ?? "0", last: scope.lastSequence, limit };
      const { rows, rowsRead, last } = sql.dialect.pageOf(await runner.runAll(sql.page, values));
      return { rows: rows.map(finishedRow), next: rowsRead === limit ? (last as string) : null };
    },

    async find(scope, filter, ids) {
      const messages = await runner.run(sql.lists, { ids });
      const all = [...new Set([...ids, ...messages.flatMap(deliveriesOf)])];
      return (await runner.run(sql.find, { ...filterValues(scope, filter), ids: all })).map(finishedRow);
    },

    async move({ finishedUntil }, ids, by, to) {
      const values = {
        finishedUntil,
        to: to ?? null,
        ...noteValues(by, to === undefined ? null : `to the destination ${to}`),
      };
      return await countChanged(ids, (part) => runner.run(sql.move, { ...values, ids: part }));
    },

    async add(ids, to) {
      const { add } = sql;
      if (add === undefined) return { changed: 0 };
      return await countChanged(ids, (part) => {
        const pairs = part.map((id) => ({ id, delivery: deliveryId(id, to) }));
        return runner.run(add, { pairs: JSON.stringify(pairs), to });
      });
    },

    async untried(ids) {
      return countOf(await runner.run(sql.untried, { ids }), "untried");
    },

    async receiveAgain(row) {
      const values = { ...row, headers: JSON.stringify(row.headers) };
      return countOf(await runner.run(sql.receiveAgain, values), "changed") > 0;
    },
  };
}

function filterValues({ finishedUntil: until }: ReplayScope, filter: ReplayFilter): Values {
  const { state = null, topics = null, createdAfter = null, createdBefore = null, add = null } = filter;
  const { finishedBefore = until } = filter;
  const finishedUntil = finishedBefore < until ? finishedBefore : until;
  return { finishedUntil, topics, createdAfter, createdBefore, state, add };
}

function deliveriesOf({ id, expanded_to }: Row): readonly MessageId[] {
  return (destinationsIn(expanded_to) ?? []).map((destination) => deliveryId(id as MessageId, destination));
}

/** Changes answer `changed`. The last error of a discarded row is `before` and the old one. */
export type ParkedStatements<S> = Named<S, "list" | "retry" | "discard">;

export function parkedStore<S>(runner: StatementRunner<S>, sql: ParkedStatements<S>): ParkedStore {
  return {
    async list({ ids, key }, after, limit) {
      const values = { from: after ?? "0", limit, ids: ids ?? null, key: key ?? null };
      return (await runner.run(sql.list, values)).map(parkedRow);
    },

    retry: (ids, by) => countChanged(ids, (part) => runner.run(sql.retry, { ...noteValues(by, null), ids: part })),
    discard(ids, by, reason) {
      const values = { ...noteValues(by, reason), before: `discarded by ${by}: ${reason}` };
      return countChanged(ids, (part) => runner.run(sql.discard, { ...values, ids: part }));
    },
  };
}

function parkedRow(row: Row): ParkedRow {
  return { ...listedRow(row), parkedAt: dateOf(row.updated_at) };
}

interface BatchStatements<S> {
  /** The first `limit` rows behind a position, up to another: their `id`, `time`, `tie` and `expanded_to`. */
  readonly page: S;
  /**
   * Deletes unlocked rows that are still finished, since `untilTime` or before, with `list` still their `expanded_to`.
   */
  readonly remove: S;
}

/** The statements of retention. Positions are a time and a tie, as texts. */
export interface RetentionStatements<S> {
  /** The newest row of each state that is older than `bound` ms: its `state`, `time` and `tie`. */
  readonly outboxByAge: S;
  readonly inboxByAge: S;
  /** The newest row of each state with `bound` newer ones. */
  readonly outboxByCount: S;
  readonly batches: Readonly<Record<"sent" | "dead" | "inbox", BatchStatements<S>>>;
  readonly existing: S;
  readonly dialect: {
    readonly firstTime: string;
    readonly maxRows: number;
  };
}

/** Deletes batch by batch, along the index that holds the rows in order. */
export function retentionStore<S>(
  runner: StatementRunner<S>,
  sql: RetentionStatements<S>,
  history: Pick<SqlHistory<S>, "forget">,
): RetentionStore {
  async function newest(policy: RetentionPolicy): Promise<readonly Row[]> {
    if (policy.kind === "COUNT") return await runner.run(sql.outboxByCount, { bound: policy.maxCount });
    if (policy.maxAgeMs > OLDEST_MS) return [];
    const statement = policy.table === "outbox" ? sql.outboxByAge : sql.inboxByAge;
    return await runner.run(statement, { bound: policy.maxAgeMs });
  }

  /**
   * Message rows of one list whose deliveries are all gone, for good: the deletion compares the list, which an addition
   * changes.
   */
  async function withoutDeliveries(rows: readonly Row[]): Promise<readonly MessageId[]> {
    const kept = new Set<unknown>();
    // A list has up to a thousand destinations.
    for (let n = 0; n < rows.length; n += MESSAGES_ASKED) {
      const part = rows.slice(n, n + MESSAGES_ASKED);
      const messageOf = new Map(part.flatMap((row) => deliveriesOf(row).map((id) => [id, row.id] as const)));
      if (messageOf.size === 0) continue;
      for (const { id } of await runner.run(sql.existing, { ids: [...messageOf.keys()] }))
        kept.add(messageOf.get(id as MessageId));
    }
    return idsOf(rows).filter((id) => !kept.has(id));
  }

  return {
    async plan(policy) {
      return (await newest(policy)).map((row) => ({
        table: policy.table,
        state: row.state as RetentionRange["state"],
        from: null,
        until: positionOf(row),
      }));
    },

    async deleteBatch(range, limit) {
      const { table, state, from, until } = range;
      const { page, remove } = sql.batches[state ?? "inbox"];
      const most = Math.min(limit, sql.dialect.maxRows);
      const [fromTime, fromTie] = from ?? [sql.dialect.firstTime, FIRST_TIE[table]];
      const [untilTime, untilTie] = until;
      const rows = await runner.run(page, { fromTime, fromTie, untilTime, untilTie, limit: most });
      const deleted: MessageId[] = [];
      const refused: StoreError[] = [];
      // Message rows come last: their deliveries are mostly on the same page.
      for (const list of new Set([null, ...rows.map(({ expanded_to }) => expanded_to)])) {
        const ofList = rows.filter(({ expanded_to }) => expanded_to === list);
        const ids = list === null ? idsOf(ofList) : await withoutDeliveries(ofList);
        const done = await changeInParts(ids, (part) => runner.run(remove, { ids: part, untilTime, list }));
        deleted.push(...done.results.flatMap(idsOf));
        refused.push(...done.refused.values());
      }
      if (table === "outbox") await history.forget(deleted);
      const last = rows[most - 1];
      const rest = last === undefined ? null : { ...range, from: positionOf(last) };
      return { deleted: deleted.length, rest, refused: refused.length, refusal: refused[0]?.message };
    },
  };
}

/** Messages whose deliveries one statement looks up. */
const MESSAGES_ASKED = 100;

const positionOf = (row: Row): readonly string[] => [row.time as string, row.tie as string];

/** A thousand years: no row is that old. Times of SQL Server begin with the year 1, and an older age is an error. */
const OLDEST_MS = 1000 * 365.25 * 86_400_000;

const FIRST_TIE = { outbox: "0", inbox: "00000000-0000-0000-0000-000000000000" } as const;

/** Finished rows that one index holds in the order in which retention deletes them. */
export interface FinishedRows {
  readonly table: string;
  readonly id: string;
  readonly state: string;
  /** SQL literals: a parameter would keep the database from the partial (filtered) index. */
  readonly states: string;
  /** The time that counts, and the order of rows of the same time: together the position of a row. */
  readonly time: string;
  readonly tie: string;
  readonly tieType: string;
  readonly expandedTo: string | null;
}

interface Dialect {
  readonly text: (literal: string) => string;
  readonly uuidType: string;
}

/** A full scan of an index of many million entries, which a large `maxCount` takes once a sweep. */
export const COUNT_TIMEOUT_MS = 300_000;

export function finishedRows(names: TableNames, { text, uuidType }: Dialect) {
  const outbox = (state: "sent" | "dead"): FinishedRows => ({
    table: names.outboxTable,
    id: names.outbox.id,
    state: names.outbox.state,
    states: `(${text(state)})`,
    time: names.outbox.updatedAt,
    tie: names.outbox.sequence,
    tieType: "bigint",
    expandedTo: names.outbox.expandedTo,
  });
  const inbox: FinishedRows = {
    table: names.inboxTable,
    id: names.inbox.id,
    state: names.inbox.state,
    states: `(${text("processed")}, ${text("dead")})`,
    time: names.inbox.createdAt,
    tie: names.inbox.id,
    tieType: uuidType,
    expandedTo: null,
  };
  return { sent: outbox("sent"), dead: outbox("dead"), inbox };
}

function finishedRow(row: Row): FinishedRow {
  return {
    ...listedRow(row),
    ...routedAgain(row),
    state: row.state as FinishedRow["state"],
    createdAt: dateOf(row.created_at),
  };
}
