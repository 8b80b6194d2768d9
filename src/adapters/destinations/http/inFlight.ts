/** A publish that is under way. */
export interface InFlightMember {
  /** `performance.now()` at which its time is over. */
  readonly deadline: number;
  /** Its time is over; it has been removed. */
  expire(): void;
  /** Its signal was aborted with this reason; it is still a member. */
  interrupt(reason: unknown): void;
  /** Called every {@link SWEEP_MS} or {@link CROWDED_SWEEP_MS}; may end the member. */
  sweep(): void;
}

const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The rest of an answer has at least this long to arrive, and at most twice as long. A body that is sent apart from its head comes
 * up to a round trip and a delayed acknowledgement (40 ms) later: nearly every connection is kept.
 */
const SWEEP_MS = 250;
/** The same while a publish waits for a connection. */
const CROWDED_SWEEP_MS = 50;

/**
 * The publishes under way of one destination, with one timer for their deadlines, one for sweeps, and one listener per signal for
 * all of them.
 *
 * All have the same timeout, so the order in which they were added is the order of their deadlines, and a timer for the oldest
 * serves. A listener each on a signal that many share would make Node warn of a leak.
 */
export class InFlight {
  readonly #connections: number;
  readonly #members = new Set<InFlightMember>();
  readonly #bySignal = new Map<AbortSignal, Group>();
  #timer: NodeJS.Timeout | undefined;
  #sweepTimer: NodeJS.Timeout | undefined;
  #sweepsSoon = false;

  /** @param connections how many members have a connection; further ones wait for one */
  constructor(connections: number) {
    this.#connections = connections;
  }

  add(member: InFlightMember, signal: AbortSignal): void {
    this.#members.add(member);
    const group = this.#bySignal.get(signal) ?? this.#listen(signal);
    group.members.add(member);
    if (this.#timer === undefined) this.#arm(member.deadline);
    if (this.#sweepTimer === undefined || (this.#isCrowded() && !this.#sweepsSoon)) this.#armSweep();
  }

  delete(member: InFlightMember, signal: AbortSignal): void {
    this.#members.delete(member);
    const group = this.#bySignal.get(signal);
    group?.members.delete(member);
    if (group === undefined || group.members.size > 0) return;
    signal.removeEventListener("abort", group.listener);
    this.#bySignal.delete(signal);
  }

  /** All members, for the end; stops the timers. */
  close(): readonly InFlightMember[] {
    clearTimeout(this.#timer);
    clearTimeout(this.#sweepTimer);
    this.#timer = undefined;
    this.#sweepTimer = undefined;
    return [...this.#members];
  }

  #listen(signal: AbortSignal): Group {
    const members = new Set<InFlightMember>();
    const listener = () => {
      for (const member of [...members]) member.interrupt(signal.reason);
    };
    const group = { members, listener };
    signal.addEventListener("abort", listener, { once: true });
    this.#bySignal.set(signal, group);
    return group;
  }

  #arm(deadline: number): void {
    if (deadline === Number.POSITIVE_INFINITY) return;
    const delay = Math.min(Math.ceil(Math.max(0, deadline - performance.now())), MAX_TIMER_MS);
    // The connection keeps the process alive, not this timer: it may be waiting for a publish that ended long ago.
    this.#timer = setTimeout(() => this.#expire(), delay).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const member of this.#members) {
      if (member.deadline > now) {
        this.#arm(member.deadline);
        return;
      }
      this.#members.delete(member);
      member.expire();
    }
  }

  #isCrowded(): boolean {
    return this.#members.size > this.#connections;
  }

  #armSweep(): void {
    clearTimeout(this.#sweepTimer);
    this.#sweepsSoon = this.#isCrowded();
    this.#sweepTimer = setTimeout(() => this.#sweep(), this.#sweepsSoon ? CROWDED_SWEEP_MS : SWEEP_MS).unref();
  }

  #sweep(): void {
    this.#sweepTimer = undefined;
    for (const member of [...this.#members]) member.sweep();
    if (this.#members.size > 0) this.#armSweep();
  }
}

interface Group {
  readonly members: Set<InFlightMember>;
  readonly listener: () => void;
}
