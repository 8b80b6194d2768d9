import { expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

test.each([
  ["CockroachDB CCL v24.1.18", true],
  ["PostgreSQL 15.2-YB-2.25.0.0-b0 on aarch64-unknown-linux-gnu", false],
  ["PostgreSQL 16", false],
  ["PostgreSQL 12.22 on x86_64-pc-linux-gnu", false],
])(
  "another engine with PostgreSQL's protocol, or an old version, ends the start: %s (database.migrate: %s)",
  async (version, migrate) => {
    const database = await services.database();
    await database.query(
      `CREATE SCHEMA fake; CREATE FUNCTION fake.version() RETURNS text LANGUAGE sql AS $$ SELECT '${version}' $$`,
    );
    await database.query(`ALTER DATABASE ${database.name} SET search_path = fake, pg_catalog`);
    const config = ordersTo(await services.receiver(), { database: { migrate } });

    const { exited, stderr } = (await services.launch({ database, config })).process;

    expect((await exited).code).toBe(2);
    expect(stderr.join("\n")).toContain(`database.url: the database is ${version}: use PostgreSQL 13 or newer`);
  },
);
