import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { mergePages } from "../../src/adapters/stores/cells/index.ts";
import { cellSequence, DONE, readPositions, splitSequence } from "../../src/model/cellPositions.ts";
import type { FoundMessage } from "../../src/ports/messageStore.ts";
import { settings } from "./settings.ts";

/** A row of a cell's table: `time` null if none is known, `matches` false if a search leaves it out. */
interface Row {
  readonly time: number | null;
  readonly matches: boolean;
}

const ROW = fc.record({ time: fc.option(fc.nat(30), { freq: 9 }), matches: fc.boolean() });
const TABLES = fc.array(fc.array(ROW, { maxLength: 12 }), { minLength: 1, maxLength: 4 });
const LIMITS = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 5 });

/** Every page from a position on. A cell reads up to `limit` rows, however few match. */
function walk(tables: readonly (readonly Row[])[], limits: readonly number[], from: string | null = null) {
  const shown: FoundMessage[] = [];
  let before = from;
  for (let page = 0; page < 2000; page += 1) {
    const limit = limits[page % limits.length] ?? 1;
    const begin = (before === null ? undefined : readPositions(before)) ?? [];
    const parts = tables.flatMap((table, place) => {
      if (begin[place] === DONE) return [];
      const first = Number(begin[place] ?? 0);
      const looked = table.slice(first, first + limit).map(({ time, matches }, n) => ({
        ...{ id: `${place}-${first + n}`, position: String(first + n + 1), matches },
        createdAt: time === null ? null : new Date(time),
      }));
      const rows = looked.filter(({ matches }) => matches) as object[] as FoundMessage[];
      const next = looked.length < limit ? null : String(first + limit);
      return [{ cell: { name: `${place}`, place }, rows, next }];
    });
    const { rows, next } = mergePages(parts, begin, limit);
    expect(rows.length).toBeLessThanOrEqual(limit);
    shown.push(...rows);
    if (next === null) return shown;
    before = next;
  }
  throw new Error("the pages do not end");
}

const idsOf = (rows: readonly FoundMessage[]): readonly string[] => rows.map(({ id }) => id);

describe("pages over several cells", () => {
  test("have every row that matches once, each cell in its order, and continue behind any row", () => {
    fc.assert(
      fc.property(TABLES, LIMITS, fc.nat(100), (tables, limits, at) => {
        const shown = walk(tables, limits);
        for (const [place, table] of tables.entries()) {
          const own = shown.filter(({ cell }) => cell === String(place));
          expect(idsOf(own)).toEqual(table.flatMap(({ matches }, n) => (matches ? [`${place}-${n}`] : [])));
        }
        const behind = shown[at % Math.max(1, shown.length)];
        if (behind === undefined) return;
        const rest = walk(tables, [3], behind.position);
        expect(idsOf(rest).toSorted()).toEqual(idsOf(shown.slice(shown.indexOf(behind) + 1)).toSorted());
      }),
      settings(),
    );
  });

  test("are newest first over all cells if every row matches", () => {
    fc.assert(
      fc.property(TABLES, LIMITS, (given, limits) => {
        const times = given.map((rows) => rows.map(({ time }) => time ?? 0).toSorted((a, b) => b - a));
        const shown = walk(
          times.map((own) => own.map((time) => ({ time, matches: true }))),
          limits,
        );
        expect(shown.map(({ createdAt }) => Number(createdAt))).toEqual(times.flat().toSorted((a, b) => b - a));
      }),
      settings(),
    );
  });
});

test("sequences of several cells order rows by cell, then within it", () => {
  const places = fc.tuple(fc.nat(20), fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }));
  fc.assert(
    fc.property(places, places, ([placeA, a], [placeB, b]) => {
      const [first, second] = [cellSequence(placeA, String(a)), cellSequence(placeB, String(b))];
      expect(splitSequence(first)).toEqual({ place: placeA, sequence: String(a) });
      expect(BigInt(first) < BigInt(second)).toBe(placeA === placeB ? a < b : placeA < placeB);
    }),
    settings(),
  );
});
