import { expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, migratedDatabase, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingLog } from "../support/recorders.ts";
import { withStore } from "../support/schemaChecks.ts";

failOnLeaks();

test("the start warns if the settings of statements do not reach the node of the tables", async () => {
  await using database = await migratedDatabase();
  const warnings = async () => {
    const { log, lines } = recordingLog();
    const store = postgresStore(database, DEFAULT_NAMES, new ManualClock(), log);
    await withStore(store, (each) => each.schema.checkColumns());
    return lines.filter(({ level }) => level === "warn");
  };
  expect(await warnings()).toEqual([]);

  await database.query(`ALTER DATABASE ${database.name} SET citus.propagate_set_commands = 'none'`);
  expect(await warnings()).toMatchObject([
    { fields: { setting: "none" }, message: expect.stringMatching(/citus\.propagate_set_commands is not 'local'/) },
  ]);
});
