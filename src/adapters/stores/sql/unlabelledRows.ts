import type { MessageId } from "../../../model/rows.ts";
import { type ClaimQueues, type ListMessage, NO_DESTINATION } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { higher, type Row, textOf } from "./rows.ts";

/** A row to label, and whether it is claimed if it can be. */
interface Label {
  readonly id: MessageId;
  /** {@link NO_DESTINATION} without a route. */
  readonly destination: string;
  readonly isWanted: boolean;
}

export interface Labels {
  readonly labels: readonly Label[];
  readonly lists: readonly ListMessage[];
  readonly to: string | null;
  /** Messages of lists were left: another look finds them. */
  readonly isLeft?: boolean;
}

interface LookedAt {
  readonly from: string;
  readonly limit: number;
  /** Rows that were set back below `from` belong to it. */
  readonly isFromMark: boolean;
}

/** What one look for rows without a label may take, and its start. */
interface Look {
  readonly queues: ClaimQueues;
  readonly limit: number;
  readonly mark: string;
  readonly left: Map<string, number>;
  wanted: number;
  /** By their ids: a look in order may come as far as the one behind a backlog. */
  readonly lists: Map<MessageId, ListMessage>;
  deliveries: number;
  /** Messages of lists that are not due; and whether messages of lists are left. */
  readonly ahead: Row[];
  isLeft: boolean;
}

interface Backlog {
  /** The position behind the rows that a look has read. */
  readonly to: string;
  /** What most of its rows wait for: destinations, and the expansion of topics. */
  readonly of: ReadonlySet<string>;
  /** Monotonic ms: the next look behind it is due. */
  readonly behindAt: number;
  /** Monotonic ms: it is looked for again. */
  readonly until: number;
}

/**
 * Chooses the labels of rows that an application has inserted without a destination, for the next claim, and finds
 * messages of lists. In a backlog the rows of its destinations stay unlabelled until their turn, and looks behind it
 * find the rows of other destinations.
 */
export class UnlabelledRows {
  readonly #readRows: (at: LookedAt, queues: ClaimQueues) => Promise<readonly Row[]>;
  readonly #clock: Clock;
  #backlog: Backlog | undefined;
  #looksFar = false;

  constructor(clock: Clock, read: (at: LookedAt, queues: ClaimQueues) => Promise<readonly Row[]>) {
    this.#clock = clock;
    this.#readRows = read;
  }

  /** @param limit of the claim @param wanted rows at most, of those @param mark nothing is unfinished below it */
  async look(queues: ClaimQueues, limit: number, wanted: number, mark: string): Promise<Labels> {
    const now = this.#clock.monotonic();
    if (this.#backlog !== undefined && now >= this.#backlog.until) this.#backlog = undefined;
    const backlog = this.#backlog;
    const asked = [...queues.room].filter(([destination]) => destination !== NO_DESTINATION);
    const room = asked.reduce((sum, [, rows]) => sum + rows, 0);
    const ofLists = { lists: new Map(), deliveries: MADE_AT_ONCE, ahead: [], isLeft: false };
    const look = { queues, limit, mark, left: new Map(queues.room), wanted: Math.min(wanted, room), ...ofLists };
    const hasRoom = backlog === undefined || [...backlog.of].some((each) => queues.room.has(each));
    if (backlog !== undefined && !hasRoom) return await this.#lookBehind(backlog, look);
    const hasOthers = asked.some(([destination]) => backlog?.of.has(destination) !== true);
    const isDue = backlog !== undefined && hasOthers && now >= backlog.behindAt;
    const behind = isDue ? await this.#lookBehind(backlog, look) : NO_LABELS;
    const { labels, to } = await this.#lookInOrder(look);
    // The look in order may come as far by now.
    const known = new Set(behind.labels.map(({ id }) => id));
    return found(look, [...labels.filter(({ id }) => !known.has(id)), ...behind.labels], to);
  }

  /** Others have locked rows of a look: they wait for the next one. @param to the end of that look */
  foundLocked(to: string): void {
    const until = this.#clock.monotonic() + LOCKED_MS;
    this.#backlog = { to, of: this.#backlog?.of ?? NONE, behindAt: 0, until };
  }

  /** Rows of a destination that has enough of them stay unlabelled. */
  async #lookInOrder(look: Look): Promise<Labels> {
    const { queues, limit, mark } = look;
    const { room, busy = NONE } = queues;
    const atOnce = this.#looksFar ? Math.max(limit, LOOKED_AT_ONCE) : limit;
    const rows = await this.#readRows({ from: mark, limit: atOnce, isFromMark: true }, queues);
    const most = look.wanted;
    const unlabelled = new Set<string>();
    const taken = new Map<string, number>();
    const labels: Label[] = [];
    let to = mark;
    for (const row of rows) {
      // The claim is full: the next look continues here.
      if (look.wanted === 0) break;
      const list = listOf(row, queues);
      if (list !== undefined && look.deliveries <= 0) break;
      to = positionBehind(row);
      if (list !== undefined) {
        for (const waitsFor of takeList(row, list, look)) unlabelled.add(waitsFor);
        continue;
      }
      const label = labelOf(row, look);
      const { destination, isWanted } = label;
      // Rows that are not due must not take the place of others.
      if (!isWanted && row.is_due !== false && (busy.has(destination) || room.has(destination))) {
        unlabelled.add(destination);
        continue;
      }
      if (isWanted) taken.set(destination, (taken.get(destination) ?? 0) + 1);
      labels.push(label);
    }
    makeRoom(look, rows.length >= atOnce ? rows.length : 0);
    const isCut = look.wanted === 0 || look.deliveries <= 0 || rows.length >= atOnce;
    this.#looksFar = rows.length >= atOnce && 2 * look.wanted > most;
    const filled = [...taken].filter(([, count]) => 2 * count >= most).map(([destination]) => destination);
    const of = new Set([...unlabelled, ...filled]);
    if (!isCut) this.#backlog = undefined;
    else if (of.size > 0) {
      const behindAt = this.#clock.monotonic() + FIRST_BEHIND_MS;
      this.#backlog ??= { to, of, behindAt, until: Number.POSITIVE_INFINITY };
    }
    return found(look, labels, to);
  }

