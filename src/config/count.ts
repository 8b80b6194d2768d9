import { readJdbcUrl } from "./checks/sections.ts";
import { schemaOf } from "./databases.ts";
import { formatKeyPath, type Origin, originAt } from "./keyPath.ts";
import { found } from "./mask.ts";
import { databaseSchema } from "./schema/database.ts";
import type { Finding } from "./shape.ts";
import { syntaxError } from "./validate.ts";

/**
 * Lists the cells of a count: one in each of the schemas `<schema>_0`, `<schema>_1` and so on of `database.url`.
 *
 * @param database the section, not validated yet; a count in it becomes a list
 * @param origins get those of the list's values
 * @returns what is wrong with the count
 */
export function listCells(database: unknown, origins: Map<string, Origin>): Finding[] {
  const section = (database ?? {}) as { cells?: unknown; readonly type?: unknown; readonly url?: unknown };
  const { cells: count, type, url } = section;
  if (count === undefined || Array.isArray(count)) return [];
  section.cells = [];
  const path = ["database", "cells"];
  const most = databaseSchema.properties.cells.orCount;
  if (typeof count !== "number" || count < 1 || count > most) {
    const message = `expected a list, or a whole number from 1 to ${most}, found ${found({}, "cells", count)}`;
    return [{ path, message }];
  }
  if (type === "sqlserver")
    return [{ path, message: "cannot be a number on sqlserver: list the cells, each with a url" }];
  const parsed = readJdbcUrl({ type: "postgresql", url: String(url) });
  // The URL has its own problem.
  if (typeof parsed === "string" || parsed.target.type !== "postgresql") return [];
  const schema = schemaOf(parsed.target);
  const names = Array.from({ length: count }, (_, n) => `${schema}_${n}`);
  const wrong = syntaxError("captureName", names.at(-1) ?? "");
  if (wrong !== undefined) {
    const message = `cannot be a number with the schema ${schema}, which gives the cells their names (${wrong}): list the cells`;
    return [{ path, message }];
  }
  section.cells = names.map((name) => ({ name, schema: name }));
  const origin = originAt(origins, path);
  for (const key of ["name", "schema"])
    for (const n of names.keys()) if (origin !== undefined) origins.set(formatKeyPath([...path, n, key]), origin);
  return [];
}
