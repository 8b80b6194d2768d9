import type { MessageId } from "../../../model/rows.ts";
import type { Clock } from "../../../time/clock.ts";
import { changeAroundRefusal, isRefused } from "./refused.ts";

/** A row that the database refuses to let be claimed, with what it says. */
export interface RefusedRow {
  readonly id: MessageId;
  readonly reason: string;
}

/** Rows that the claims of this process leave out for a while, because a trigger or a constraint of the owner refuses each claim of them. */
export class LeftOut {
  readonly #clock: Clock;
  readonly #until = new Map<MessageId, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Those left out now; mostly none. */
  ids(): readonly MessageId[] {
    if (this.#until.size === 0) return [];
    const now = this.#clock.monotonic();
    for (const [id, until] of this.#until) if (until <= now) this.#until.delete(id);
    return [...this.#until.keys()];
  }

  /**
   * After a claim that failed: leaves out the rows that the database refuses.
   *
   * @returns those rows
   * @throws the failure where no single row is at fault
   */
  async learn(trials: ClaimTrials, failure: unknown): Promise<readonly RefusedRow[]> {
    if (!isRefused(failure)) throw failure;
    const refused = await findRefused(trials, this.ids(), failure);
    this.add(refused);
    return refused;
  }

  add(rows: readonly RefusedRow[]): void {
    const until = this.#clock.monotonic() + LEFT_OUT_MS;
    for (const { id } of rows) this.#until.set(id, until);
  }
}

/** As long as a lease: whoever mends the trigger need not restart anything. */
const LEFT_OUT_MS = 30_000;

/** What the search for refused rows asks of a database. */
export interface ClaimTrials {
  /** The next due rows in order, page by page; empty behind the last. */
  page(): Promise<readonly MessageId[]>;
  /** Claims the rows and takes it back. @throws StoreError when one of them is refused */
  attempt(ids: readonly MessageId[]): Promise<void>;
}

/**
 * Finds out which due rows keep a claim from being made.
 *
 * @param known rows that claims leave out already
 * @param refusal of the claim
 * @returns the refused rows
 * @throws the refusal when none of a few rows passes, or none is found: the fault is the table's then, and no row is to
 * suffer for it
 */
async function findRefused(
  trials: ClaimTrials,
  known: readonly MessageId[],
  refusal: Error,
): Promise<readonly RefusedRow[]> {
  const refused: RefusedRow[] = [];
  let looked = 0;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const rows = await trials.page();
    if (rows.length === 0) break;
    const unknown = rows.filter((id) => !known.includes(id));
    looked += unknown.length;
    const found = await changeAroundRefusal(unknown, (part) => trials.attempt(part));
    for (const [id, { message }] of found) refused.push({ id, reason: message });
    if (refused.length > 0 && looked > refused.length) return refused;
    if (refused.length >= MOST_REFUSED) break;
  }
  if (refused.length === 1 || refused.length >= MOST_REFUSED) return refused;
  throw refusal;
}

/** Rows of a page. */
export const TRIAL_ROWS = 200;
const MOST_PAGES = 50;
/** As many as a search may take: those behind them are looked at by the next claim, which leaves these out. */
const MOST_REFUSED = 1000;
