import { type CellPositions, DONE, decodePositions } from "../../../model/cellPositions.ts";
import type { FoundMessage, MessagePage, MessageStore, StoredMessage } from "../../../ports/messageStore.ts";
import type { OperatorStore } from "../../../ports/operatorStore.ts";
import { failed, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";
import { type Key, mergePages, type Order } from "./merge.ts";

/**
 * Messages of all cells. After a move of a bucket its finished inbox rows are in two cells: such a message comes once.
 */
export function cellMessages(cells: readonly CellLink[]): MessageStore {
  return {
    async get(id, withPayload) {
      const { answers, failures } = await readAll(cells, (store) => store.messages.get(id, withPayload));
      const own =
        answers.find(({ value }) => value.outbox !== undefined) ??
        answers.find(({ value }) => value.inbox !== undefined);
      if (own === undefined) {
        if (failures.length > 0) throw failed(failures, `the others have no message ${id}`);
        return answers[0]?.value as StoredMessage;
      }
      const copy = answers.find(({ value }) => value.inbox !== undefined);
      return { ...own.value, cell: own.cell.name, inbox: own.value.inbox ?? copy?.value.inbox };
    },

    async inOutbox(ids) {
      const { answers } = await readAll(cells, (store) => store.messages.inOutbox(ids));
      return answers.flatMap(({ value }) => value);
    },

    async byIdempotencyKey(sources, key) {
      const { answers } = await readAll(cells, (store) => store.messages.byIdempotencyKey(sources, key));
      return [...new Set(answers.flatMap(({ value }) => value))];
    },

    async rowBefore(id) {
      const { answers } = await readAll(cells, (store) => store.messages.rowBefore(id));
      return answers.find(({ value }) => value !== undefined)?.value;
    },

    outboxPage: (search, before, limit) =>
      page(cells, before, limit, OUTBOX_ORDER, ({ messages }, place) => messages.outboxPage(search, place, limit)),

    inboxPage: (search, before, limit) =>
      page(cells, before, limit, INBOX_ORDER, ({ messages }, place) => messages.inboxPage(search, place, limit)),
  };
}

async function page(
  cells: readonly CellLink[],
  before: string | null,
  limit: number,
  order: Order<FoundMessage>,
  read: (store: OperatorStore, place: string | null) => Promise<MessagePage>,
): Promise<MessagePage> {
  // A position of before there were cells means nothing here: the list begins again.
  const begin: CellPositions = (before === null ? undefined : decodePositions(before)) ?? {};
  const open = cells.filter(({ name }) => begin[name] !== DONE);
  const { answers } = await readAll(open, (store, { name }) => read(store, begin[name] ?? null));
  const parts = answers.map(({ cell, value }) => ({ cell: cell.name, ...value }));
  const { rows, next } = mergePages(parts, begin, limit, order);
  return { rows: rows.map(({ row, cell, position }) => ({ ...row, cell, position })), next };
}

const ORDER = {
  positionOf: ({ position }: FoundMessage) => position,
  idOf: ({ id }: FoundMessage) => id,
};

/** The place of a page is a sequence, which tells no time. */
const OUTBOX_ORDER: Order<FoundMessage> = {
  ...ORDER,
  keyOf: ({ createdAt, id }) => (createdAt === null ? undefined : { time: BigInt(createdAt.getTime()), tie: id }),
  keyOfPlace: () => undefined,
};

/** A position has the exact time, and the id. */
const INBOX_ORDER: Order<FoundMessage> = {
  ...ORDER,
  keyOf: ({ position }) => placeKey(position),
  keyOfPlace: placeKey,
};

/** @returns the time in units of 100 ns since 1970; undefined for a text of another form */
export function placeKey(place: string): Key | undefined {
  const { infinite, id = "", ...parts } = PLACE.exec(place)?.groups ?? {};
  const tie = id.toLowerCase();
  if (infinite !== undefined) return { time: infinite.startsWith("-") ? -INFINITE : INFINITE, tie };
  if (parts.year === undefined) return undefined;
  const number = (text: string | undefined) => Number(text ?? 0);
  const year = parts.era === undefined ? number(parts.year) : 1 - number(parts.year);
  // The Gregorian calendar repeats after 400 years; a Date ends before the times of PostgreSQL.
  const cycles = Math.floor(year / 400);
  const within = Date.UTC(
    2000 + (year - cycles * 400),
    number(parts.month) - 1,
    number(parts.day),
    number(parts.hour),
    number(parts.minute),
    number(parts.second),
  );
  const offset = number(parts.offsetHour) * 3600 + number(parts.offsetMinute) * 60 + number(parts.offsetSecond);
  const seconds = within / 1000 - (parts.sign === "-" ? -offset : offset) + (cycles - 5) * SECONDS_IN_400_YEARS;
  return { time: BigInt(seconds) * 10_000_000n + BigInt((parts.fraction ?? "").padEnd(7, "0")), tie };
}

const PLACE =
  /^(?:(?<infinite>-?infinity)|(?<year>\d{4,6})-(?<month>\d\d)-(?<day>\d\d)T(?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)(?:\.(?<fraction>\d{1,7}))?(?:Z|(?<sign>[+-])(?<offsetHour>\d\d)(?::(?<offsetMinute>\d\d)(?::(?<offsetSecond>\d\d))?)?)(?<era> BC)?) (?<id>\S+)$/;
const SECONDS_IN_400_YEARS = 146_097 * 86_400;
const INFINITE = 2n ** 90n;
