import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * The folder of the bundled migrations: beside `src` in the repository, above `dist` in the package.
 *
 * @throws Error when there is none
 */
export function migrationsDirectory(database: "postgresql" | "sqlserver"): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const candidate = join(folder, "migrations", database);
    if (existsSync(candidate)) return candidate;
    if (dirname(folder) === folder)
      throw new Error("the bundled migrations are missing: the installation is incomplete");
  }
}

/**
 * The statement that makes the table of the destinations, as the bundled migration has it.
 *
 * @param name quoted, and qualified where the configuration names a schema
 */
export function destinationTableStatement(database: "postgresql" | "sqlserver", name: string): string {
  const script = readFileSync(join(migrationsDirectory(database), "007.do.destinations.sql"), "utf8");
  const statement = script.replace(/--.*$/gm, "").replace(/\s+/g, " ").trim();
  return statement.replace(/^CREATE TABLE (?:IF NOT EXISTS )?outbox_destination/, `CREATE TABLE ${name}`);
}
