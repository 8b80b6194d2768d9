import { expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

test.each([true, false])(
  "another engine with PostgreSQL's protocol ends the start (database.migrate: %s)",
  async (migrate) => {
    const database = await services.database();
    await database.query(
      "CREATE SCHEMA fake; CREATE FUNCTION fake.version() RETURNS text LANGUAGE sql AS $$ SELECT 'CockroachDB CCL v24.1.18' $$",
    );
    await database.query(`ALTER DATABASE ${database.name} SET search_path = fake, pg_catalog`);
    const config = ordersTo(await services.receiver(), { database: { migrate } });

    const { exited, stderr } = (await services.launch({ database, config })).process;

    expect((await exited).code).toBe(2);
    expect(stderr.join("\n")).toContain(
      "database.url: the database is CockroachDB, whose transactions have no numbers",
    );
  },
);
