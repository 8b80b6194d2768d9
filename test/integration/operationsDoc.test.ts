import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { createDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { blocksOf } from "../support/markdown.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { read } from "../support/repository.ts";

failOnLeaks();

test.each(["docs/operations.md", "docs/runbook.md"])(
  "every statement of %s runs on the migrated schema",
  async (file) => {
    const page = read(file);
    const inline = [...page.matchAll(/`((?:SELECT|UPDATE) [^`]+)`/g)].map((match) => match[1] ?? "");
    const statements = [...blocksOf(page, "sql"), ...inline].map((text) =>
      text.replaceAll("'...'", `'${randomUUID()}'`).replace("id = ...", `id = '${randomUUID()}'`),
    );
    await using database = await createDatabase();
    const store = postgresStore(database);
    await store.schema.migrate().finally(() => store.close());

    expect(statements.length).toBeGreaterThan(4);
    for (const statement of statements) await expect(database.query(statement)).resolves.toBeDefined();
  },
);
