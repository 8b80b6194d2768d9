import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { migrate } from "../../src/cli/database.ts";
import type { TestDatabase } from "../support/databases.ts";
import { databaseConfig, useServices } from "../support/service.ts";

/** What docs/upgrade.md says of migrations, on PostgreSQL. */

const FOLDER = new URL("../../migrations/postgresql/", import.meta.url);
const FILES = readdirSync(FOLDER).toSorted();
const NAMES = FILES.map((file) => file.replace(/^0*(\d+)\.do\.(.*)\.sql$/, "$1 $2"));
const PAGE = readFileSync(new URL("../../docs/upgrade.md", import.meta.url), "utf8");

const services = useServices();

/** Runs `svc migrate`, and gives what it prints. */
async function migrated(database: TestDatabase): Promise<readonly string[]> {
  let printed = "";
  const stdout = { write: (text: string) => (printed += text) };
  const file = services.configFile({ database: { ...databaseConfig(database), migrate: false } });
  await migrate(file, { env: { LOG_LEVEL: "fatal" }, stdout, stderr: stdout, setExitCode: () => {} });
  return printed.trimEnd().split("\n");
}

/** Applies files in one transaction, as `psql --single-transaction` does. */
async function byHand(database: TestDatabase, files: readonly string[]): Promise<void> {
  await database.query(files.map((file) => readFileSync(new URL(file, FOLDER), "utf8")).join("\n"));
}

test("an old version leaves alone what a newer one has migrated, and a changed file stops it", async () => {
  const database = await services.database();
  expect(await migrated(database)).toEqual([`migrations applied: ${NAMES.join(", ")}`]);
  expect(await migrated(database)).toEqual(["the schema is up to date"]);
  await database.query("INSERT INTO svc_migrations (version, name, md5) VALUES (900, 'later', 'x')");
  expect(await migrated(database)).toEqual(["the schema is up to date"]);

  await database.query("DELETE FROM svc_migrations WHERE version = 900");
  await database.query("UPDATE svc_migrations SET md5 = 'x' WHERE version = 2");
  await expect(migrated(database)).rejects.toThrow("MD5 checksum failed for migration [2]");
  expect(PAGE).toContain("MD5 checksum failed for migration [n]");
});

test("files applied by hand are not in the history: a migration then ends at the first one and changes nothing", async () => {
  const database = await services.database();
  await byHand(database, FILES);
  await expect(migrated(database)).rejects.toThrow('relation "inbox" already exists');
  expect(PAGE).toContain('relation "inbox" already exists');
  expect(await database.query("SELECT to_regclass('svc_migrations') AS history")).toEqual([{ history: null }]);
});

test("an index that was made beforehand is found", async () => {
  const database = await services.database();
  await migrated(database);
  // As a database of 0.1.0 is, which had the first two.
  await database.query("DROP TABLE inbox, outbox, outbox_history");
  await byHand(database, FILES.slice(0, 2));
  await database.query("DELETE FROM svc_migrations WHERE version > 2");

  // But for the index on a column that a migration adds.
  const conditional = FILES.slice(2).flatMap((file) => [
    ...readFileSync(new URL(file, FOLDER), "utf8").matchAll(
      /^CREATE INDEX IF NOT EXISTS \w+ ON (?:inbox|outbox) \((?![^;]*(?:destination|message_sequence))[^;]+;/gm,
    ),
  ]);
  expect(conditional.length).toBeGreaterThan(0);
  for (const [statement] of conditional)
    await database.query(statement.replace("INDEX IF NOT EXISTS", "INDEX CONCURRENTLY"));
  expect(await migrated(database)).toEqual([`migrations applied: ${NAMES.slice(2).join(", ")}`]);
});

test("docs/upgrade.md names every migration since 0.1.0", () => {
  const [row = ""] = PAGE.match(/^\| 0\.1\.0 \|.*$/m) ?? [];
  const named = row
    .split("|")[3]
    ?.split(",")
    .map((number) => number.trim());
  expect(named).toEqual(NAMES.slice(2).map((name) => name.split(" ")[0]));
});
