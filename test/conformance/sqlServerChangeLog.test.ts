import { type SqlServerCdcOptions, sqlServerCdc } from "../../src/adapters/capture/sqlserver-cdc/index.ts";
import { systemClock } from "../../src/time/clock.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { recordingLog } from "../support/recorders.ts";
import { ENDPOINT, lsn, PASSWORD, ScriptedCdc } from "../unit/adapters/capture/scriptedCdc.ts";
import { changeLogConformance } from "./changeLog.ts";

failOnLeaks();

// The adapter is the real one; the server is the script that its unit tests use.
changeLogConformance("change data capture of SQL Server", async () => {
  const server = new ScriptedCdc();
  const { log, lines } = recordingLog();
  let end = 100;
  const commit = (operation: 1 | 2 | 3): void => {
    end += 1;
    server.changes.push({ lsn: lsn(end), operation, ageMs: 0 });
    server.highest = lsn(end);
  };
  const options: SqlServerCdcOptions = {
    ...ENDPOINT,
    table: { schema: "dbo", name: "outbox", idColumn: "id" },
    clock: systemClock,
    log,
    // One turn of the event loop: the server answers at once.
    wait: () => new Promise((resolve) => setImmediate(resolve)),
  };
  return {
    changes: sqlServerCdc(options, server.open),
    unreachable: sqlServerCdc({ ...options, port: 1 }),
    secret: PASSWORD,
    foreignPosition: "0/16B3748",
    insert: async () => commit(2),
    changeOtherwise: async () => {
      commit(3);
      commit(1);
    },
    released: async () => {},
    warnings: () => lines.filter(({ level }) => level === "warn").map(({ message }) => message),
    close: async () => {},
  };
});
