import { describe, expect, test } from "@jest/globals";
import { isPreparationLost, toStoreError } from "../../../../src/adapters/stores/postgres/errors.ts";
import type { StoreErrorCode } from "../../../../src/model/errors.ts";

const serverError = (code: string, more: object = {}, message = "of the server") =>
  Object.assign(new Error(message), { code, ...more });

const TRIGGER = { where: 'PL/pgSQL function ask() line 1 at PERFORM\nSQL statement "SELECT FROM orders"' };
const RAISED = { where: "PL/pgSQL function ask() line 1 at RAISE", routine: "exec_stmt_raise" };
/** Of our own statement. */
const TUPLE = { where: 'while updating tuple (0,5) in relation "outbox"' };

describe("the code of an error", () => {
  test.each<[string, object, StoreErrorCode]>([
    ["55P03", {}, "contention"],
    ["55P03", TUPLE, "contention"],
    ["40P01", TUPLE, "contention"],
    ["55P03", TRIGGER, "busy"],
    ["40P01", { where: `${TUPLE.where}\n${TRIGGER.where}` }, "busy"],
    ["57014", TRIGGER, "busy"],
    ["08006", {}, "unavailable"],
    ["08001", TRIGGER, "busy"],
    ["53400", RAISED, "busy"],
    ["57P01", {}, "unavailable"],
    // An operator ends the session while a trigger runs.
    ["57P01", TRIGGER, "unavailable"],
    ["57P01", RAISED, "busy"],
    ["25006", TRIGGER, "unavailable"],
    ["P0001", RAISED, "refused"],
    ["22003", TRIGGER, "data"],
  ])("%s with %j is %s", (state, fields, code) => {
    expect(toStoreError("outbox.claim", serverError(state, fields)).code).toBe(code);
  });
});

test.each([
  ['invalid input syntax for type integer: "4111 "x" 1111"', "invalid input syntax for type integer"],
  ['value "4111111111111111" is out of range for type integer', "value ... is out of range for type integer"],
  ['invalid value "pw"d!" for "YYYY"', "invalid value ..."],
  ["la valeur « 4111 » est en dehors des limites", "la valeur ... est en dehors des limites"],
  ["division by zero", "division by zero"],
])("of class 22 says %s without the value", (message, told) => {
  expect(toStoreError("outbox.settle", serverError("22003", {}, message)).message).toBe(
    `outbox.settle: ${told} (SQLSTATE 22003)`,
  );
});

test.each<[string, object, boolean]>([
  ["26000", {}, true],
  ["42P05", { where: "while executing command on worker:5432" }, true],
  ["0A000", { routine: "RevalidateCachedQuery" }, true],
  ["0A000", { routine: "RevalidateCachedQuery", ...TRIGGER }, false],
  ["26000", TRIGGER, false],
  ["42P05", RAISED, false],
])("a preparation is lost: %s with %j: %s", (state, fields, isLost) => {
  expect(isPreparationLost(serverError(state, fields))).toBe(isLost);
});
