/** What a {@link LinkedList} may hold, one list at a time; the list alone sets its links. */
export interface Linked {
  previous?: Linked | undefined;
  next?: Linked | undefined;
}

/**
 * Members in the order in which they were added, for what comes and goes with every message.
 *
 * A `Set` makes a new table every few additions, and each table refers to its successor: once one is in the old
 * generation, all later ones follow, with every member that they ever held. That made the collector's work a quarter of
 * the process.
 */
export class LinkedList<T extends Linked> implements Iterable<T> {
  #first: Linked | undefined;
  #last: Linked | undefined;
  #size = 0;

  get first(): T | undefined {
    return this.#first as T | undefined;
  }

  get size(): number {
    return this.#size;
  }

  /** @param member in no list */
  add(member: T): void {
    member.previous = this.#last;
    if (this.#last === undefined) this.#first = member;
    else this.#last.next = member;
    this.#last = member;
    this.#size += 1;
  }

  /** @returns whether it was a member */
  delete(member: T): boolean {
    const { previous, next } = member;
    if (previous === undefined && this.#first !== member) return false;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    member.previous = undefined;
    member.next = undefined;
    this.#size -= 1;
    return true;
  }

  /** The list must not change meanwhile. */
  *[Symbol.iterator](): Generator<T, void, undefined> {
    for (let member = this.#first; member !== undefined; member = member.next) yield member as T;
  }
}

/** The items by key: keys in the order of their first item, items in their own. */
export function groupBy<T, K>(items: Iterable<T>, keyOf: (item: T) => K): ReadonlyMap<K, readonly T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}
