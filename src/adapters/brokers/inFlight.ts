/** A publish that is under way. */
export interface InFlightMember {
  /** `performance.now()` at which its time is over. */
  readonly deadline: number;
  readonly signal: AbortSignal;
  /** Its time is over: it ends, and is deleted. */
  expire(): void;
  /** It ends with this reason, and is deleted. */
  fail(reason: unknown): void;
}

const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The publishes under way of one destination, with one timer and one listener per signal for all of them.
 *
 * All have the same timeout, so the order in which they were added is the order of their deadlines, and a timer for
 * the oldest serves; without any there is none. A listener each on a signal that many share, as a poller's publishes
 * do, would make Node warn of a leak.
 */
export class InFlight {
  readonly #members = new Set<InFlightMember>();
  readonly #bySignal = new Map<AbortSignal, Group>();
  #timer: NodeJS.Timeout | undefined;

  /** Watches over a publish until it is deleted. Its signal must not have aborted. */
  add(member: InFlightMember): void {
    this.#members.add(member);
    const group = this.#bySignal.get(member.signal) ?? this.#listen(member.signal);
    group.members.add(member);
    if (this.#timer === undefined) this.#arm(member.deadline);
  }

  /** Lets a publish go that has ended. */
  delete(member: InFlightMember): void {
    this.#members.delete(member);
    if (this.#members.size === 0) this.#disarm();
    const group = this.#bySignal.get(member.signal);
    group?.members.delete(member);
    if (group === undefined || group.members.size > 0) return;
    member.signal.removeEventListener("abort", group.listener);
    this.#bySignal.delete(member.signal);
  }

  /** Ends every publish with this reason. */
  failAll(reason: unknown): void {
    for (const member of [...this.#members]) member.fail(reason);
  }

  #listen(signal: AbortSignal): Group {
    const members = new Set<InFlightMember>();
    const listener = () => {
      for (const member of [...members]) member.fail(signal.reason);
    };
    const group = { members, listener };
    signal.addEventListener("abort", listener, { once: true });
    this.#bySignal.set(signal, group);
    return group;
  }

  #arm(deadline: number): void {
    const delay = Math.min(Math.ceil(Math.max(0, deadline - performance.now())), MAX_TIMER_MS);
    this.#timer = setTimeout(() => this.#expire(), delay);
  }

  #disarm(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const member of this.#members) {
      if (member.deadline > now) {
        this.#arm(member.deadline);
        return;
      }
      member.expire();
    }
  }
}

interface Group {
  readonly members: Set<InFlightMember>;
  readonly listener: () => void;
}
