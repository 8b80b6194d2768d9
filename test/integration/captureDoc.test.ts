import { expect, test } from "@jest/globals";
import { createDatabase, onServer } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { blocksOf } from "../support/markdown.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { read } from "../support/repository.ts";

failOnLeaks();

test("the statements of docs/capture.md set logical replication up, watch it and remove it", async () => {
  const page = read("docs/capture.md");
  const postgres = page.slice(page.indexOf("## PostgreSQL"), page.indexOf("## SQL Server"));
  await using database = await createDatabase();
  const store = postgresStore(database);
  await store.schema.migrate().finally(() => store.close());
  const name = database.name.slice(0, 60);
  const statements = blocksOf(postgres, "sql")
    .flatMap((block) => block.split(";"))
    .map((text) => text.replace(/^ *--.*$/gm, "").trim())
    // Those of the whole server would change it for the tests beside this one; its own default is a logical log.
    .filter((text) => text !== "" && !/^ALTER SYSTEM|pg_reload_conf/.test(text))
    .map((text) => text.replaceAll("svc_outbox", name).replace("ROLE relay", `ROLE "${name}"`));

  await onServer(`CREATE ROLE "${name}"`);
  try {
    const made = statements.findIndex((text) => text.startsWith("ALTER ROLE")) + 1;
    for (const statement of statements.slice(0, made)) await database.query(statement);
    await database.query("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [name]);
    for (const statement of statements.slice(made)) await expect(database.query(statement)).resolves.toBeDefined();
  } finally {
    await onServer(`DROP ROLE "${name}"`);
  }
  expect(statements.length).toBeGreaterThan(5);
  expect(await database.query("SELECT FROM pg_publication")).toEqual([]);
  expect(await onServer("SELECT FROM pg_replication_slots WHERE slot_name = $1", [name])).toEqual([]);
});
