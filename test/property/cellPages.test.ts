import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { mergePages, type Order } from "../../src/adapters/stores/cells/merge.ts";
import { placeKey } from "../../src/adapters/stores/cells/messages.ts";
import { cellSequence, DONE, decodePositions, encodePositions, splitSequence } from "../../src/model/cellPositions.ts";
import { settings } from "./settings.ts";

/** A row of a cell's table: `time` null where none is known, `matches` false where a search leaves it out. */
interface Row {
  readonly id: string;
  readonly time: number | null;
  readonly matches: boolean;
  readonly place: string;
}

type Table = readonly Row[];

const ORDER: Order<Row> = {
  keyOf: ({ time, id }) => (time === null ? undefined : { time: BigInt(time), tie: id }),
  keyOfPlace: () => undefined,
  positionOf: ({ place }) => place,
  idOf: ({ id }) => id,
};
/** Places that tell the time, as those of the inbox. */
const TIMED: Order<Row> = {
  ...ORDER,
  keyOfPlace: (place) => {
    const [time = "", id = ""] = place.split(" ");
    return { time: BigInt(time), tie: id };
  },
};

/** What a cell reads from a place on: up to `limit` rows, however few match. */
function read(table: Table, place: string | undefined, limit: number) {
  const from = place === undefined ? 0 : table.findIndex((row) => row.place === place) + 1;
  const looked = table.slice(from, from + limit);
  return {
    rows: looked.filter(({ matches }) => matches),
    next: looked.length < limit ? null : (looked.at(-1)?.place ?? null),
  };
}

/** Every page from a place on. @param limitOf of each page */
function walk(
  tables: Readonly<Record<string, Table>>,
  order: Order<Row>,
  limitOf: (page: number) => number,
  from: string | null = null,
) {
  const shown: { row: Row; cell: string; position: string }[] = [];
  let before = from;
  for (let page = 0; page < 2000; page += 1) {
    const begin = (before === null ? undefined : decodePositions(before)) ?? {};
    const open = Object.entries(tables).filter(([cell]) => begin[cell] !== DONE);
    const parts = open.map(([cell, table]) => ({ cell, ...read(table, begin[cell], limitOf(page)) }));
    const { rows, next } = mergePages(parts, begin, limitOf(page), order);
    shown.push(...rows);
    if (next === null) return shown;
    before = next;
  }
  throw new Error("the pages do not end");
}

const ROW = fc.record({
  time: fc.oneof({ weight: 9, arbitrary: fc.nat(30) }, { weight: 1, arbitrary: fc.constant(null) }),
  matches: fc.boolean(),
  isCopied: fc.boolean(),
});
const TABLES = fc.array(fc.array(ROW, { maxLength: 12 }), { minLength: 1, maxLength: 4 });
const LIMITS = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 5 });

/** In the order in which they were inserted: their times may be in any other. */
function outboxes(given: readonly (readonly { readonly time: number | null; readonly matches: boolean }[])[]) {
  const tables = given.map((rows, c) => {
    const table = rows.map(({ time, matches }, n) => ({ id: `${c}-${n}`, time, matches, place: String(1000 - n) }));
    return [`cell ${c}`, table] as const;
  });
  return Object.fromEntries(tables);
}

/** Newest first; the next cell has a copy of some rows. */
function inboxes(
  given: readonly (readonly {
    readonly time: number | null;
    readonly matches: boolean;
    readonly isCopied: boolean;
  }[])[],
) {
  const own = given.map((rows, c) =>
    rows.map(({ time, matches }, n) => ({
      id: `${c}-${n}`,
      time: time ?? 0,
      matches,
      place: `${time ?? 0} ${c}-${n}`,
    })),
  );
  const tables = own.map((rows, c) => {
    const before = (c + own.length - 1) % own.length;
    const copies = before === c ? [] : (own[before] ?? []).filter((_, n) => given[before]?.[n]?.isCopied);
    const newestFirst = [...rows, ...copies].toSorted((a, b) => b.time - a.time || (a.id < b.id ? 1 : -1));
    return [`cell ${c}`, newestFirst] as const;
  });
  return Object.fromEntries(tables);
}

const byTime = (a: Row, b: Row) => (b.time ?? 0) - (a.time ?? 0) || (a.id < b.id ? 1 : -1);

