/**
 * How many deliveries may be in flight to a receiver that has just come back: one, and one more with each that succeeds, up to all there may be. A
 * failure halves it.
 */
export class Ramp {
  readonly #most: number;
  #limit: number;

  /** @param most deliveries in flight; that is also where it begins, until the first {@link restart} */
  constructor(most: number) {
    this.#most = most;
    this.#limit = most;
  }

  /** Infinite once everything may be in flight. */
  get limit(): number {
    return this.#limit < this.#most ? this.#limit : Number.POSITIVE_INFINITY;
  }

  restart(): void {
    this.#limit = 1;
  }

  succeeded(): void {
    this.#limit = Math.min(this.#limit + 1, this.#most);
  }

  failed(): void {
    if (this.#limit < this.#most) this.#limit = Math.max(1, Math.floor(this.#limit / 2));
  }
}
