import { cellOf, EnqueueError, type Message, type Row, rowOf } from "./message.ts";

export type Value = string | number | readonly string[] | null;

/** A connection or transaction of the caller: see the adapters. */
export interface Transaction {
  readonly dialect: "postgresql" | "sqlserver";
  /** @param parts of the statement, with a value between each two, as a template literal has them */
  query(parts: readonly string[], values: readonly Value[]): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

/** What is called otherwise than in the service's own tables. */
export interface OutboxOptions {
  /** Default `outbox`. */
  readonly table?: string;
  /** Default: that of the connection. */
  readonly schema?: string;
  readonly columns?: Partial<Record<keyof typeof COLUMNS, string>>;
  /** The schemas of the cells, in their order: each message goes to that of its key. */
  readonly cells?: readonly string[];
}

const COLUMNS = {
  id: "id",
  topic: "topic",
  payload: "payload",
  key: "key",
  headers: "headers",
  destination: "destination",
  deliverAt: "scheduled_at",
  expiresAt: "expires_at",
} as const;
const FIELDS = Object.keys(COLUMNS) as (keyof typeof COLUMNS)[];

export interface Outbox {
  /**
   * Writes a message in the caller's transaction.
   *
   * @returns its id
   * @throws EnqueueError for a message that the database would refuse, before any statement
   */
  enqueue(tx: Transaction, message: Message): Promise<string>;
  /** Several messages in one statement (with cells: one for each), in this order. @returns their ids */
  enqueueMany(tx: Transaction, messages: readonly Message[]): Promise<readonly string[]>;
}

/** An outbox with names of the application's own. @throws EnqueueError `options` for a bad name */
export function createOutbox(options: OutboxOptions = {}): Outbox {
  const { table = "outbox", schema, cells = [] } = options;
  const names = [table, schema ?? "s", ...cells, ...Object.values(options.columns ?? {})];
  if (names.some((name) => name === "" || name.includes("\0")))
    throw new EnqueueError("options", "a name of a table or column is empty, or holds a NUL");
  const columns = { ...COLUMNS, ...options.columns };
  const enqueueMany: Outbox["enqueueMany"] = async (tx, messages) => {
    const rows = messages.map(rowOf);
    const bySchema = new Map<string | undefined, Row[]>();
    for (const row of rows) {
      const place = cells.length === 0 ? schema : cells[cellOf(row.key, cells.length)];
      if (!bySchema.get(place)?.push(row)) bySchema.set(place, [row]);
    }
    for (const [place, part] of bySchema) {
      for (let from = 0; from < part.length; from += MOST_ROWS) {
        const { parts, values } = insert(tx.dialect, place, table, columns, part.slice(from, from + MOST_ROWS));
        await tx.query(parts, values);
      }
    }
    return rows.map(({ id }) => id);
  };
  return { enqueueMany, enqueue: async (tx, message) => (await enqueueMany(tx, [message]))[0] as string };
}

/** SQL Server takes 2100 parameters in a statement, and a thousand rows. */
const MOST_ROWS = 250;

/** Only with the columns that a row needs: an application may have no right to the others. */
function insert(
  dialect: Transaction["dialect"],
  schema: string | undefined,
  table: string,
  columns: Readonly<Record<keyof typeof COLUMNS, string>>,
  rows: readonly Row[],
): { readonly parts: readonly string[]; readonly values: readonly (string | null)[] } {
  const isPostgres = dialect === "postgresql";
  const quote = isPostgres ? quoted : bracketed;
  const fields = FIELDS.filter((field) => rows.some((row) => row[field] !== null));
  const place = (schema === undefined ? [table] : [schema, table]).map(quote).join(".");
  const parts: string[] = [];
  const values: (string | null)[] = [];
  let text = `INSERT INTO ${place} (${fields.map((field) => quote(columns[field])).join(", ")}) VALUES `;
  rows.forEach((row, n) => {
    text += n === 0 ? "(" : ", (";
    fields.forEach((field, m) => {
      if (m > 0) text += ", ";
      if (row[field] === null && DEFAULTED.has(field)) {
        text += "DEFAULT";
        return;
      }
      parts.push(text);
      values.push(row[field]);
      text = isPostgres ? (CASTS[field] ?? "") : "";
    });
    text += ")";
  });
  return { parts: [...parts, text], values };
}

/** Columns that are not null. */
const DEFAULTED: ReadonlySet<string> = new Set(["headers", "deliverAt"]);
/** Drivers that send texts as such leave no type to the column. Each casts to what an owner's column may be. */
const CASTS: Readonly<Record<string, string>> = {
  id: "::uuid",
  headers: "::jsonb",
  deliverAt: "::timestamptz",
  expiresAt: "::timestamptz",
};
const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;
const bracketed = (name: string): string => `[${name.replaceAll("]", "]]")}]`;

export const { enqueue, enqueueMany } = createOutbox();
