import { DONE, readPositions } from "../../model/cellPositions.ts";
import type { FoundMessage } from "../../ports/messageStore.ts";

/** A list of messages, newest first, merges the pages of the outbox and the inbox; its cursor has its place in both. */

/** Of each table in the order of its pages. */
export interface Found {
  readonly outbox: FoundMessage[];
  readonly inbox: FoundMessage[];
}

/** The place at which a list continues: null for the newest row, {@link DONE} if the table has no more. */
export interface Place {
  readonly outbox: string | null;
  readonly inbox: string | null;
}

export const BEGINNING: Place = { outbox: null, inbox: null };

export function isEnd({ outbox, inbox }: Place): boolean {
  return outbox === DONE && inbox === DONE;
}

export class CursorError extends Error {
  override readonly name = "CursorError";
}

/** @param begin, end the places where reading began and ended @returns the newest, and `cursor`, null at the end */
export function newest(found: Found, limit: number, begin: Place, end: Place) {
  const taken = { outbox: 0, inbox: 0 };
  const messages: FoundMessage[] = [];
  while (messages.length < limit) {
    const [outbox, inbox] = [found.outbox[taken.outbox], found.inbox[taken.inbox]];
    if (outbox === undefined && inbox === undefined) break;
    const isOutbox = inbox === undefined || (outbox !== undefined && timeOf(outbox) >= timeOf(inbox));
    taken[isOutbox ? "outbox" : "inbox"] += 1;
    messages.push((isOutbox ? outbox : inbox) as FoundMessage);
  }
  const behind = (table: keyof Place) => {
    const count = taken[table];
    return count === found[table].length ? end[table] : (found[table][count - 1]?.position ?? begin[table]);
  };
  const place = { outbox: behind("outbox"), inbox: behind("inbox") };
  return { messages: once(messages), cursor: isEnd(place) ? null : cursorOf(place) };
}

export function timeOf({ createdAt }: FoundMessage): number {
  return createdAt?.getTime() ?? 0;
}

/** The outbox row of a message tells more than its inbox row. */
export function once(found: readonly FoundMessage[]): readonly FoundMessage[] {
  const ofOutbox = new Set(found.filter(({ table }) => table === "outbox").map(({ id }) => id));
  return found.filter(({ id, table }) => table === "outbox" || !ofOutbox.has(id));
}

function cursorOf({ outbox, inbox }: Place): string {
  return Buffer.from(JSON.stringify([outbox, inbox])).toString("base64url");
}

/** @throws CursorError */
export function parseCursor(cursor: string): Place {
  try {
    const [outbox, inbox] = JSON.parse(Buffer.from(cursor, "base64url").toString()) as (string | null)[];
    const isPlace = (value: unknown, isForm: (text: string) => boolean) => {
      const places: readonly unknown[] = (typeof value === "string" ? readPositions(value) : undefined) ?? [value];
      return places.every((place) => place === null || place === DONE || (typeof place === "string" && isForm(place)));
    };
    if (
      outbox !== undefined &&
      inbox !== undefined &&
      isPlace(outbox, isSequence) &&
      isPlace(inbox, (text) => INBOX_PLACE.test(text))
    ) {
      return { outbox, inbox };
    }
  } catch {
    // The same as a wrong form.
  }
  throw new CursorError("the cursor of an answer, unchanged, is expected");
}

function isSequence(text: string): boolean {
  return /^-?\d{1,19}$/.test(text) && BigInt.asIntN(64, BigInt(text)) === BigInt(text);
}

/** Time and id. A database may have times before the year 1, far behind the year 9999, and infinite ones. */
const INBOX_PLACE =
  /^(?:-?infinity|\d{4,6}-(?:0\d|1[0-2])-[0-3]\dT(?:[01]\d|2[0-3])(?::[0-5]\d){2}(?:\.\d{1,7})?(?:Z|[+-][01]\d(?::[0-5]\d){0,2})(?: BC)?) [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
