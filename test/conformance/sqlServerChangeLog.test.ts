import { sqlServerCdc } from "../../src/adapters/capture/sqlServerCdc.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { OPTIONS, PASSWORD, ScriptedCdc } from "../unit/adapters/capture/scriptedCdc.ts";
import { changeLogConformance } from "./changeLog.ts";

failOnLeaks();

// The adapter is the real one; the server is the script that its unit tests use.
changeLogConformance("change data capture of SQL Server", async () => {
  const server = new ScriptedCdc();
  return {
    changes: server.changeLog(),
    unreachable: sqlServerCdc(OPTIONS),
    secret: PASSWORD,
    foreignPosition: "0/16B3748",
    insert: async () => server.commit(2),
    changeOtherwise: async () => {
      server.commit(3);
      server.commit(1);
    },
    released: async () => {},
    close: async () => {},
  };
});
