import { isRefused, StoreError, type StoreErrorCode } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type { Clock } from "../../../time/clock.ts";

/** What became of a part of a batch: the statement's result, or the one item that the database refuses. */
export type Tried<T, R> =
  | { readonly isRefused: false; readonly items: readonly T[]; readonly result: R }
  | { readonly isRefused: true; readonly item: T; readonly error: StoreError };

/** How rows go through the statement that has refused some. */
export interface Trial<T, R> {
  /** Whether the table has taken a row of a part that passed. */
  proves(result: R): boolean;
  /** Sends the row that passed last, and is rolled back. @returns false without such a row @throws StoreError */
  accepted(item: T): Promise<boolean>;
  /** The same with a refused row. @returns false when another process has it, or had it @throws StoreError */
  again(item: T): Promise<unknown>;
}

/**
 * A row is to blame only when it fails alone: another row (of its batch, or else the row that passed last) passes
 * behind it through the same statement, and then the refused row fails again. Otherwise the table is the cause, and all
 * rows wait.
 */
export class RefusalCheck {
  /** Batches in turn that were dropped whole. */
  #droppedInTurn = 0;
  /** The last failure of a batch without a row that passed. */
  #doubt: { readonly refusal: StoreError; readonly accepted: () => Promise<boolean> } | undefined;

  /**
   * @param parts a batch, tried part by part
   * @returns the same; refused rows that are to blame come last, and refused rows that may pass later at once
   * @throws StoreError `schema` when the table is the cause
   */
  async *of<T, R>(parts: AsyncIterable<Tried<T, R>>, trial: Trial<T, R>): AsyncGenerator<Tried<T, R>> {
    const refused: (Tried<T, R> & { readonly isRefused: true })[] = [];
    let [isSound, hasPassed] = [false, false];
    const prove = async ({ item, error }: (typeof refused)[number]): Promise<void> => {
      if (isSound) return;
      const accepted = async () => (await trial.accepted(item)) || hasPassed;
      await requireSound(this.failed(error, accepted), accepted);
      isSound = true;
    };
    for await (const tried of parts) {
      // The trouble of the table may have begun behind the rows that have passed.
      isSound = tried.isRefused ? isSound && MAY_PASS.has(tried.error.code) : isSound || trial.proves(tried.result);
      hasPassed ||= isSound;
      if (!tried.isRefused || MAY_PASS.has(tried.error.code)) yield tried;
      else if (refused.push(tried) === MOST_TRIED) await prove(tried);
    }
    for (const tried of refused) {
      await prove(tried);
      const failure: unknown = await trial.again(tried.item).then(
        // The trouble is over, or is met by commits alone, as a full queue of NOTIFY is.
        (isThere) =>
          isThere === false || troubleOf(tried.error, "the same row passes in a transaction that is rolled back"),
        (error: unknown) => error,
      );
      if (failure !== true && !isRefused(failure)) throw failure;
      if (failure !== true) yield tried;
    }
    this.passed();
  }

  passed(): void {
    this.noteBatch(1, 0);
  }

  /** @param dropped rows that a trigger of the owner has dropped without an error */
  noteBatch(rows: number, dropped: number): void {
    this.#doubt = undefined;
    this.#droppedInTurn = rows === 0 && dropped > 0 ? this.#droppedInTurn + 1 : 0;
  }

  /** @param accepted see {@link Trial} @returns the failure */
  failed(failure: StoreError, accepted: () => Promise<boolean>): StoreError {
    this.#doubt = { refusal: failure, accepted };
    return failure;
  }

  /**
   * @throws StoreError if nothing has passed since a failed batch and the row that passed last fails; or if every row
   *   of the last two batches was dropped
   */
  async check(): Promise<void> {
    if (this.#droppedInTurn > 1) throw new StoreError("schema", `${SKIPPED_REASON}; it drops every row: ${REMEDY}`);
    if (this.#doubt !== undefined) await isAccepted(this.#doubt.refusal, this.#doubt.accepted);
  }
}

/**
 * @param accepted see {@link Trial}
 * @throws StoreError `schema`, of `refusal`, when the row that passed last is refused too, or when there is none
 */
export async function requireSound(refusal: StoreError, accepted: () => Promise<boolean>): Promise<void> {
  if (await isAccepted(refusal, accepted)) return;
  throw troubleOf(refusal, "no row has passed yet to compare it with");
}

/** @returns false without a row that has passed @throws StoreError `schema` when that is refused */
async function isAccepted(refusal: StoreError, accepted: () => Promise<boolean>): Promise<boolean> {
  try {
    return await accepted();
  } catch (error) {
    if (!isRefused(error)) throw error;
    // It meets itself, by a unique key of the owner.
    if (error.code === "duplicate") return true;
    throw troubleOf(refusal, "the row that passed last is refused too");
  }
}

function troubleOf({ message }: StoreError, why: string): StoreError {
  return new StoreError("schema", `${message}; ${why}: the row is not to blame, and all rows wait until you ${REMEDY}`);
}

const REMEDY = "correct the table (partitions, sequence, triggers, policies, constraints)";

/** Why a row of the code `skipped` was not written. */
export const SKIPPED_REASON = "a trigger on the table drops what is written to the row: it returns NULL or OLD";

/** Nothing is decided about such rows: they are tried again. */
const MAY_PASS: ReadonlySet<StoreErrorCode> = new Set(["busy"]);

/** Refused rows of a batch before the others are left untried, if none passes: a default batch of the relay. */
const MOST_TRIED = 100;

export interface RefusedRow {
  readonly id: MessageId;
  readonly reason: string;
}

/** Rows that the database refuses to change. This process skips them for a while, and others of their keys wait. */
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
}

/** As long as a lease: after the trigger is fixed no restart is needed. */
const REST_MS = 30_000;
