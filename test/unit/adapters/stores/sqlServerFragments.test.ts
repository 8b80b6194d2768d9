import { describe, expect, test } from "@jest/globals";
import { type TextBatch, textBatch } from "../../../../src/adapters/stores/sqlserver/fragments.ts";

type Place = readonly [at: number, bytes: number] | null;

/** SUBSTRING and CONVERT as the statements use them. */
function cut({ texts }: TextBatch, place: Place): string | null {
  if (place === null) return null;
  const [at, bytes] = place;
  return texts.subarray(at - 1, at - 1 + bytes).toString("utf16le");
}

describe("texts of many rows in one parameter", () => {
  const rows = [
    { id: 1, payload: '{"a":"\\"\n\u0001"}', reason: null },
    { id: 2, payload: "", reason: "é漢" },
    { id: 3, payload: "\u{1F600} and \u{1F600}\u{1F600}", reason: "after the pairs" },
    { id: 4, payload: "the end ", reason: null },
  ];

  test("are cut out unchanged", () => {
    const batch = textBatch(rows, ["payload", "reason"]);
    const placed = JSON.parse(batch.rows) as { id: number; payload: Place; reason: Place }[];

    const found = placed.map(({ id, payload, reason }) => ({
      id,
      payload: cut(batch, payload),
      reason: cut(batch, reason),
    }));

    expect(found).toEqual(rows);
  });
});
