import type { PublishError } from "../../model/errors.ts";

/** How long a publish may take, and what ends it early. */
export interface PublishBounds {
  /** The publishes of its destination. Whoever makes one adds it there; it leaves when it ends. */
  readonly inFlight: InFlight;
  readonly signal: AbortSignal;
  /** ms from the making of the publish, for everything. */
  readonly timeoutMs: number;
}

/**
 * One publish that is waiting or under way: it ends once, by the broker's answer, a fault, its deadline or its signal,
 * whichever comes first. Each kind of destination adds what it sends and the words for the end of its time.
 */
export abstract class PendingPublish implements InFlightMember {
  readonly signal: AbortSignal;
  readonly deadline: number;
  /** The time it had, in ms. */
  readonly timeoutMs: number;
  /** Resolves or rejects with the publish. */
  readonly outcome: Promise<void>;
  /** Called when it has ended for whatever reason, so that whoever has it lets it go. */
  onEnd: () => void = () => {};
  readonly #inFlight: InFlight;
  #settle: Settle | undefined;

  constructor({ inFlight, signal, timeoutMs }: PublishBounds) {
    this.signal = signal;
    this.timeoutMs = timeoutMs;
    this.deadline = performance.now() + timeoutMs;
    this.#inFlight = inFlight;
    this.outcome = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
  }

  /** Whether it has ended: nobody waits for it any more. */
  get settled(): boolean {
    return this.#settle === undefined;
  }

  succeed(): void {
    this.#end()?.resolve();
  }

  /** @param reason why it failed; the reason of its signal when that aborted */
  fail(reason: unknown): void {
    this.#end()?.reject(reason);
  }

  expire(): void {
    this.fail(this.expiryError());
  }

  /** Makes the error for the end of its time. */
  protected abstract expiryError(): PublishError;

  #end(): Settle | undefined {
    const settle = this.#settle;
    if (settle === undefined) return undefined;
    this.#settle = undefined;
    this.#inFlight.delete(this);
    this.onEnd();
    return settle;
  }
}

interface Settle {
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/** A publish that is under way. */
export interface InFlightMember {
  /** `performance.now()` at which its time is over; Infinity for never. */
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
export class InFlight<M extends InFlightMember = InFlightMember> {
  protected readonly members = new Set<M>();
  readonly #bySignal = new Map<AbortSignal, Group>();
  #timer: NodeJS.Timeout | undefined;

  /** Watches over a publish until it is deleted. Its signal must not have aborted. */
  add(member: M): void {
    this.members.add(member);
    const group = this.#bySignal.get(member.signal) ?? this.#listen(member.signal);
    group.members.add(member);
    if (this.#timer === undefined) this.#arm(member.deadline);
  }

  /** Lets a publish go that has ended. */
  delete(member: M): void {
    this.members.delete(member);
    if (this.members.size === 0) this.#disarm();
    const group = this.#bySignal.get(member.signal);
    group?.members.delete(member);
    if (group === undefined || group.members.size > 0) return;
    member.signal.removeEventListener("abort", group.listener);
    this.#bySignal.delete(member.signal);
  }

  /** Ends every publish with this reason. */
  failAll(reason: unknown): void {
    for (const member of [...this.members]) member.fail(reason);
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
    if (deadline === Number.POSITIVE_INFINITY) return;
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
    for (const member of this.members) {
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
