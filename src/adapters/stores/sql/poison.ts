import type { InsertResult, MessageId, NewInboxRow } from "../../../model/rows.ts";
import type { RelayResult } from "../../../ports/store.ts";
import { bisect } from "./bisect.ts";
import { isRefused, SHORT_REASON } from "./refused.ts";
import type { Row } from "./rows.ts";

/** Why a row whose topic renders empty is dead, on the row and in the log. */
export const EMPTY_TOPIC = "the topic template renders empty";

/**
 * Stores a batch of which the database refuses some row: the others are stored.
 *
 * @param insert stores a part of the batch in one transaction
 * @returns an outcome per row, in the order given
 */
export async function insertAroundPoison(
  rows: readonly NewInboxRow[],
  insert: (part: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>,
): Promise<InsertResult[]> {
  const outcomes: InsertResult[] = [];
  await bisect(rows, async (part) => {
    try {
      outcomes.push(...(await insert(part)));
      return "done";
    } catch (error) {
      if (!isRefused(error)) throw error;
      if (part.length > 1) return "split";
      outcomes.push({ kind: "refused", reason: error.message, mayPassLater: error.code === "refused" });
      return "done";
    }
  });
  return outcomes;
}

/** What a relay of named rows moved. */
type Relayed = Pick<RelayResult, "relayed" | "dead" | "refused">;

/**
 * Relays rows of which the outbox table refuses some: the others are relayed and those are buried, in their order. A row that the inbox table refuses to
 * bury stays as it is.
 *
 * @param waiting the rows, with `id` and `source`
 * @param relay relays the named rows in one transaction
 * @param bury makes a row dead for a reason; false when it waits no more
 */
export async function relayAroundPoison(
  waiting: readonly Row[],
  relay: (ids: readonly MessageId[]) => Promise<Relayed>,
  bury: (id: MessageId, reason: string) => Promise<boolean>,
): Promise<Relayed> {
  const results: Relayed[] = [];
  await bisect(waiting, async (part) => {
    try {
      results.push(await relay(part.map((row) => row.id as MessageId)));
      return "done";
    } catch (error) {
      if (!isRefused(error)) throw error;
      const [only] = part;
      if (part.length > 1 || only === undefined) return "split";
      const [id, source] = [only.id as MessageId, only.source as string];
      const reason = `the outbox table refuses this message: ${error.message}`;
      try {
        const buried = await bury(id, reason).catch((refusal: unknown) => {
          if (!isRefused(refusal)) throw refusal;
          return bury(id, SHORT_REASON);
        });
        results.push({ relayed: 0, dead: buried ? [{ id, source, reason }] : [] });
      } catch (refusal) {
        if (!isRefused(refusal)) throw refusal;
        results.push({ relayed: 0, dead: [], refused: [{ id, source, reason: refusal.message }] });
      }
      return "done";
    }
  });
  return {
    relayed: results.reduce((sum, result) => sum + result.relayed, 0),
    dead: results.flatMap((result) => result.dead),
    refused: results.flatMap((result) => result.refused ?? []),
  };
}
