import { randomUUID } from "node:crypto";
import { expect } from "@jest/globals";
import type { ClaimToken, MessageId } from "../../../src/model/rows.ts";
import type { ClaimRequest, ClaimResult, ClaimScope } from "../../../src/ports/store.ts";
import { LEASE, type OutboxModel } from "./model.ts";
import type { System } from "./system.ts";

/** One claim as it is generated. */
export interface Claiming {
  readonly replica: number;
  readonly limit: number;
  readonly maxBytes: number;
  /** Whether the replica says which claims it holds, and so goes on with their keys. */
  readonly namesHeld: boolean;
  /** Of all rows when there is none. */
  readonly scope?: ClaimScope | null | undefined;
}

/** Claims, and checks against everything that the claim had to find. */
export async function claim(model: OutboxModel, system: System, claiming: Claiming): Promise<void> {
  const request = requestOf(model, claiming);
  const expected = model.claimable(request);
  const replica = model.replica(claiming.replica);
  if (request.scope !== undefined) return await claimInScope(model, system, claiming, request);
  replica.mayLookPastFront ||= expected.more && expected.heldBack * 2 > request.limit;
  const result = await ask(model, system, claiming, request);
  if (replica.mayLookPastFront) {
    expect(model.faultsOf(idsOf(result), request)).toEqual(new Map());
  } else {
    const { more, heldBack } = result;
    expect({ rows: idsOf(result), more, heldBack }).toEqual(expected);
  }
  take(model, claiming, request, result);
}

/** The first claim of a scope since time passed looks at every row of it, or says that more are due behind those of its front. */
async function claimInScope(
  model: OutboxModel,
  system: System,
  claiming: Claiming,
  request: ClaimRequest,
): Promise<void> {
  const { mayLookPastFront, scopesClaimed } = model.replica(claiming.replica);
  const { rows: free } = model.claimable({ ...request, limit: Number.POSITIVE_INFINITY });
  const { more } = model.claimable(request);
  const mayOverlook = mayLookPastFront || scopesClaimed.has(identityOf(request));
  const isAnyRunning = model.rows.some(({ state }) => state === "processing");
  const result = await ask(model, system, claiming, request);
  expect(model.faultsOf(idsOf(result), request)).toEqual(new Map());
  if (!mayOverlook && !more && !result.more) expect(idsOf(result)).toEqual(free);
  // However many rows wait behind others, a free one is met.
  if (!mayOverlook && !isAnyRunning && free.length > 0) expect(idsOf(result)).not.toEqual([]);
  take(model, claiming, request, result);
}

const identityOf = ({ scope }: ClaimRequest): string => scope?.name ?? "all rows";

