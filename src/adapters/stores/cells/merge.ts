import { type CellPositions, DONE, encodePositions } from "../../../model/cellPositions.ts";

/** Merges lists of several cells, each in its own order, into one. */

/** A part of a list that comes in pages. */
interface Part<T> {
  readonly cell: string;
  /** Newest first. */
  readonly rows: readonly T[];
  /** Where it goes on; null at its end. */
  readonly next: string | null;
}

/** Of what is merged. The newest has the greatest key. */
export interface Order<T> {
  /** Undefined for a row that has no time: it goes with the one before it. */
  readonly keyOf: (row: T) => Key | undefined;
  /** The key of a place where a part goes on; undefined where that is not known. */
  readonly keyOfPlace: (place: string) => Key | undefined;
  readonly positionOf: (row: T) => string;
  /** Rows of the same id are copies of one. */
  readonly idOf: (row: T) => string;
}

/** A time, and what orders rows of the same time. */
export interface Key {
  readonly time: bigint;
  readonly tie: string;
}

interface Merged<T> {
  /** With their cell, and the position behind them in every cell. */
  readonly rows: readonly { readonly row: T; readonly cell: string; readonly position: string }[];
  readonly next: string | null;
}

/**
 * Merges pages, newest first. A row that may have a newer one in a part that goes on waits for the next page: no row
 * comes twice and none is missed, and the order holds as far as the keys of the places are known.
 *
 * @param begin where the parts began
 * @param limit most rows
 */
export function mergePages<T>(
  parts: readonly Part<T>[],
  begin: CellPositions,
  limit: number,
  order: Order<T>,
): Merged<T> {
  const lists = parts.map((part) => new List(part, order));
  const horizon = newestOf(lists.flatMap(({ bound }) => bound ?? []));
  const rows: { row: T; cell: string; position: string }[] = [];
  const shown = new Set<string>();
  const places: Record<string, string> = { ...begin };
  while (rows.length < limit) {
    const first = newestList(lists);
    if (first === undefined || (horizon !== undefined && compare(first.key, horizon) < 0)) break;
    const { row, list } = first;
    const id = order.idOf(row);
    // A copy has the same key, so that it is the head of its list now.
    for (const each of lists) if (each.isAt(id)) places[each.cell] = each.take();
    if (shown.has(id)) continue;
    shown.add(id);
    rows.push({ row, cell: list.cell, position: encodePositions(places) });
  }
  for (const list of lists) if (list.isEmpty) places[list.cell] = list.next ?? DONE;
  const isEnd = lists.every(({ isEmpty, next }) => isEmpty && next === null);
  return { rows, next: isEnd ? null : encodePositions(places) };
}

/** The rows of one part that are not taken yet. */
class List<T> {
  readonly cell: string;
  readonly next: string | null;
  /** No row behind this part is newer; undefined at its end, and where nothing is known. */
  readonly bound: Key | undefined;
  readonly #rows: readonly { readonly row: T; readonly key: Key }[];
  readonly #order: Order<T>;
  #taken = 0;

  constructor({ cell, rows, next }: Part<T>, order: Order<T>) {
    this.cell = cell;
    this.next = next;
    this.#order = order;
    // A part is merged in its own order, whatever its times: a row counts as no newer than the one before it.
    let before = NEWEST;
    this.#rows = rows.map((row) => {
      const key = order.keyOf(row);
      if (key !== undefined && compare(key, before) < 0) before = key;
      return { row, key: before };
    });
    const last = this.#rows.at(-1)?.key;
    const place = next === null ? undefined : order.keyOfPlace(next);
    const isPlaceOlder = place !== undefined && (last === undefined || compare(place, last) < 0);
    // Never newer than its own rows: the part with the newest bound is taken as a whole, so that every page goes on.
    this.bound = next === null ? undefined : isPlaceOlder ? place : last;
  }

  get head(): { readonly row: T; readonly key: Key } | undefined {
    return this.#rows[this.#taken];
  }

  get isEmpty(): boolean {
    return this.#taken === this.#rows.length;
  }

  isAt(id: string): boolean {
    return this.head !== undefined && this.#order.idOf(this.head.row) === id;
  }

  /** Takes the head. @returns its position */
  take(): string {
    const row = this.head?.row as T;
    this.#taken += 1;
    return this.#order.positionOf(row);
  }
}

const NEWEST: Key = { time: 2n ** 100n, tie: "" };

function newestList<T>(lists: readonly List<T>[]) {
  let first: { readonly row: T; readonly key: Key; readonly list: List<T> } | undefined;
  for (const list of lists) {
    const { head } = list;
    if (head !== undefined && (first === undefined || compare(head.key, first.key) > 0)) first = { ...head, list };
  }
  return first;
}

function newestOf(keys: readonly Key[]): Key | undefined {
  return keys.reduce<Key | undefined>((newest, key) => (newest && compare(newest, key) >= 0 ? newest : key), undefined);
}

function compare(a: Key, b: Key): number {
  if (a.time !== b.time) return a.time < b.time ? -1 : 1;
  return a.tie < b.tie ? -1 : Number(a.tie > b.tie);
}

/** Lists that come whole, in the order that `compareRows` says. */
export function mergeLists<T>(
  lists: readonly (readonly T[])[],
  compareRows: (a: T, b: T) => number,
  limit: number,
): readonly T[] {
  // Sorting keeps the order of rows that are equal.
  return lists.flat().toSorted(compareRows).slice(0, limit);
}

/** For {@link mergeLists}: the newest first, those without a time last. */
export function newestFirst<T>(timeOf: (row: T) => Date | null): (a: T, b: T) => number {
  const at = (row: T) => timeOf(row)?.getTime() ?? Number.NEGATIVE_INFINITY;
  return (a, b) => Math.sign(at(b) - at(a)) || 0;
}
