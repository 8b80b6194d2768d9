import { existsSync } from "node:fs";
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
