import { DONE, positionsText, readPositions } from "../../../model/cellPositions.ts";
import type { FoundMessage, MessagePage, MessageStore, StoredMessage } from "../../../ports/messageStore.ts";
import type { Store } from "../../../ports/store.ts";
import { failed, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";

/** Messages of all cells. A message is in one of them, with both of its rows. */
export function cellMessages(cells: readonly CellLink[]): MessageStore {
  const first = async <T>(read: (messages: MessageStore) => Promise<T | undefined>): Promise<T | undefined> => {
    const { answers } = await readAll(cells, ({ messages }) => read(messages));
    return answers.find(({ value }) => value !== undefined)?.value;
  };
  return {
    async get(id, withPayload) {
      const { answers, failures } = await readAll(cells, ({ messages }) => messages.get(id, withPayload));
      const own = answers.find(({ value }) => (value.outbox ?? value.inbox) !== undefined);
      if (own !== undefined) return { ...own.value, cell: own.cell.name };
      if (failures.length > 0) throw failed(failures, `the others have no message ${id}`);
      return answers[0]?.value as StoredMessage;
    },

    async byIdempotencyKey(sources, key) {
      const { answers } = await readAll(cells, ({ messages }) => messages.byIdempotencyKey(sources, key));
      return answers.flatMap(({ value }) => value);
    },

    rowBefore: (id, destination) => first((messages) => messages.rowBefore(id, destination)),
    lockHolder: (id) => first((messages) => messages.lockHolder(id)),
    outboxPage: (search, before, limit) =>
      page(cells, before, limit, ({ messages }, place) => messages.outboxPage(search, place, limit)),
    inboxPage: (search, before, limit) =>
      page(cells, before, limit, ({ messages }, place) => messages.inboxPage(search, place, limit)),
  };
}

async function page(
  cells: readonly CellLink[],
  before: string | null,
  limit: number,
  read: (store: Store, place: string | null) => Promise<MessagePage>,
): Promise<MessagePage> {
  // A position in one database means nothing here: the list begins again.
  const begin = (before === null ? undefined : readPositions(before)) ?? cells.map(() => null);
  const open = cells.filter(({ place }) => begin[place] !== DONE);
  const { answers } = await readAll(open, (store, { place }) => read(store, begin[place] ?? null));
  return mergePages(
    answers.map(({ cell, value }) => ({ cell, ...value })),
    begin,
    limit,
  );
}

interface Part extends MessagePage {
  readonly cell: Pick<CellLink, "name" | "place">;
}

/**
 * Merges a page of each cell into one, newest first; each cell keeps its own order. Of a search that finds few of the
 * rows that a cell reads, rows of other cells may come before newer ones of that cell, which are on a later page. No row
 * comes twice, and none is missed.
 *
 * @param begin where each cell began
 * @param limit most rows
 */
export function mergePages(parts: readonly Part[], begin: readonly (string | null)[], limit: number): MessagePage {
  const left = parts.map((part) => ({ ...part, rows: part.rows.toReversed() }));
  const places = [...begin];
  const rows: FoundMessage[] = [];
  while (rows.length < limit) {
    const [part] = left.toSorted((a, b) => timeOf(b.rows.at(-1)) - timeOf(a.rows.at(-1)));
    const row = part?.rows.pop();
    if (part === undefined || row === undefined) break;
    places[part.cell.place] = row.position;
    rows.push({ ...row, cell: part.cell.name, position: positionsText(places) });
  }
  for (const part of left) if (part.rows.length === 0) places[part.cell.place] = part.next ?? DONE;
  const isEnd = left.every(({ rows, next }) => rows.length === 0 && next === null);
  return { rows, next: isEnd ? null : positionsText(places) };
}

/** A row without a time goes with the one before it. @param row undefined at the end of a part */
function timeOf(row: FoundMessage | undefined): number {
  return row === undefined ? NOTHING_LEFT : (row.createdAt?.getTime() ?? Number.MAX_VALUE);
}

const NOTHING_LEFT = -Number.MAX_VALUE;