describe("pages over several cells", () => {
  test("have every row that matches once, each cell in its order, whatever the times", () => {
    fc.assert(
      fc.property(TABLES, LIMITS, (given, limits) => {
        const tables = outboxes(given);
        const shown = walk(tables, ORDER, (page) => limits[page % limits.length] ?? 1);
        for (const [cell, table] of Object.entries(tables)) {
          const own = shown.filter((each) => each.cell === cell).map(({ row }) => row.id);
          expect(own).toEqual(table.filter(({ matches }) => matches).map(({ id }) => id));
        }
      }),
      settings(),
    );
  });

  test("go on behind any row, with pages of other lengths", () => {
    fc.assert(
      fc.property(TABLES, LIMITS, fc.nat(100), (given, limits, at) => {
        const tables = outboxes(given);
        const shown = walk(tables, ORDER, (page) => limits[page % limits.length] ?? 1);
        const behind = shown[at % Math.max(1, shown.length)];
        if (behind === undefined) return;
        const rest = walk(tables, ORDER, () => 3, behind.position);
        const ids = (rows: typeof shown) => rows.map(({ row }) => row.id).toSorted();
        expect(ids(rest)).toEqual(ids(shown.slice(shown.indexOf(behind) + 1)));
      }),
      settings(),
    );
  });

  test("are newest first over all cells where places tell the time, and have a copied row once", () => {
    fc.assert(
      fc.property(TABLES, LIMITS, (given, limits) => {
        const tables = inboxes(given);
        const shown = walk(tables, TIMED, (page) => limits[page % limits.length] ?? 1);
        const all = new Map(Object.values(tables).flatMap((table) => table.map((row) => [row.id, row] as const)));
        const expected = [...all.values()].filter(({ matches }) => matches).toSorted(byTime);
        expect(shown.map(({ row }) => row.id)).toEqual(expected.map(({ id }) => id));
      }),
      settings(),
    );
  });
});

test("a page has a copied row once where a database orders ids of one time in another way", () => {
  const row = (id: string): Row => ({ id, time: 1, matches: true, place: id });
  const parts = [
    { cell: "a", rows: [row("1"), row("2")], next: null },
    { cell: "b", rows: [row("2"), row("3")], next: null },
  ];
  const { rows, next } = mergePages(parts, {}, 10, ORDER);
  expect(rows.map(({ row: { id } }) => id).toSorted()).toEqual(["1", "2", "3"]);
  expect(next).toBeNull();
});

describe("positions", () => {
  test("come back as they were, and no other text is one", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.string()), fc.string(), (positions, text) => {
        expect(decodePositions(encodePositions(positions))).toEqual(positions);
        expect(decodePositions(text)).toBeUndefined();
        expect(decodePositions(`cells.${text}`)).toBeUndefined();
      }),
      settings(),
    );
  });

  test("of rows in sequence order them by cell, then within it", () => {
    const places = fc.tuple(fc.nat(20), fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }));
    fc.assert(
      fc.property(places, places, ([indexA, a], [indexB, b]) => {
        const [first, second] = [cellSequence(indexA, String(a)), cellSequence(indexB, String(b))];
        expect(splitSequence(first)).toEqual({ index: indexA, sequence: String(a) });
        const isBefore = indexA === indexB ? a < b : indexA < indexB;
        expect(BigInt(first) < BigInt(second)).toBe(isBefore);
      }),
      settings(),
    );
  });

  test("of the inbox have the order of their times, in any time zone", () => {
    const keyOf = (place: string) => placeKey(`${place} 0193`)?.time ?? 0n;
    const rising = [
      ["-infinity", "4714-11-24T00:00:00+00:00 BC", "0002-01-01T00:00:00+00:00 BC"],
      ["0001-12-31T23:59:59.9+00:00 BC", "0001-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999999+00:00"],
      ["1970-01-01T00:00:00Z", "2024-02-29T12:00:00.1234567Z", "2024-02-29T18:30:00.123457+06:30"],
      [
        "2024-02-29T11:00:00.123458-01:00",
        "2024-03-01T00:00:00+00:00",
        "294276-12-31T23:59:59.999999+00:00",
        "infinity",
      ],
    ].flat();
    const keys = rising.map(keyOf);
    expect(keys).toEqual(keys.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(new Set(keys).size).toBe(rising.length);
    fc.assert(
      fc.property(fc.date({ min: new Date(0), max: new Date("9999-12-31Z"), noInvalidDate: true }), (date) => {
        expect(keyOf(date.toISOString())).toBe(BigInt(date.getTime()) * 10_000n);
      }),
      settings(),
    );
  });
});
