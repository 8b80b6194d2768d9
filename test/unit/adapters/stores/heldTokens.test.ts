import { describe, expect, test } from "@jest/globals";
import { HeldTokens } from "../../../../src/adapters/stores/sql/heldTokens.ts";
import { noLowWater } from "../../../../src/adapters/stores/sql/lowWaterMarks.ts";
import type { ClaimToken } from "../../../../src/model/rows.ts";
import { ManualClock } from "../../../support/recorders.ts";

const token = (name: string | number) => String(name) as ClaimToken;
const begin = (held: HeldTokens, name: string | number, ...heldTokens: readonly string[]) =>
  held.begin({ token: token(name), heldTokens: heldTokens.map(token) });

describe("the claims that a process holds", () => {
  test("are those made since the table may have gone back", () => {
    const held = new HeldTokens();
    expect(begin(held, "a")).toEqual([]);
    expect(begin(held, "b", "a")).toEqual(["a"]);
    held.forget();
    expect(begin(held, "c", "a", "b")).toEqual([]);
    expect(begin(held, "d", "a", "c")).toEqual(["c"]);
  });

  test("stay known behind any number of others, which are dropped", () => {
    const held = new HeldTokens();
    begin(held, "old");
    begin(held, "held");
    for (let n = 0; n < 2000; n += 1) begin(held, n, "held");
    expect(begin(held, "last", "held", "1999", "old")).toEqual(["held", "1999"]);
  });

  test("are forgotten with a lost connection", () => {
    const pool = { lostConnections: 0 };
    const { held, bound } = noLowWater(new ManualClock(), pool);
    bound();
    begin(held, "a");
    bound();
    expect(begin(held, "b", "a")).toEqual(["a"]);
    pool.lostConnections = 1;
    bound();
    expect(begin(held, "c", "a", "b")).toEqual([]);
    bound();
    expect(begin(held, "d", "c")).toEqual(["c"]);
  });
});
