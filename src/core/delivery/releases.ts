import type { QueuedRow } from "./keyQueues.ts";

/**
 * Rows going back to the database unfinished. Until that is written they count as held by this process, so a claim may
 * return later rows of their keys, which must be released too.
 */
export class Releases {
  /** Per key, its rows that go back. */
  readonly #keys = new Map<string, number>();
  /** Per running claim, the keys of rows that have been going back at any time since it began. */
  readonly #keysOfClaims = new Set<Set<string>>();
  /**
   * Rows released as soon as a claim returned them. No claim runs until these rows are pending again: it would return
   * later rows of the same keys, which must be released too, and two claims could alternate for ever without a
   * delivery.
   */
  readonly #onArrival = new Set<QueuedRow>();
  /** Rows released because too many waited, with the destination at which they did. */
  readonly #overflow = new Map<QueuedRow, string>();
  /**
   * Rows whose outcome the database refuses. Each still counts as held by this process while other rows of its claim
   * are open, and would hold up no later row: its key stays here until the claim is closed.
   */
  readonly #refused = new Set<QueuedRow>();

  /**
   * A claim begins.
   *
   * @returns the keys whose rows it must not deliver, growing until `claimEnded` is called with them
   */
  claimBegan(): ReadonlySet<string> {
    const keys = new Set(this.#keys.keys());
    this.#keysOfClaims.add(keys);
    return keys;
  }

  claimEnded(keys: ReadonlySet<string>): void {
    this.#keysOfClaims.delete(keys as Set<string>);
  }

  /** A row goes back; the row of each call is passed to `settled` later. */
  add({ row: { key } }: QueuedRow): void {
    if (key === null) return;
    this.#keys.set(key, (this.#keys.get(key) ?? 0) + 1);
    for (const keys of this.#keysOfClaims) keys.add(key);
  }

  addOnArrival(entry: QueuedRow): void {
    this.#onArrival.add(entry);
    this.add(entry);
  }

  addOverflow(entry: QueuedRow, destination: string): void {
    this.#overflow.set(entry, destination);
    this.add(entry);
  }

  /** Whether claims must wait. */
  get holdUpClaims(): boolean {
    return this.#onArrival.size > 0;
  }

  /** Whether rows of an overfull destination go back: a claim for it would miss them. */
  overflowAt(destination: string): boolean {
    return [...this.#overflow.values()].includes(destination);
  }

  /**
   * A row is settled, and closed in its claim.
   *
   * @param goesBack whether it was passed to one of the `add` methods
   * @param isRefused whether the database refuses its outcome
   * @returns true when claims were held up for its sake and may be made now
   */
  settled(entry: QueuedRow, goesBack: boolean, isRefused: boolean): boolean {
    if (goesBack && isRefused) this.#refused.add(entry);
    else if (goesBack) this.#isBack(entry);
    for (const refused of this.#refused) {
      if (refused.claim.open.size > 0) continue;
      this.#refused.delete(refused);
      this.#isBack(refused);
    }
    const wasLastOverflow = this.#overflow.delete(entry) && this.#overflow.size === 0;
    return this.#onArrival.delete(entry) || wasLastOverflow;
  }

  #isBack({ row: { key } }: QueuedRow): void {
    if (key === null) return;
    const left = (this.#keys.get(key) ?? 0) - 1;
    if (left > 0) this.#keys.set(key, left);
    else this.#keys.delete(key);
  }
}
