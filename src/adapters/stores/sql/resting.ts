import { isRefused, type StoreError } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type { Clock } from "../../../time/clock.ts";
import { changeInParts } from "./rows.ts";
import { requireSound } from "./verdict.ts";

export interface RefusedRow {
  readonly id: MessageId;
  readonly reason: string;
}

/** How the search for refused rows reaches the table. */
export interface TrialClaims {
  /** The next due rows in order; empty behind the last. */
  nextPage(): Promise<readonly MessageId[]>;
  /** Claims the rows and rolls that back. @throws StoreError when the database refuses one of them */
  tryClaim(ids: readonly MessageId[]): Promise<unknown>;
  /** Claims the row that was finished last, and rolls that back. @returns false without one @throws StoreError */
  accepted(): Promise<boolean>;
}

/** Rows that the database refuses to change. This process leaves them out for a while, and others of their keys wait. */
export class Resting {
  readonly #clock: Clock;
  readonly #until = new Map<MessageId, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  ids(): readonly MessageId[] {
    const now = this.#clock.monotonic();
    for (const [id, until] of this.#until) if (until <= now) this.#until.delete(id);
    return [...this.#until.keys()];
  }

  add(rows: readonly RefusedRow[]): void {
    const until = this.#clock.monotonic() + REST_MS;
    for (const { id } of rows) this.#until.set(id, until);
  }

  /**
   * After a failed claim: finds rows that the database refuses to let be claimed, by halves, and adds them.
   *
   * @throws the failure when it is not a refusal, or when no refused row is found; StoreError `schema` when the table is
   *   the cause
   */
  async addRefused({ nextPage, tryClaim, accepted }: TrialClaims, failure: unknown): Promise<readonly RefusedRow[]> {
    if (!isRefused(failure)) throw failure;
    const known = this.ids();
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const ids = await nextPage();
      if (ids.length === 0) break;
      const { results, refused } = await changeInParts(
        ids.filter((id) => !known.includes(id)),
        tryClaim,
      );
      if (refused.size === 0) continue;
      if (results.length === 0) await requireSound([...refused.values()][0] as StoreError, accepted);
      const rows = [...refused].map(([id, { message }]) => ({ id, reason: message }));
      this.add(rows);
      return rows;
    }
    throw failure;
  }
}

/** As long as a lease: after the trigger is fixed no restart is needed. */
const REST_MS = 30_000;
const MOST_PAGES = 50;
/** Rows of a page. */
export const TRIAL_ROWS = 100;