/** Several replicas claim at the same moment: each gets what it may have beside the others, and no row comes twice. */
export async function claimTogether(model: OutboxModel, system: System, claimings: readonly Claiming[]): Promise<void> {
  const requests = claimings.map((claiming) => requestOf(model, claiming));
  const results = await Promise.all(
    claimings.map((claiming, n) => ask(model, system, claiming, requests[n] ?? requestOf(model, claiming))),
  );
  const ids = results.flatMap(idsOf);
  expect(ids).toHaveLength(new Set(ids).size);
  for (const [n, result] of results.entries()) {
    expect(model.faultsOf(idsOf(result), requests[n] ?? NOTHING_HELD)).toEqual(new Map());
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
  const [result] = await Promise.all([ask(model, system, claiming, request), other()]);
  const ids = idsOf(result);
  const [faultsBefore, faultsAfter] = [before, model].map((state) => state.faultsOf(ids, request));
  const faults = ids.filter((id) => faultsBefore?.has(id) && faultsAfter?.has(id));
  expect(faults.map((id) => `before: ${faultsBefore?.get(id)}; after: ${faultsAfter?.get(id)}`)).toEqual([]);
  take(model, claiming, request, result);
  model.replica(claiming.replica).mayLookPastFront = true;
}

/** A replica receives rows, and claims at once what a claim may have: those whose keys wait for nothing, up to the limit. */
export async function receive(
  model: OutboxModel,
  system: System,
  claiming: Claiming,
  keys: readonly (string | null)[],
): Promise<void> {
  const request = requestOf(model, { ...claiming, scope: null });
  const isFree = (key: string | null) =>
    key === null || !model.rows.some((row) => row.key === key && model.holdsBack(row, request.heldTokens));
  const expected = keys.map((key, n) => n < request.limit && isFree(key));
  const { ids, claimed } = await system.receive(claiming.replica, keys, request);
  for (const [n, id] of ids.entries()) model.insert(id, keys[n] ?? null, 0);
  expect(claimed.map(({ id }) => id)).toEqual(ids.filter((_, n) => expected[n]));
  take(model, claiming, request, { rows: claimed });
}

/** Receives while something else happens: each claimed row must be right by what was before, or by what is after. */
export async function receiveDuring(
  model: OutboxModel,
  system: System,
  claiming: Claiming,
  keys: readonly (string | null)[],
  other: () => Promise<void>,
): Promise<void> {
  const request = requestOf(model, { ...claiming, scope: null });
  const before = model.snapshot();
  const [{ ids, claimed }] = await Promise.all([system.receive(claiming.replica, keys, request), other()]);
  for (const state of [before, model]) for (const [n, id] of ids.entries()) state.insert(id, keys[n] ?? null, 0);
  const [faultsBefore, faultsAfter] = [before, model].map((state) =>
    state.faultsOf(
      claimed.map(({ id }) => id),
      request,
    ),
  );
  expect(claimed.filter(({ id }) => faultsBefore?.has(id) && faultsAfter?.has(id))).toEqual([]);
  take(model, claiming, request, { rows: claimed });
  model.replica(claiming.replica).mayLookPastFront = true;
}

/**
 * Claims while rows are inserted that its own transaction may not know of: what it takes must be in order by all that
 * is there afterwards.
 */
export function claimOutOfSight(model: OutboxModel, system: System, claiming: Claiming) {
  const request = requestOf(model, claiming);
  let ended = false;
  const result = ask(model, system, claiming, request).finally(() => {
    ended = true;
  });
  result.catch(() => {});
  const check = async () => {
    expect(model.faultsOf(idsOf(await result), request)).toEqual(new Map());
    take(model, claiming, request, await result);
    model.replica(claiming.replica).mayLookPastFront = true;
  };
  return { hasEnded: () => ended, check };
}

function requestOf(model: OutboxModel, { replica, limit, maxBytes, namesHeld, scope }: Claiming): ClaimRequest {
  const heldTokens = namesHeld ? model.heldTokens(replica) : [];
  return { limit, maxBytes, token: randomUUID() as ClaimToken, heldTokens, scope: scope ?? undefined, ...LEASE };
}

const NOTHING_HELD = { heldTokens: [] };

async function ask(
  model: OutboxModel,
  { replicas }: System,
  { replica }: Claiming,
  request: ClaimRequest,
): Promise<ClaimResult> {
  const store = replicas[replica]?.store;
  if (store === undefined) throw new Error(`there is no replica ${replica}`);
  if (request.scope !== undefined) model.replica(replica).scopesClaimed.add(identityOf(request));
  return await store.outbox.claim(request);
}

type Claimed = Pick<ClaimResult, "rows">;

function take(model: OutboxModel, { replica }: Claiming, { token }: ClaimRequest, result: Claimed): void {
  const seen = result.rows.map(({ id, claimToken, key, attempt }) => ({ id, claimToken, key, attempt }));
  const expected = idsOf(result).map((id) => {
    const { key, attempt } = model.row(id);
    return { id, claimToken: token, key, attempt };
  });
  expect(seen).toEqual(expected);
  model.claim(replica, idsOf(result), token);
}

const idsOf = (result: Claimed): readonly MessageId[] => result.rows.map(({ id }) => id);
