import { randomUUID } from "node:crypto";
import type { ClaimToken, MessageId, NewInboxRow } from "../../../src/model/rows.ts";
import type { PullClaim, PullClaimRequest, PulledRow } from "../../../src/ports/pullStore.ts";
import { inboxRow, type StoreHarness } from "./harness.ts";

export function pullRequest(overrides: Partial<PullClaimRequest> = {}): PullClaimRequest {
  return {
    source: "orders",
    token: randomUUID() as ClaimToken,
    limit: 100,
    maxBytes: 1_000_000,
    leaseMs: 30_000,
    maxAttempts: 5,
    ...overrides,
  };
}

/** Stores pull rows of the source `orders`, one after another. */
export async function receive(
  { store }: Pick<StoreHarness, "store">,
  rows: readonly Partial<NewInboxRow>[],
): Promise<readonly NewInboxRow[]> {
  const received = rows.map((row) => inboxRow({ consumption: "pull", ...row }));
  await store.inbox.insert(received);
  return received;
}

/** Claims and gives what a client knows of its claim. */
export async function claim(
  { store }: Pick<StoreHarness, "store">,
  overrides: Partial<PullClaimRequest> = {},
): Promise<PullClaim> {
  const request = pullRequest(overrides);
  const { token } = await store.pull.claim(request);
  return { source: request.source, token, ids: null };
}

export const ids = (rows: readonly Pick<PulledRow, "id">[]): readonly MessageId[] => rows.map((row) => row.id);
