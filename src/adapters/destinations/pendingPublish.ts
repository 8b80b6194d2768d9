import { type Linked, LinkedList } from "../../model/collections.ts";
import type { PublishError } from "../../model/errors.ts";

/** How long a publish may take, and what ends it early. */
export interface PublishBounds {
  /** The publishes of its destination, which it leaves when it ends. */
  readonly inFlight: InFlight;
  readonly signal: AbortSignal;
  /** ms for everything, from the creation of the publish. */
  readonly timeoutMs: number;
}

/**
 * One publish, waiting or in flight. It ends once: by the broker's answer, a fault, its deadline or its signal,
 * whichever comes first. Each kind of destination adds its content and its timeout error.
 */
export abstract class PendingPublish implements InFlightMember {
  readonly signal: AbortSignal;
  readonly deadline: number;
  readonly timeoutMs: number;
  /** Settles with the publish. */
  readonly outcome: Promise<void>;
  /** Called when it ends, for any reason, so that its holders release it. */
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

  /** Whether it has ended and nobody waits for it. */
  get settled(): boolean {
    return this.#settle === undefined;
  }

  succeed(): void {
    this.#end()?.resolve();
  }

  /** @param reason why it failed; the signal's reason on abort */
  fail(reason: unknown): void {
    this.#end()?.reject(reason);
  }

  expire(): void {
    this.fail(this.expiryError());
  }

  /** The error for a timeout. */
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

export interface InFlightMember extends Linked {
  /** `performance.now()` of its timeout; Infinity for never. */
  readonly deadline: number;
  readonly signal: AbortSignal;
  /** Ends it with a timeout, and deletes it. */
  expire(): void;
  /** Ends it with this reason, and deletes it. */
  fail(reason: unknown): void;
}

const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The publishes in flight of one destination. All have the same timeout, so insertion order is deadline order, and one
 * timer for the oldest is enough. One listener serves all publishes of a signal: Node would take more for a leak.
 */
export class InFlight {
  readonly #members = new LinkedList<InFlightMember>();
  readonly #bySignal = new Map<AbortSignal, Group>();
  #timer: NodeJS.Timeout | undefined;

  /** Tracks a publish until it is deleted. Its signal must not have aborted. */
  add(member: InFlightMember): void {
    this.#members.add(member);
    const group = this.#bySignal.get(member.signal) ?? this.#listen(member.signal);
    group.members += 1;
    if (this.#timer === undefined) this.#arm(member.deadline);
  }

  delete(member: InFlightMember): void {
    if (!this.#members.delete(member)) return;
    if (this.#members.size === 0) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
    }
    const group = this.#bySignal.get(member.signal);
    if (group === undefined) return;
    group.members -= 1;
    if (group.members > 0) return;
    member.signal.removeEventListener("abort", group.listener);
    this.#bySignal.delete(member.signal);
  }

  failAll(reason: unknown): void {
    for (const member of [...this.#members]) member.fail(reason);
  }

  #listen(signal: AbortSignal): Group {
    const listener = () => {
      for (const member of this.#membersOf(signal, group.members)) member.fail(signal.reason);
    };
    const group = { members: 0, listener };
    signal.addEventListener("abort", listener, { once: true });
    this.#bySignal.set(signal, group);
    return group;
  }

  /** @param count how many there are: mostly the oldest of all */
  #membersOf(signal: AbortSignal, count: number): readonly InFlightMember[] {
    const found: InFlightMember[] = [];
    for (const member of this.#members) {
      if (found.length === count) break;
      if (member.signal === signal) found.push(member);
    }
    return found;
  }

  #arm(deadline: number): void {
    if (deadline === Number.POSITIVE_INFINITY) return;
    const delay = Math.min(Math.ceil(Math.max(0, deadline - performance.now())), MAX_TIMER_MS);
    this.#timer = setTimeout(() => this.#expire(), delay);
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (let oldest = this.#members.first; oldest !== undefined; oldest = this.#members.first) {
      if (oldest.deadline > now) {
        this.#arm(oldest.deadline);
        return;
      }
      oldest.expire();
      this.delete(oldest);
    }
  }
}

/** The publishes that end with one signal. */
interface Group {
  members: number;
  readonly listener: () => void;
}
