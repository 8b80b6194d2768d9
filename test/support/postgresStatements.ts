import type pg from "pg";
import { BUNDLED_TYPES } from "../../src/adapters/stores/postgres/columns.ts";
import { fixedStatements, tableStatements } from "../../src/adapters/stores/postgres/index.ts";
import type { Statement } from "../../src/adapters/stores/postgres/statement.ts";
import { quoteNames } from "../../src/adapters/stores/sql/names.ts";
import { DEFAULT_NAMES } from "./postgresHarness.ts";

/** The store's statements on its tables that run on Citus, by their names; several of one name are numbered. */
export function everyStatement(): ReadonlyMap<string, Statement> {
  const names = quoteNames(DEFAULT_NAMES, (name) => `"${name}"`);
  const texts = new Set<string>();
  const found = new Map<string, Statement>();
  const add = (statement: Statement): void => {
    if (texts.has(statement.text)) return;
    texts.add(statement.text);
    let name = statement.name;
    for (let number = 2; found.has(name); number += 1) name = `${statement.name} (${number})`;
    found.set(name, statement);
  };
  const walk = (value: unknown): void => {
    // A statement for each limit; other functions are about values.
    if (typeof value === "function") {
      const made = value.length <= 1 ? attempt(() => value(100)) : undefined;
      if (isStatement(made)) add(made);
      return;
    }
    if (typeof value !== "object" || value === null) return;
    if (isStatement(value)) add(value);
    else for (const [key, each] of Object.entries(value)) if (key !== "dialect") walk(each);
  };
  walk(fixedStatements(names));
  walk(tableStatements(names, BUNDLED_TYPES, true, true));
  return found;
}

function isStatement(value: unknown): value is Statement {
  const { name, text } = (value ?? {}) as Partial<Statement>;
  return typeof name === "string" && typeof text === "string";
}

function attempt(make: () => unknown): unknown {
  try {
    return make();
  } catch {
    return undefined;
  }
}

/** Prepares a statement under a name. @returns the types of its parameters, as the server has found them */
export async function prepare(client: pg.ClientBase, name: string, text: string): Promise<readonly string[]> {
  // As its own message, so that it is one command.
  await client.query({ text: `PREPARE ${name} AS ${text}`, queryMode: "extended" } as pg.QueryConfig);
  const { rows } = await client.query<{ types: string[] }>(
    "SELECT parameter_types::text[] AS types FROM pg_prepared_statements WHERE name = $1",
    [name],
  );
  return rows[0]?.types ?? [];
}
