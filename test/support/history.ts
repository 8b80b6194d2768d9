/**
 * What was sent, acknowledged and received in one run, and what must hold of it whatever breaks: nothing acknowledged is lost, the
 * messages of a key come in the order in which they were sent, and a message comes twice only where that is allowed.
 */
export class History {
  readonly #keys = new Map<string, string>();
  /** Position of a message among all that were sent; a key's own messages are sent one after another. */
  readonly #positions = new Map<string, number>();
  readonly #acknowledged = new Set<string>();
  readonly #arrivals = new Map<string, Arrival[]>();
  readonly #firstArrivals: string[] = [];
  readonly #mayRepeat = new Set<string>();

  /** A message is about to be sent for the first time. */
  sent(id: string, key: string): void {
    this.#keys.set(id, key);
    this.#positions.set(id, this.#positions.size);
  }

  /** The service has answered that it has the message, as a new one or as a duplicate. */
  acknowledged(id: string): void {
    this.#acknowledged.add(id);
  }

  /** @param from who delivered it, where the test tells replicas apart */
  received(id: string, from = ""): void {
    const arrivals = this.#arrivals.get(id);
    const arrival = { from, at: performance.now() };
    if (arrivals === undefined) {
      this.#arrivals.set(id, [arrival]);
      this.#firstArrivals.push(id);
    } else arrivals.push(arrival);
  }

  /** These were in flight when something broke: nobody can know whether they had arrived. */
  mayRepeat(ids: Iterable<string>): void {
    for (const id of ids) this.#mayRepeat.add(id);
  }

  get acknowledgedCount(): number {
    return this.#acknowledged.size;
  }

  /** Monotonic ms at which the last of these came, repetitions included; undefined while one of them is missing. */
  lastArrivalOf(ids: readonly string[]): number | undefined {
    const times = ids.map((id) => this.#arrivals.get(id)?.at(-1)?.at);
    return times.every((time) => time !== undefined) ? Math.max(...times) : undefined;
  }

  /** Messages that came more than once, with who brought them, in the order of their first arrival. */
  get repeated(): readonly {
    readonly id: string;
    readonly key: string | undefined;
    readonly from: readonly string[];
  }[] {
    return this.#firstArrivals.flatMap((id) => {
      const arrivals = this.#arrivals.get(id) ?? [];
      return arrivals.length > 1 ? [{ id, key: this.#keys.get(id), from: arrivals.map(({ from }) => from) }] : [];
    });
  }

  /** Acknowledged messages that have not come. */
  get missing(): readonly string[] {
    return [...this.#acknowledged].filter((id) => !this.#arrivals.has(id));
  }

  /** Everything that is wrong, a line each; empty when the run was right. Call it when all deliveries have ended. */
  violations(): readonly string[] {
    return [
      ...listed("acknowledged but never delivered", this.missing),
      ...listed(
        "delivered but never sent",
        [...this.#arrivals.keys()].filter((id) => !this.#keys.has(id)),
      ),
      ...listed(
        "delivered more than once without having been in flight at a fault",
        this.repeated.filter(({ id }) => !this.#mayRepeat.has(id)).map(({ id, from }) => `${id} (${from.join(", ")})`),
      ),
      ...listed("delivered out of order", this.#orderViolations()),
    ];
  }

  #orderViolations(): readonly string[] {
    const last = new Map<string, string>();
    const found: string[] = [];
    for (const id of this.#firstArrivals) {
      const key = this.#keys.get(id);
      if (key === undefined) continue;
      const before = last.get(key);
      if (before !== undefined && this.#position(before) > this.#position(id)) {
        found.push(`key ${key}: ${id} came after ${before}`);
      } else last.set(key, id);
    }
    return found;
  }

  #position(id: string): number {
    return this.#positions.get(id) ?? -1;
  }
}

interface Arrival {
  /** Monotonic ms. */
  readonly at: number;
  readonly from: string;
}

const SHOWN = 10;

function listed(what: string, items: readonly string[]): readonly string[] {
  if (items.length === 0) return [];
  const rest = items.length > SHOWN ? ` and ${items.length - SHOWN} more` : "";
  return [`${items.length} ${what}: ${items.slice(0, SHOWN).join("; ")}${rest}`];
}
