import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { createDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { blocksOf } from "../support/markdown.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { read } from "../support/repository.ts";

failOnLeaks();

test("every statement of docs/operations.md runs on the migrated schema", async () => {
  const page = read("docs/operations.md");
  const inline = [...page.matchAll(/`((?:SELECT|UPDATE) [^`]+)`/g)].map((match) => match[1] ?? "");
  const statements = [...blocksOf(page, "sql"), ...inline].map((text) =>
    text.replaceAll("'...'", `'${randomUUID()}'`).replace("id = ...", `id = '${randomUUID()}'`),
  );
  await using database = await createDatabase();
  const store = postgresStore(database);
  await store.schema.migrate().finally(() => store.close());

  expect(statements.length).toBeGreaterThan(5);
  for (const statement of statements) await expect(database.query(statement)).resolves.toBeDefined();
});
