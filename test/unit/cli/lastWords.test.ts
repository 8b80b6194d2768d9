import { expect, test } from "@jest/globals";
import { lastWords } from "../../../src/cli/io.ts";
import { prepare } from "../../../src/cli/run.ts";

test("the last words of a process whose password is svc still say what to run", () => {
  const database = { SVC_DATABASE_URL: "jdbc:postgresql://localhost/shop", SVC_DATABASE_USERNAME: "shop" };
  const env = { ...database, SVC_DATABASE_PASSWORD: "svc" };
  prepare({ env, file: undefined, roles: ["poller"], once: false });
  expect(lastWords(new Error("the table outbox is missing: run svc migrate"))).toBe(
    "the table outbox is missing: run svc migrate",
  );
  expect(lastWords(new Error("connecting with password=svc failed"))).toBe("connecting with password=*** failed");
});
