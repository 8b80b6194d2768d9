import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../../../migrations/postgresql", import.meta.url));

/** What `svc migrate` may do once more: indexes are dropped beforehand, the others find their work done. */
const REPEATABLE =
  /^\s*((CREATE|DROP)\s+INDEX\b|CREATE\s+TABLE\s+IF\s+NOT\s+EXISTS\b|ALTER\s+TABLE\s+\w+\s+ALTER\s+COLUMN\s+\w+\s+DROP\s+NOT\s+NULL\b)/i;

/**
 * Statements that take back the last migrations, as far as they can be done once more: `svc migrate` has to make them again, beside the traffic
 * of replicas that do without their indexes.
 */
export function unmigrate(): readonly string[] {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith(".sql"));
  const statements: string[] = [];
  for (const file of files.sort().reverse()) {
    const text = readFileSync(path.join(FOLDER, file), "utf8").replace(/--.*$/gm, "");
    const parts = text.split(";").filter((part) => part.trim() !== "");
    if (!parts.every((part) => REPEATABLE.test(part))) break;
    const made = [...text.matchAll(/CREATE\s+INDEX\s+(?:CONCURRENTLY\s+)?(?:IF\s+NOT\s+EXISTS\s+)?(\w+)/gi)];
    statements.push(
      ...made.map(([, name]) => `DROP INDEX IF EXISTS ${name}`),
      `DELETE FROM svc_migrations WHERE version = ${Number.parseInt(file, 10)}`,
    );
  }
  return statements;
}
