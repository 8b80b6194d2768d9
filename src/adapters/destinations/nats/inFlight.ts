/** A publish that is under way. */
export interface InFlightMember {
  /** `performance.now()` at which its time is over. */
  readonly deadline: number;
  readonly signal: AbortSignal;
  /** Its time is over. */
  expire(): void;
  /** Ends it with this reason. */
  interrupt(reason: unknown): void;
}

const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The publishes under way of one destination, with one timer and one listener per signal for all of them.
 *
 * All have the same timeout, so the order in which they were added is the order of their deadlines, and a timer for the oldest serves. A listener each on a
 * signal that many share would make Node warn of a leak.
 */
export class InFlight {
  readonly #members = new Set<InFlightMember>();
  readonly #bySignal = new Map<AbortSignal, { readonly members: Set<InFlightMember>; readonly listener: () => void }>();
  #timer: NodeJS.Timeout | undefined;

  add(member: InFlightMember): void {
    this.#members.add(member);
    const group = this.#bySignal.get(member.signal);
    if (group === undefined) this.#listen(member);
    else group.members.add(member);
    if (this.#timer === undefined) this.#arm(member.deadline);
  }

  delete(member: InFlightMember): void {
    this.#members.delete(member);
    const group = this.#bySignal.get(member.signal);
    group?.members.delete(member);
    if (group === undefined || group.members.size > 0) return;
    member.signal.removeEventListener("abort", group.listener);
    this.#bySignal.delete(member.signal);
  }

  /** Ends every member with this reason. */
  interruptAll(reason: unknown): void {
    for (const member of [...this.#members]) member.interrupt(reason);
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #listen(member: InFlightMember): void {
    const { signal } = member;
    const members = new Set([member]);
    const listener = () => {
      for (const each of [...members]) each.interrupt(signal.reason);
    };
    this.#bySignal.set(signal, { members, listener });
    signal.addEventListener("abort", listener, { once: true });
  }

  #arm(deadline: number): void {
    const delay = Math.min(Math.ceil(Math.max(0, deadline - performance.now())), MAX_TIMER_MS);
    // The connection keeps the process alive, not this timer: it may be waiting for a publish that ended long ago.
    this.#timer = setTimeout(() => this.#expire(), delay).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const member of [...this.#members]) {
      if (member.deadline > now) {
        this.#arm(member.deadline);
        return;
      }
      member.expire();
    }
  }
}
