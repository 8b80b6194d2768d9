import type { Publication } from "./publication.ts";

/**
 * The publishes of one destination that are not settled, with one timer and one listener per signal for all of them: the poller gives many the
 * same signal. All have the same timeout, so the order in which they were added is the order of their deadlines.
 */
export class InFlight {
  readonly #onExpired: (publication: Publication) => void;
  readonly #publications = new Set<Publication>();
  readonly #bySignal = new Map<AbortSignal, Group>();
  #timer: NodeJS.Timeout | undefined;

  /** @param onExpired called when the time of a publish is over */
  constructor(onExpired: (publication: Publication) => void) {
    this.#onExpired = onExpired;
  }

  add(publication: Publication, signal: AbortSignal): void {
    this.#publications.add(publication);
    const group = this.#bySignal.get(signal) ?? this.#listen(signal);
    group.publications.add(publication);
    if (this.#timer === undefined) this.#arm(publication.deadline);
  }

  delete(publication: Publication, signal: AbortSignal): void {
    this.#publications.delete(publication);
    const group = this.#bySignal.get(signal);
    group?.publications.delete(publication);
    if (this.#publications.size === 0) this.#disarm();
    if (group === undefined || group.publications.size > 0) return;
    signal.removeEventListener("abort", group.listener);
    this.#bySignal.delete(signal);
  }

  /** Fails every one of them, for the end. */
  failAll(reason: unknown): void {
    for (const publication of [...this.#publications]) publication.fail(reason);
  }

  #listen(signal: AbortSignal): Group {
    const publications = new Set<Publication>();
    const listener = () => {
      for (const publication of [...publications]) publication.fail(signal.reason);
    };
    const group = { publications, listener };
    signal.addEventListener("abort", listener, { once: true });
    this.#bySignal.set(signal, group);
    return group;
  }

  #arm(deadline: number): void {
    this.#timer = setTimeout(() => this.#expire(), Math.ceil(Math.max(0, deadline - performance.now())));
  }

  #disarm(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const publication of this.#publications) {
      if (publication.deadline > now) {
        this.#arm(publication.deadline);
        return;
      }
      this.#onExpired(publication);
    }
  }
}

interface Group {
  readonly publications: Set<Publication>;
  readonly listener: () => void;
}
