/** What the server answers for the named columns, as the check asks for them. */
export function bundledColumns(asked: unknown) {
  const typeOf = (name: string) => {
    if (name === "id" || name.endsWith("_token")) return "uniqueidentifier";
    if (name.endsWith("sequence") || name.startsWith("rate_taken")) return "bigint";
    if (name.endsWith("attempts") || name === "attempt" || name === "openings") return "int";
    return /_(at|until|second)$/.test(name) ? "datetimeoffset" : "nvarchar";
  };
  const columns = asked as readonly { name: string }[];
  const found = { table_id: 1, nullable: false, bytes: -1, scale: 7, collation: "Latin1_General_100_BIN2" };
  return columns.map(({ name }) => ({ ...found, name, type: typeOf(name) }));
}

/** Those without which the start stops. */
export const BUNDLED_INDEXES = [["id"], ["source", "idempotency_key"]].flatMap((names, index_id) =>
  names.map((name) => ({ index_id, name, is_unique: true, has_filter: false })),
);
