import { describe, expect, test } from "@jest/globals";
import { hasGivenUp, toStoreError } from "../../../../src/adapters/stores/sqlserver/pool.ts";
import { StoreError, type StoreErrorCode } from "../../../../src/model/errors.ts";

/** An error as the driver gives it: with the server's number, or with a code of its own. */
function driverError(name: string, message: string, more: { readonly number?: number; readonly code?: string }): Error {
  return Object.assign(new Error(message), { name, ...more });
}

function serverError(number: number, message = `error ${number} of the server`): Error {
  return driverError("RequestError", message, { number, code: "EREQUEST" });
}

test("of a deadlock or a lock in a trigger is that of one row", () => {
  const inTrigger = Object.assign(serverError(1222), { procName: "shop.orders_audit" });
  expect(toStoreError("outbox.claim", inTrigger).code).toBe("busy");
  expect(toStoreError("outbox.claim", Object.assign(serverError(1222), { procName: "" })).code).toBe("contention");
});

describe("the code of an error", () => {
  test.each<[number, string, StoreErrorCode]>([
    [1205, "deadlock victim", "contention"],
    [40613, "the database is moving", "unavailable"],
    [2628, "text would be cut off", "data"],
    [2627, "unique constraint", "duplicate"],
    [3609, "a trigger ended the transaction", "refused"],
    [208, "no such table", "schema"],
    [51234, "THROW with a number of its own", "refused"],
    [8016, "a parameter longer than its type", "data"],
    [1101, "no room in a file group", "unavailable"],
    [3967, "no room for row versions", "contention"],
    [39_999, "a number that is not listed", "other"],
  ])("%i, %s, is %s", (number, _, code) => {
    expect(toStoreError("outbox.claim", serverError(number))).toMatchObject({ name: "StoreError", code });
  });

  test("that is not listed is of the server from severity 17 on", () => {
    const ofSeverity = (severity: number) => Object.assign(serverError(39_999), { class: severity });
    expect(toStoreError("outbox.claim", ofSeverity(17)).code).toBe("unavailable");
    expect(toStoreError("outbox.claim", ofSeverity(16)).code).toBe("other");
  });

  test("tells whether the statement has waited for a lock for as long as it may", () => {
    expect(hasGivenUp(toStoreError("outbox.settle", serverError(1222)))).toBe(true);
    expect(hasGivenUp(toStoreError("outbox.settle", serverError(1205)))).toBe(false);
    expect(hasGivenUp(serverError(1222))).toBe(false);
  });

  test.each([
    ["no connection", driverError("ConnectionError", "Failed to connect to db:1433", { code: "ESOCKET" })],
    ["the login is refused", driverError("ConnectionError", "Login failed", { code: "ELOGIN" })],
    ["no answer in time", driverError("RequestError", "Timeout: Request failed to complete", { code: "ETIMEOUT" })],
    ["no free connection in time", driverError("TimeoutError", "operation timed out for an unknown reason", {})],
    ["a transaction whose connection broke", driverError("TransactionError", "aborted", { code: "EABORT" })],
    ["the socket", driverError("Error", "read ECONNRESET", { code: "ECONNRESET" })],
  ])("%s, which has no number, is unavailable", (_, error) => {
    expect(toStoreError("ping", error).code).toBe("unavailable");
  });

  test("an error of ours is other, and a StoreError stays unchanged", () => {
    expect(toStoreError("ping", new TypeError("x is no function")).code).toBe("other");
    const error = new StoreError("data", "already told");
    expect(toStoreError("ping", error)).toBe(error);
  });
});

describe("the message of an error", () => {
  test.each([
    [
      2627,
      "Violation of UNIQUE KEY constraint 'k'. Cannot insert duplicate key in object 'dbo.inbox'. The duplicate key value is (orders, 4111).",
    ],
    [
      2601,
      "Cannot insert duplicate key row in object 'dbo.inbox' with unique index 'k'. The duplicate key value is (orders, a.b (4111)\n4111).",
    ],
    [
      2628,
      "String or binary data would be truncated in table 'd.dbo.inbox', column 'source'. Truncated value: '4111'.",
    ],
    [245, "Conversion failed when converting the nvarchar value '4111' to data type int."],
  ])("%i: values of a row are left out, in the cause too", (number, text) => {
    const error = toStoreError("inbox.insert", serverError(number, text));
    expect(`${error.message} ${error.cause} ${JSON.stringify(error.cause)}`).not.toContain("4111");
    expect(error.message).toMatch(/^inbox\.insert: .*(dbo\.inbox|nvarchar).*error/s);
  });
});
