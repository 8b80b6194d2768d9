import type {
  DestinationColumnNames,
  HistoryColumnNames,
  InboxColumnNames,
  JournalColumnNames,
  OperationsTables,
  OutboxColumnNames,
} from "../../../model/rows.ts";

/** How the tables are really called (`database.inboxTableName`, `database.columnMapping` and so on). */
export interface TableNames {
  /** Schema of all tables; undefined leaves it to the connection's search path. */
  readonly schema: string | undefined;
  readonly inboxTable: string;
  readonly outboxTable: string;
  readonly destinationTable: string;
  readonly historyTable: string;
  readonly operations: OperationsTables;
  readonly inbox: InboxColumnNames;
  readonly outbox: OutboxColumnNames;
  readonly destination: DestinationColumnNames;
  readonly history: HistoryColumnNames;
  readonly journal: JournalColumnNames;
}

/**
 * Makes the last of some finished rows pending, to be rolled back, and returns its `id`.
 *
 * @param which a condition on rows `f`
 * @param more further assignments, each after a comma
 */
export type SetBack = (
  table: string,
  c: TableNames["inbox" | "outbox"],
  which: string,
  newestFirst: string,
  more?: string,
) => string;

/**
 * Quotes every name once, so that statements contain nothing but checked identifiers.
 *
 * @throws Error for a name that is not a letter or `_`, then letters, digits and `_`
 */
export function quoteNames(names: TableNames, quote: (identifier: string) => string): TableNames {
  const checked = (identifier: string): string => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(identifier)) {
      throw new Error(`"${identifier}" is not an SQL identifier: a letter or _ first, then letters, digits and _`);
    }
    return quote(identifier);
  };
  const mapped = <T extends Readonly<Record<string, string | null>>>(columns: T): T =>
    Object.fromEntries(Object.entries(columns).map(([key, name]) => [key, name === null ? null : checked(name)])) as T;
  const schema = names.schema === undefined ? undefined : checked(names.schema);
  const table = (name: string): string => (schema === undefined ? checked(name) : `${schema}.${checked(name)}`);
  return {
    schema,
    inboxTable: table(names.inboxTable),
    outboxTable: table(names.outboxTable),
    destinationTable: table(names.destinationTable),
    historyTable: table(names.historyTable),
    operations: Object.fromEntries(
      Object.entries(names.operations).map(([key, name]) => [key, table(name)]),
    ) as unknown as OperationsTables,
    inbox: mapped(names.inbox),
    outbox: mapped(names.outbox),
    destination: mapped(names.destination),
    history: mapped(names.history),
    journal: mapped(names.journal),
  };
}

/** Optional columns that an owner's tables lack: the statement that adds each, by its key. */
export interface MissingColumns {
  readonly inbox: Readonly<Record<string, string>>;
  readonly outbox: Readonly<Record<string, string>>;
}

export function withoutColumns(names: TableNames, { inbox, outbox }: MissingColumns): TableNames {
  const gone = (columns: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.keys(columns).map((key) => [key, null]));
  return { ...names, inbox: { ...names.inbox, ...gone(inbox) }, outbox: { ...names.outbox, ...gone(outbox) } };
}
