import { StoreError } from "../../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import type { PullClaim, PulledRow, PullStore } from "../../../ports/pullStore.ts";
import { askEach, type Failure, failed } from "./asking.ts";
import type { CellLink } from "./link.ts";

/**
 * Pull clients take from all cells. A claim begins with another cell each time, so that a client that takes few messages
 * empties them all; a cell that is away keeps its messages, and the others go on.
 */
export function cellPull(cells: readonly CellLink[]): PullStore {
  const holders = new Holders(cells);
  let first = 0;
  /** @returns what became of the rows in the cells that may hold some */
  const inHolders = async <T>(
    claim: PullClaim,
    work: (pull: PullStore) => Promise<T>,
    idsOf: (value: T) => readonly MessageId[],
  ): Promise<readonly T[]> => {
    const { answers, failures } = await askEach(holders.of(claim.token), ({ pull }) => work(pull));
    const hasChanged = answers.some(({ value }) => idsOf(value).length > 0);
    // What was done is worth more to the client than what is not known: those rows come again after their lease.
    if (failures.length > 0 && !hasChanged) throw failed(failures, "");
    return answers.map(({ value }) => value);
  };
  const united = async (
    claim: PullClaim,
    work: (pull: PullStore) => Promise<readonly MessageId[]>,
  ): Promise<readonly MessageId[]> => (await inHolders(claim, work, (ids) => ids)).flat();
  return {
    async claim(request) {
      const { source, token } = request;
      const inTurn = [...cells.slice(first), ...cells.slice(0, first)];
      first = (first + 1) % cells.length;
      const rows: PulledRow[] = [];
      const dead: MessageId[] = [];
      const failures: Failure[] = [];
      let bytes = 0;
      for (const cell of inTurn) {
        const left = { limit: request.limit - rows.length, maxBytes: request.maxBytes - bytes };
        if (left.limit <= 0 || left.maxBytes <= 0) break;
        try {
          const claimed = await cell.ask(({ pull }) => pull.claim({ ...request, ...left }), {
            // Nobody gets these messages.
            onLate: (late, { store }) =>
              void store.pull.release({ source, token, ids: late.rows.map(({ id }) => id) }).catch(() => {}),
          });
          if (claimed.rows.length > 0) holders.note(token, cell);
          rows.push(...claimed.rows);
          dead.push(...claimed.dead);
          bytes += claimed.rows.reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0);
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          failures.push({ cell, error });
        }
      }
      if (failures.length === cells.length) throw failed(failures, "");
      return { rows, dead };
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

/** Which cells have the rows of a claim. Claims of other processes are not known: any cell may. */
class Holders {
  readonly #cells: readonly CellLink[];
  readonly #known = new Map<ClaimToken, Set<CellLink>>();

  constructor(cells: readonly CellLink[]) {
    this.#cells = cells;
  }

  note(token: ClaimToken, cell: CellLink): void {
    const known = this.#known.get(token) ?? new Set();
    this.#known.set(token, known.add(cell));
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest);
  }

  of(token: ClaimToken): readonly CellLink[] {
    const known = this.#known.get(token);
    return known === undefined ? this.#cells : [...known];
  }
}

const MOST_KNOWN = 10_000;
