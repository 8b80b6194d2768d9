import { History, type MessageHistory } from "../history.ts";
import type { ConfigTree } from "../service.ts";

/**
 * Messages of some keys go to lists of destinations, some to one of these alone. Receivers see each delivery as a message of its own: its key
 * is that of its message at that destination, to which the order applies.
 */

export const LIST_DESTINATIONS = ["list-1", "list-2", "list-3"] as const;
type ListDestination = (typeof LIST_DESTINATIONS)[number];

/** Each third message goes to one destination; of the others, each second one's last destination depends on a condition. */
const SINGLE: ListDestination = "list-2";
const TYPES = ["list", "chosen", SINGLE] as const;

export const LIST_ROUTES: readonly ConfigTree[] = [
  { topicPattern: "orders.list", destinations: [...LIST_DESTINATIONS] },
  {
    topicPattern: "orders.chosen",
    destinations: ["list-1", "list-2", { name: "list-3", when: '$number($split(id, "-")[2]) % 2 = 0' }],
  },
];

/** In SQL, what the journal adds to key and message of a row: its destination, or that it is a message row. */
export const LANE_SCHEMA = `
CREATE FUNCTION lane(topic text, message_sequence bigint, destination text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN message_sequence IS NOT NULL THEN '>' || destination
    WHEN topic IN ('orders.list', 'orders.chosen') THEN '>'
    WHEN topic = 'orders.${SINGLE}' THEN '>${SINGLE}' ELSE '' END
$$;
`;

/** The event type of a message of a key with lists. */
export function listTypeOf(id: string): string {
  return TYPES[numberOf(id) % TYPES.length] ?? "list";
}

/** The destination of a row. */
function destinationsOf(id: string): readonly ListDestination[] {
  const type = listTypeOf(id);
  if (type === SINGLE) return [SINGLE];
  return LIST_DESTINATIONS.filter((each) => type === "list" || each !== "list-3" || numberOf(id) % 2 === 0);
}

const numberOf = (id: string): number => Number(id.split("-")[2]);

/** The message that the receiver of a path sees. */
export function messageAt(id: string, url: string): string {
  const destination = LIST_DESTINATIONS.find((each) => url.startsWith(`/${each}`));
  return destination === undefined ? id : `${id}>${destination}`;
}

/** The key of a sender or an application. */
export const keyOf = (lane: string): string => lane.replace(/>.*/, "");

/** A history in which a message of a key with lists is one for each delivery. */
export class ListHistory extends History {
  readonly #hasLists: (key: string) => boolean;
  readonly #deliveries = new Map<string, readonly string[]>();
  readonly #acknowledged = new Set<string>();

  constructor(now: () => number, hasLists: (key: string) => boolean) {
    super(now);
    this.#hasLists = hasLists;
  }

  override sent(id: string, key: string, position = this.sentCount + 1): void {
    if (!this.#hasLists(key)) {
      super.sent(id, key, position);
      return;
    }
    const destinations = destinationsOf(id);
    this.#deliveries.set(
      id,
      destinations.map((each) => `${id}>${each}`),
    );
    for (const each of destinations) super.sent(`${id}>${each}`, `${key}>${each}`, position);
  }

  override ordered(id: string, position: number): void {
    for (const each of this.#of(id)) super.ordered(each, position);
  }

  override acknowledged(id: string): void {
    this.#acknowledged.add(id);
    for (const each of this.#of(id)) super.acknowledged(each);
  }

  override get acknowledgedIds(): readonly string[] {
    return [...this.#acknowledged];
  }

  override of(id: string): MessageHistory | undefined {
    return super.of(this.#of(id)[0] ?? id);
  }

  #of(id: string): readonly string[] {
    return this.#deliveries.get(id) ?? [id];
  }
}
