import { randomUUID } from "node:crypto";
import { expect } from "@jest/globals";
import type { ClaimToken, MessageId } from "../../../src/model/rows.ts";
import type { ClaimRequest, ClaimResult } from "../../../src/ports/store.ts";
import { LEASE, type OutboxModel } from "./model.ts";
import type { System } from "./system.ts";

/** One claim as it is generated. */
export interface Claiming {
  readonly replica: number;
  readonly limit: number;
  readonly maxBytes: number;
  /** Whether the replica says which claims it holds, and so goes on with their keys. */
  readonly namesHeld: boolean;
}

/** Claims, and checks against everything that the claim had to find. */
export async function claim(model: OutboxModel, system: System, claiming: Claiming): Promise<void> {
  const request = requestOf(model, claiming);
  const expected = model.claimable(request);
  const replica = model.replica(claiming.replica);
  replica.mayLookPastFront ||= expected.more && expected.heldBack * 2 > request.limit;
  const result = await ask(system, claiming, request);
  if (replica.mayLookPastFront) {
    expect(model.faultsOf(idsOf(result), request.heldTokens)).toEqual(new Map());
  } else {
    const { more, heldBack } = result;
    expect({ rows: idsOf(result), more, heldBack }).toEqual(expected);
  }
  take(model, claiming, request, result);
}

/** Several replicas claim at the same moment: each gets what it may have beside the others, and no row comes twice. */
export async function claimTogether(model: OutboxModel, system: System, claimings: readonly Claiming[]): Promise<void> {
  const requests = claimings.map((claiming) => requestOf(model, claiming));
  const results = await Promise.all(
    claimings.map((claiming, n) => ask(system, claiming, requests[n] ?? requestOf(model, claiming))),
  );
  const ids = results.flatMap(idsOf);
  expect(ids).toHaveLength(new Set(ids).size);
  for (const [n, result] of results.entries()) {
    expect(model.faultsOf(idsOf(result), requests[n]?.heldTokens ?? [])).toEqual(new Map());
  }
  for (const [n, claiming] of claimings.entries()) {
    const [request, result] = [requests[n], results[n]];
    if (request !== undefined && result !== undefined) take(model, claiming, request, result);
    model.replica(claiming.replica).mayLookPastFront = true;
  }
}

/**
 * Claims while something else happens. Each row must be right by what was before, or by what is after.
 *
 * @param other changes table and model
 */
export async function claimDuring(
  model: OutboxModel,
  system: System,
  claiming: Claiming,
  other: () => Promise<void>,
): Promise<void> {
  const request = requestOf(model, claiming);
  const before = model.snapshot();
  const [result] = await Promise.all([ask(system, claiming, request), other()]);
  const ids = idsOf(result);
  const [faultsBefore, faultsAfter] = [before, model].map((state) => state.faultsOf(ids, request.heldTokens));
  const faults = ids.filter((id) => faultsBefore?.has(id) && faultsAfter?.has(id));
  expect(faults.map((id) => `before: ${faultsBefore?.get(id)}; after: ${faultsAfter?.get(id)}`)).toEqual([]);
  take(model, claiming, request, result);
  model.replica(claiming.replica).mayLookPastFront = true;
}

/**
 * Claims while rows are inserted that its own transaction may not know of: what it takes must be in order by all that
 * is there afterwards.
 */
export function claimOutOfSight(model: OutboxModel, system: System, claiming: Claiming) {
  const request = requestOf(model, claiming);
  let ended = false;
  const result = ask(system, claiming, request).finally(() => {
    ended = true;
  });
  result.catch(() => {});
  const check = async () => {
    expect(model.faultsOf(idsOf(await result), request.heldTokens)).toEqual(new Map());
    take(model, claiming, request, await result);
    model.replica(claiming.replica).mayLookPastFront = true;
  };
  return { hasEnded: () => ended, check };
}

function requestOf(model: OutboxModel, { replica, limit, maxBytes, namesHeld }: Claiming): ClaimRequest {
  const heldTokens = namesHeld ? model.heldTokens(replica) : [];
  return { limit, maxBytes, token: randomUUID() as ClaimToken, heldTokens, ...LEASE };
}

async function ask({ replicas }: System, { replica }: Claiming, request: ClaimRequest): Promise<ClaimResult> {
  const store = replicas[replica]?.store;
  if (store === undefined) throw new Error(`there is no replica ${replica}`);
  return await store.outbox.claim(request);
}

function take(model: OutboxModel, { replica }: Claiming, { token }: ClaimRequest, result: ClaimResult): void {
  const seen = result.rows.map(({ id, claimToken, key, attempt }) => ({ id, claimToken, key, attempt }));
  const expected = idsOf(result).map((id) => {
    const { key, attempt } = model.row(id);
    return { id, claimToken: token, key, attempt };
  });
  expect(seen).toEqual(expected);
  model.claim(replica, idsOf(result), token);
}

const idsOf = (result: ClaimResult): readonly MessageId[] => result.rows.map(({ id }) => id);
