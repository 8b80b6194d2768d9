import { randomUUID } from "node:crypto";
import { StoreError } from "../../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import type { PullClaim, PullClaimResult, PullStore } from "../../../ports/pullStore.ts";
import { resolvesWithin } from "../../../time/wait.ts";
import { type Failure, failed } from "./asking.ts";
import type { CellLink } from "./link.ts";

/**
 * Pull clients take from all cells, a claim from one: it begins with another cell each time, and ends with the first that
 * has messages. A claim that takes longer than 2.5 s is not waited for, and gives back what it gets; until it ends, its
 * cell is left out of the claims of its source.
 */
export function cellPull(cells: readonly CellLink[]): PullStore {
  /** Cell and source of claims that nobody waits for any more. */
  const late = new Set<string>();
  let first = 0;
  /** @returns undefined when it was not waited for */
  const claimIn = async (cell: CellLink, request: Parameters<PullStore["claim"]>[0]) => {
    const { source, token } = request;
    const run = { isAwaited: true, hasEnded: false };
    const claiming = cell.ask(async ({ pull }) => {
      try {
        const claimed = await pull.claim(request);
        if (!run.isAwaited) await pull.release({ source, token, ids: null });
        return claimed;
      } finally {
        run.hasEnded = true;
        late.delete(lateName(cell, source));
      }
    });
    try {
      if ((await resolvesWithin(PATIENCE_MS, claiming)) || run.hasEnded) return await claiming;
      late.add(lateName(cell, source));
      return undefined;
    } finally {
      run.isAwaited = false;
    }
  };
  /** Works on the rows of a claim in its cell. */
  const inCell = async <T>({ token }: PullClaim, work: (pull: PullStore) => Promise<T>, nothing: T): Promise<T> =>
    (await cells[placeOf(token)]?.ask(({ pull }) => work(pull))) ?? nothing;
  return {
    async claim(request) {
      const { source } = request;
      const inTurn = [...cells.slice(first), ...cells.slice(0, first)];
      first = (first + 1) % cells.length;
      const dead: MessageId[] = [];
      const refused: NonNullable<PullClaimResult["refused"]>[number][] = [];
      const failures: Failure[] = [];
      for (const cell of inTurn) {
        if (late.has(lateName(cell, source))) continue;
        try {
          const claimed = await claimIn(cell, { ...request, token: tokenOf(cell.place) });
          dead.push(...(claimed?.dead ?? []));
          refused.push(...(claimed?.refused ?? []));
          if (claimed !== undefined && claimed.rows.length > 0) return { ...claimed, dead, refused };
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          failures.push({ cell, error });
        }
      }
      if (failures.length === cells.length) throw failed(failures);
      return { token: request.token, rows: [], dead, refused };
    },

    acknowledge: (claim) => inCell(claim, (pull) => pull.acknowledge(claim), []),
    extend: (claim, leaseMs) => inCell(claim, (pull) => pull.extend(claim, leaseMs), []),
    release: (claim) => inCell(claim, (pull) => pull.release(claim), []),
    reject: (claim, options) =>
      inCell(claim, (pull) => pull.reject(claim, options), { retried: [], dead: [], released: [] }),
  };
}

const lateName = ({ place }: CellLink, source: string) => `${place} ${source}`;

/** Longer than it takes to find out that a cell hangs. */
const PATIENCE_MS = 2500;

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
