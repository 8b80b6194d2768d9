import { describe } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { describeWithSqlServer } from "../support/sqlServer.ts";
import { sqlServerHarness } from "../support/sqlServerHarness.ts";
import { exerciseStore } from "./store/index.ts";

failOnLeaks();

describeWithSqlServer("the SQL Server store", () => {
  describe("if readers wait for locks", () => {
    exerciseStore(sqlServerHarness({ readCommittedSnapshot: false }));
  });

  describe("if readers see row versions (READ_COMMITTED_SNAPSHOT)", () => {
    exerciseStore(sqlServerHarness({ readCommittedSnapshot: true }));
  });
});