  async #lookBehind(backlog: Backlog, look: Look): Promise<Labels> {
    const startedAt = this.#clock.monotonic();
    const atOnce = Math.max(look.limit, LOOKED_AT_ONCE);
    const from = higher(backlog.to, look.mark);
    const rows = await this.#readRows({ from, limit: atOnce, isFromMark: false }, look.queues);
    const labels: Label[] = [];
    for (const row of rows) {
      const list = listOf(row, look.queues);
      if (list !== undefined) takeList(row, list, look, backlog.of);
      else if (!backlog.of.has(destinationOf(row, look.queues))) labels.push(labelOf(row, look));
    }
    makeRoom(look, rows.length >= atOnce ? rows.length : 0);
    const endedAt = this.#clock.monotonic();
    const last = rows.at(-1);
    const to = last === undefined ? backlog.to : positionBehind(last);
    const until = rows.length < atOnce ? Math.min(backlog.until, endedAt + BACKLOG_MS) : backlog.until;
    this.#backlog = { ...backlog, to, behindAt: endedAt + BEHIND_COST_FACTOR * (endedAt - startedAt), until };
    return found(look, labels, to);
  }
}

const positionBehind = ({ sequence }: Row): string => String(BigInt(String(sequence)) + 1n);

function destinationOf(row: Row, { routing }: ClaimQueues): string {
  const topic = textOf(row.topic);
  return (topic === null ? undefined : routing.destinationOf(topic)) ?? NO_DESTINATION;
}

function found({ lists, isLeft }: Look, labels: readonly Label[], to: string | null): Labels {
  return { labels, lists: [...lists.values()], to, isLeft };
}

/**
 * Expands messages of lists that are not due if they are most of the rows that a look can read: they would hide others.
 *
 * @param full rows of the look; 0 if it has read all that there are
 */
function makeRoom(look: Look, full: number): void {
  if (full === 0 || 2 * look.ahead.length < full) return;
  for (const row of look.ahead) if (row.has_failed !== true) take(row, listOf(row, look.queues) ?? [], look);
}

function listOf(row: Row, { routing }: ClaimQueues): readonly string[] | undefined {
  const topic = textOf(row.topic);
  return topic === null ? undefined : routing.listOf?.(topic);
}

/**
 * Expands a message if it is due and one of its destinations has room; after a failure, as a row of another route, not
 * before its retry.
 *
 * @param others what rows of the backlog in front wait for
 * @returns what it waits for: the room of its destinations, or the expansion of its topic; nothing if it is taken
 */
function takeList(row: Row, list: readonly string[], look: Look, others = NONE): Iterable<string> {
  const expansion = `${row.topic}\0`;
  const isStuck = others.has(expansion) || look.queues.expansion?.stateOf(String(row.topic)) === "stuck";
  const hasRoom = list.some((destination) => !others.has(destination) && (look.left.get(destination) ?? 0) > 0);
  if (row.is_due === false) look.ahead.push(row);
  else if (hasRoom && !isStuck) return take(row, list, look);
  look.isLeft = true;
  return row.is_due === false ? NONE : isStuck ? [expansion] : list;
}

/** The end of the expansion that is full makes another look. */
function take(row: Row, list: readonly string[], look: Look): Iterable<string> {
  const id = row.id as MessageId;
  const { stateOf = () => "open" } = look.queues.expansion ?? {};
  if (look.lists.has(id) || look.deliveries <= 0 || stateOf(String(row.topic)) !== "open") return NONE;
  for (const destination of list) look.left.set(destination, (look.left.get(destination) ?? 0) - 1);
  look.deliveries -= list.length;
  look.lists.set(id, { id, topic: String(row.topic) });
  return NONE;
}

/** Reduces what is left by a row that is wanted. */
function labelOf(row: Row, look: Look): Label {
  const destination = destinationOf(row, look.queues);
  const space = look.left.get(destination) ?? 0;
  const isWanted = row.is_due !== false && space > 0 && look.wanted > 0;
  if (isWanted) {
    look.wanted -= 1;
    look.left.set(destination, space - 1);
  }
  return { id: row.id as MessageId, destination, isWanted };
}

const NONE: ReadonlySet<string> = new Set();
export const NO_LABELS: Labels = { labels: [], lists: [], to: null };
/** Deliveries that a look has made, by the rows of its last message more: a message may have a thousand. */
const MADE_AT_ONCE = 500;
/** In some 40 ms, and below the locks at which SQL Server takes the table: a backlog may be a million rows. */
const LOOKED_AT_ONCE = 4000;
/** Looks behind a backlog take a fifth of the time at most. */
const BEHIND_COST_FACTOR = 4;
const FIRST_BEHIND_MS = 20;
/** Rows that a look has passed, or that appeared behind it, are looked at again after this long. */
const BACKLOG_MS = 1000;
/** So are rows that others have locked. */
const LOCKED_MS = 1000;
