import type { Transaction, Value } from "./enqueue.ts";

/**
 * Connections and transactions of drivers and ORMs as a `Transaction`. Each takes the shape that it needs, so that no driver is
 * a dependency.
 */

type Rows = readonly Readonly<Record<string, unknown>>[];
type Dialect = Transaction["dialect"];
/** A function for template literals. */
type Tag<T> = (parts: TemplateStringsArray, ...values: never[]) => T;

/** The statement with numbered parameters: `$1`, or `@p1`. */
const numbered = (parts: readonly string[], prefix: string, first = 1): string =>
  parts.reduce((text, part, n) => `${text}${prefix}${n - 1 + first}${part}`);
const tagged = <T>(tag: Tag<T>, parts: readonly string[], values: readonly Value[]): T =>
  tag(Object.assign([...parts], { raw: parts }), ...(values as never[]));
const rowsOf = (result: unknown): Rows => {
  const { rows = result } = (result ?? {}) as { rows?: unknown };
  return Array.isArray(rows) ? rows : [];
};

/** pg: a `Client`, or a `PoolClient` with a transaction under way. */
export const fromPg = (client: { query(text: string, values: unknown[]): Promise<{ rows: Rows }> }): Transaction => ({
  dialect: "postgresql",
  query: async (parts, values) => (await client.query(numbered(parts, "$"), [...values])).rows,
});

/** mssql: a `Transaction` that has begun. */
export const fromMssql = (transaction: { request(): MssqlRequest }): Transaction => ({
  dialect: "sqlserver",
  async query(parts, values) {
    const request = transaction.request();
    values.forEach((value, n) => {
      request.input(`p${n + 1}`, value);
    });
    return (await request.query(numbered(parts, "@p"))).recordset ?? [];
  },
});
interface MssqlRequest {
  input(name: string, value: unknown): unknown;
  query(text: string): Promise<{ recordset?: Rows }>;
}

/** Prisma: the `tx` of `prisma.$transaction(async (tx) => …)`. */
export const fromPrisma = (tx: { $queryRaw: Tag<Promise<unknown>> }, dialect: Dialect = "postgresql"): Transaction => ({
  dialect,
  query: async (parts, values) => rowsOf(await tagged(tx.$queryRaw.bind(tx) as Tag<Promise<unknown>>, parts, values)),
});

/** Drizzle: the `tx` of `db.transaction(async (tx) => …)`, and `sql` of the package. */
export const fromDrizzle = <S>(
  tx: { execute(query: S): PromiseLike<unknown> },
  sql: Tag<S>,
  dialect: Dialect = "postgresql",
): Transaction => ({
  dialect,
  query: async (parts, values) => rowsOf(await tx.execute(tagged(sql, parts, values))),
});

/** Kysely: the `trx` of `db.transaction().execute(async (trx) => …)`, and `sql` of the package. */
export const fromKysely = <X>(
  trx: X,
  sql: Tag<{ execute(executor: X): Promise<unknown> }>,
  dialect: Dialect = "postgresql",
): Transaction => ({
  dialect,
  query: async (parts, values) => rowsOf(await tagged(sql, parts, values).execute(trx)),
});

/** Knex: the `trx` of `knex.transaction(async (trx) => …)`. */
export const fromKnex = (
  trx: { raw(text: string, values: readonly unknown[]): PromiseLike<unknown> },
  dialect: Dialect = "postgresql",
): Transaction => ({
  dialect,
  query: async (parts, values) =>
    rowsOf(await trx.raw(parts.map((part) => part.replaceAll("?", "\\?")).join("?"), [...values])),
});

/** TypeORM: an `EntityManager` or `QueryRunner` in a transaction. */
export const fromTypeorm = (
  manager: { query(text: string, values: unknown[]): Promise<unknown> },
  dialect: Dialect = "postgresql",
): Transaction => ({
  dialect,
  query: async (parts, values) =>
    rowsOf(await manager.query(dialect === "postgresql" ? numbered(parts, "$") : numbered(parts, "@", 0), [...values])),
});
