import { randomUUID } from "node:crypto";
import { StoreError } from "../../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import type { PullClaim, PullStore } from "../../../ports/pullStore.ts";
import { type Failure, failed } from "./asking.ts";
import type { CellLink } from "./link.ts";

/**
 * Pull clients take from all cells, a claim from one: it begins with another cell each time, and ends with the first that
 * has messages. What a cell claims that does not answer in time returns with its lease.
 */
export function cellPull(cells: readonly CellLink[]): PullStore {
  let first = 0;
  /** Works on the rows of a claim in its cell. */
  const inCell = async <T>({ token }: PullClaim, work: (pull: PullStore) => Promise<T>, nothing: T): Promise<T> =>
    (await cells[placeOf(token)]?.ask(({ pull }) => work(pull))) ?? nothing;
  return {
    async claim(request) {
      const inTurn = [...cells.slice(first), ...cells.slice(0, first)];
      first = (first + 1) % cells.length;
      const dead: MessageId[] = [];
      const failures: Failure[] = [];
      for (const cell of inTurn) {
        try {
          const claimed = await cell.ask(({ pull }) => pull.claim({ ...request, token: tokenOf(cell.place) }));
          dead.push(...claimed.dead);
          if (claimed.rows.length > 0) return { ...claimed, dead };
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          failures.push({ cell, error });
        }
      }
      if (failures.length === cells.length) throw failed(failures);
      return { token: request.token, rows: [], dead };
    },

    acknowledge: (claim) => inCell(claim, (pull) => pull.acknowledge(claim), []),
    extend: (claim, leaseMs) => inCell(claim, (pull) => pull.extend(claim, leaseMs), []),
    reject: (claim, options) =>
      inCell(claim, (pull) => pull.reject(claim, options), { retried: [], dead: [], released: [] }),
  };
}

/**
 * A token for a claim in a cell, which any process finds by it: a UUID of version 8 (RFC 9562), random but for its first
 * 16 bits, which are the place of the cell.
 */
function tokenOf(place: number): ClaimToken {
  const random = randomUUID();
  return `${place.toString(16).padStart(4, "0")}${random.slice(4, 14)}8${random.slice(15)}` as ClaimToken;
}

/** @returns the place that a token tells; no cell may have it */
function placeOf(token: ClaimToken): number {
  return Number.parseInt(token.slice(0, 4), 16);
}
