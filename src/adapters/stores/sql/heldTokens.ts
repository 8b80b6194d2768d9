import type { ClaimToken } from "../../../model/rows.ts";
import type { ClaimRequest } from "../../../ports/store.ts";

/**
 * The claims of this process that the table still knows as they are. A database that went back in time (a failover, a
 * restored backup) may have rows under a claim that this process gave back since: they are not in its hands, and later
 * rows of their keys must not pass them.
 */
export class HeldTokens {
  readonly #known = new Set<ClaimToken>();

  /**
   * Notes a claim that is about to be made.
   *
   * @returns those of its `heldTokens` that were made since the last {@link forget}: rows under them are in hand
   */
  begin({ token, heldTokens }: Pick<ClaimRequest, "token" | "heldTokens">): readonly ClaimToken[] {
    for (const known of this.#known) {
      if (this.#known.size < MOST_KNOWN) break;
      if (!heldTokens.includes(known)) this.#known.delete(known);
    }
    this.#known.add(token);
    return heldTokens.filter((held) => this.#known.has(held));
  }

  /** Whether a claim was made since the last {@link forget}. */
  knows(token: ClaimToken): boolean {
    return this.#known.has(token);
  }

  /** The database may have gone back. */
  forget(): void {
    this.#known.clear();
  }
}

/** Without those that are held, and far more than are on their way at a time. */
const MOST_KNOWN = 1000;
