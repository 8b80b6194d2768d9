import { describe, expect, test } from "@jest/globals";
import { textBatch } from "../../../../src/adapters/stores/sqlserver/texts.ts";

type Place = [at: number | null, length: number | null, pairsBefore: number | null, pairs: number | null];

/** What a server cuts out. */
interface Counting {
  /** 1 when a surrogate pair is one character. */
  readonly paired: 0 | 1;
  readonly characters: (text: string) => readonly string[];
}

const BY_CODE_UNITS: Counting = { paired: 0, characters: (text) => text.split("") };
const BY_CODE_POINTS: Counting = { paired: 1, characters: (text) => [...text] };

/** SUBSTRING as the statements use it. */
function cut(texts: string, place: Place, { paired, characters }: Counting): string | null {
  const [at, length, pairsBefore, pairs] = place;
  if (at === null || length === null || pairsBefore === null || pairs === null) return null;
  const start = at - paired * pairsBefore - 1;
  return characters(texts)
    .slice(start, start + length - paired * pairs)
    .join("");
}

describe("texts of many rows in one parameter", () => {
  const rows = [
    { id: 1, payload: '{"a":"\\"\n\u0001"}', reason: null },
    { id: 2, payload: "", reason: "é漢" },
    { id: 3, payload: "\u{1F600} and \u{1F600}\u{1F600}", reason: "after the pairs" },
    { id: 4, payload: "the end ", reason: null },
  ];

  test.each([
    ["code units", BY_CODE_UNITS],
    ["code points", BY_CODE_POINTS],
  ])("are cut out as they were by a server that counts %s", (_, counting) => {
    const batch = textBatch(rows, ["payload", "reason"]);
    const placed = JSON.parse(batch.rows) as { id: number; payload: Place; reason: Place }[];

    const found = placed.map(({ id, payload, reason }) => ({
      id,
      payload: cut(batch.texts, payload, counting),
      reason: cut(batch.texts, reason, counting),
    }));

    expect(found).toEqual(rows);
  });

  test("have a place in each row, also where there is no text", () => {
    const batch = textBatch([{ reason: null }], ["reason"]);

    expect(batch).toEqual({ rows: '[{"reason":[null,null,null,null]}]', texts: "" });
  });
});
