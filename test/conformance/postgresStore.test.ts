import { describe } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresHarnesses } from "../support/postgresHarness.ts";
import { exerciseStore } from "./store/index.ts";

failOnLeaks();

describe("the PostgreSQL store", () => {
  exerciseStore(postgresHarnesses());
});
