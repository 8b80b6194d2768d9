import { describe } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { openPostgres } from "../support/postgresHarness.ts";
import { exerciseStore } from "./store/index.ts";

failOnLeaks();

describe("the PostgreSQL store", () => {
  exerciseStore(openPostgres);
});
