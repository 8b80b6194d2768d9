import { describe, expect, test } from "@jest/globals";
import { textArray, uuidArray } from "../../../../src/adapters/stores/postgres/statement.ts";

// Dimensions, null flag, element type, length, lower bound.
const header = (type: string, length: string) => `0000000100000001${type}${length}00000001`;

describe("array parameters in PostgreSQL's binary format", () => {
  test("texts with their length in bytes, -1 for null", () => {
    expect(textArray(["é", null, ""]).toString("hex")).toBe(
      `${header("00000019", "00000003")}00000002c3a9ffffffff00000000`,
    );
  });

  test("UUIDs as 16 bytes each", () => {
    const ids = ["01234567-89ab-cdef-0123-456789abcdef", "FFFFFFFF-0000-0000-0000-000000000001"];
    expect(uuidArray(ids).toString("hex")).toBe(
      `${header("00000b86", "00000002")}000000100123456789abcdef0123456789abcdef00000010ffffffff000000000000000000000001`,
    );
  });

  test.each(["", "01234567-89ab-cdef-0123-456789abcde", "01234567-89ab-cdef-0123-456789abcdeg", "x".repeat(36)])(
    "%j is refused by name",
    (bad) => {
      expect(() => uuidArray(["01234567-89ab-cdef-0123-456789abcdef", bad])).toThrow(
        `${JSON.stringify(bad)} is not a UUID`,
      );
    },
  );
});
