import { randomUUID } from "node:crypto";
import { StoreError } from "../../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import type { PullClaim, PullClaimResult, PullStore } from "../../../ports/pullStore.ts";
import { type Clock, systemTimer } from "../../../time/clock.ts";
import { sharedController, timeout } from "../../../time/wait.ts";
import { askEach, type Failure, failed } from "./asking.ts";
import { type CellLink, HANG_FOUND_MS } from "./link.ts";

/**
 * Pull clients take from all cells, a claim from one: it begins with another cell each time, and ends with the first that
 * has messages. Each cell is asked with a token of its own. So nobody can close rows that a cell claimed and the client
 * never got, as its answer was late or lost. A cell that is away, or slow, keeps its messages, and the others go on.
 */
export function cellPull(cells: readonly CellLink[], clock: Pick<Clock, "monotonic">): PullStore {
  const holders = new Holders(cells);
  const paces = new Map<string, Pace>();
  const paceOf = (cell: CellLink, source: string): Pace => {
    const name = JSON.stringify([cell.name, source]);
    const pace = paces.get(name) ?? new Pace(clock);
    paces.set(name, pace);
    return pace;
  };
  let first = 0;
  /** @returns what became of the rows in the cells that may hold some */
  const inHolders = async <T>(
    claim: PullClaim,
    work: (pull: PullStore) => Promise<T>,
    idsOf: (value: T) => readonly MessageId[],
  ): Promise<readonly T[]> => {
    const patience = sharedController();
    let cancel: (() => void) | undefined;
    const { answers, failures } = await askEach(
      holders.of(claim.token),
      async ({ pull }) => {
        const value = await work(pull);
        // One cell has the rows: the others do not hold up the answer.
        if (idsOf(value).length > 0) cancel ??= systemTimer(MOMENT_MS, () => patience.abort());
        return value;
      },
      { patience: patience.signal },
    ).finally(() => cancel?.());
    const hasChanged = answers.some(({ value }) => idsOf(value).length > 0);
    if (failures.length > 0 && !hasChanged) throw failed(failures, "");
    return answers.map(({ value }) => value);
  };
  const united = async (
    claim: PullClaim,
    work: (pull: PullStore) => Promise<readonly MessageId[]>,
  ): Promise<readonly MessageId[]> => (await inHolders(claim, work, (ids) => ids)).flat();
  return {
    async claim(request) {
      const { source } = request;
      const inTurn = [...cells.slice(first), ...cells.slice(0, first)];
      first = (first + 1) % cells.length;
      let { token } = request;
      const dead: MessageId[] = [];
      const refused: NonNullable<PullClaimResult["refused"]>[number][] = [];
      const failures: Failure[] = [];
      for (const cell of inTurn) {
        const pace = paceOf(cell, source);
        if (pace.isLate) continue;
        const own = { ...request, token };
        using limit = timeout(pace.patienceMs, "a claim");
        try {
          const claimed = await cell.ask(({ pull }) => pace.claim(() => pull.claim(own)), {
            patience: limit.signal,
            // Nobody gets these messages.
            onLate: ({ rows }, { store }) =>
              void store.pull.release({ source, token: own.token, ids: rows.map(({ id }) => id) }).catch(() => {}),
          });
          dead.push(...claimed.dead);
          refused.push(...(claimed.refused ?? []));
          if (claimed.rows.length > 0) {
            holders.note(claimed.token, cell);
            return { ...claimed, dead, refused };
          }
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          if (limit.signal.aborted) pace.giveUp();
          else failures.push({ cell, error });
        }
        token = randomUUID() as ClaimToken;
      }
      if (failures.length === cells.length) throw failed(failures, "");
      return { token, rows: [], dead, refused };
    },

    acknowledge: (claim) => united(claim, (pull) => pull.acknowledge(claim)),
    extend: (claim, leaseMs) => united(claim, (pull) => pull.extend(claim, leaseMs)),
    release: (claim) => united(claim, (pull) => pull.release(claim)),

    async reject(claim, options) {
      const rejections = await inHolders(
        claim,
        (pull) => pull.reject(claim, options),
        ({ retried, dead }) => [...retried, ...dead],
      );
      return {
        retried: rejections.flatMap(({ retried }) => retried),
        dead: rejections.flatMap(({ dead }) => dead),
        released: rejections.flatMap(({ released }) => released),
      };
    },
  };
}

/** The shortest wait for a cell, in ms. One that hangs is found out before. */
const MOMENT_MS = HANG_FOUND_MS + 500;
/** The longest wait of a claim for a cell, in ms, while clients of the others wait as well. */
const MOST_PATIENT_MS = 10_000;

/** How claims of a source go in one cell. */
class Pace {
  readonly #clock: Pick<Clock, "monotonic">;
  #running = 0;
  #givenUp = false;
  #lastMs = 0;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** A claim for which nobody waits any more still runs: another would wait for the same, as a lock. */
  get isLate(): boolean {
    return this.#givenUp && this.#running > 0;
  }

  /** Twice as long as the last claim: the messages of a cell that is always slow are got, too. */
  get patienceMs(): number {
    return Math.min(Math.max(MOMENT_MS, 2 * this.#lastMs), MOST_PATIENT_MS);
  }

  async claim<T>(run: () => Promise<T>): Promise<T> {
    const startedAt = this.#clock.monotonic();
    this.#running += 1;
    this.#givenUp = false;
    try {
      return await run();
    } finally {
      this.#running -= 1;
      this.#lastMs = this.#clock.monotonic() - startedAt;
    }
  }

  giveUp(): void {
    this.#givenUp = true;
  }
}

/** Which cell has the rows of a claim. Claims of other processes are not known: any cell may. */
class Holders {
  readonly #cells: readonly CellLink[];
  readonly #known = new Map<ClaimToken, CellLink>();

  constructor(cells: readonly CellLink[]) {
    this.#cells = cells;
  }

  note(token: ClaimToken, cell: CellLink): void {
    this.#known.set(token, cell);
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest);
  }

  of(token: ClaimToken): readonly CellLink[] {
    const known = this.#known.get(token);
    return known === undefined ? this.#cells : [known];
  }
}

const MOST_KNOWN = 10_000;
