import { expect, test } from "@jest/globals";
import { SqlServerPool } from "../../src/adapters/stores/sqlserver/pool.ts";
import type { Statement } from "../../src/adapters/stores/sqlserver/statement.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { silentLog } from "../support/recorders.ts";
import { describeWithSqlServer } from "../support/sqlServer.ts";
import { createSqlServerDatabase } from "../support/sqlServerDatabases.ts";
import { connectionToSqlServer } from "../support/sqlServerHarness.ts";

const raise: Statement = {
  name: "raise",
  text: "UPDATE things SET n = n + 1 WHERE id = @id;",
  parameters: { id: "int" },
};

describeWithSqlServer("the connection pool of SQL Server", () => {
  failOnLeaks();

  test("a transaction that is chosen as a deadlock victim is run again", async () => {
    await using database = await createSqlServerDatabase();
    await database.query("CREATE TABLE things (id int NOT NULL PRIMARY KEY, n int NOT NULL)");
    await database.query("INSERT INTO things (id, n) VALUES (1, 0), (2, 0)");
    const pool = new SqlServerPool({ ...connectionToSqlServer(database), poolSize: 2 }, silentLog);
    let begun = 0;
    let held = 0;
    let bothHold = (): void => {};
    const holding = new Promise<void>((resolve) => {
      bothHold = resolve;
    });
    /** Changes one row, then, once the other transaction has done the same, the other's. */
    const crossing = (name: string, first: number, second: number) =>
      pool.transaction({ name }, async (transaction) => {
        begun += 1;
        await transaction.run(raise, { id: first });
        held += 1;
        if (held === 2) bothHold();
        await holding;
        await transaction.run(raise, { id: second });
      });

    await Promise.all([crossing("there", 1, 2), crossing("back", 2, 1)]).finally(() => pool.close());

    expect(begun).toBeGreaterThan(2);
    expect(await database.query("SELECT id, n FROM things ORDER BY id")).toEqual([
      { id: 1, n: 2 },
      { id: 2, n: 2 },
    ]);
  });
});
