import { randomUUID } from "node:crypto";
import { expect } from "@jest/globals";
import type { ClaimToken, MessageId } from "../../../src/model/rows.ts";
import { type ClaimRequest, type ClaimResult, NO_DESTINATION } from "../../../src/ports/store.ts";
import { queuesOf } from "../../conformance/store/harness.ts";
import { LEASE, type OutboxModel } from "./model.ts";
import type { System } from "./system.ts";

/** One claim as it is generated. */
export interface Claiming {
  readonly replica: number;
  readonly limit: number;
  readonly maxBytes: number;
  /** Whether the replica says which claims it holds, and so goes on with their keys. */
  readonly namesHeld: boolean;
  /** The room of each destination; null for all rows as one queue. */
  readonly room?: ReadonlyMap<string, number> | null | undefined;
}

/** Claims, and checks against everything that the claim had to find. */
export async function claim(model: OutboxModel, system: System, claiming: Claiming): Promise<void> {
  const request = requestOf(model, claiming);
  const { unread: _, ...expected } = model.claimable(request);
  const replica = model.replica(claiming.replica);
  if (request.queues !== undefined) return await claimFromQueues(model, system, claiming, request);
  replica.mayLookPastFront ||= expected.more && expected.heldBack * 2 > request.limit;
  const result = await ask(system, claiming, request);
  if (replica.mayLookPastFront) {
    expect(model.faultsOf(idsOf(result), request)).toEqual(new Map());
  } else {
    const { more, heldBack } = result;
    expect({ rows: idsOf(result), more, heldBack }).toEqual(expected);
  }
  take(model, claiming, request, result);
}

/** A claim by destination takes only what it may, and says that more are due unless it found a free row. */
async function claimFromQueues(
  model: OutboxModel,
  system: System,
  claiming: Claiming,
  request: ClaimRequest,
): Promise<void> {
  const replica = model.replica(claiming.replica);
  const { rows: free } = model.claimable({ ...request, limit: Number.POSITIVE_INFINITY });
  const isAnyRunning = model.rows.some(({ state }) => state === "processing");
  const result = await ask(system, claiming, request);
  expect(model.faultsOf(idsOf(result), request)).toEqual(new Map());
  // However many rows wait behind others, a free one is found.
  if (!replica.mayLookPastFront && !isAnyRunning && free.length > 0 && !result.more) {
    expect(idsOf(result)).not.toEqual([]);
  }
  replica.mayLookPastFront = true;
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
  const [result] = await Promise.all([ask(system, claiming, request), other()]);
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
  const request = requestOf(model, { ...claiming, room: null });
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
  const request = requestOf(model, { ...claiming, room: null });
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
  const result = ask(system, claiming, request).finally(() => {
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

function requestOf(model: OutboxModel, { replica, limit, maxBytes, namesHeld, room }: Claiming): ClaimRequest {
  const heldTokens = namesHeld ? model.heldTokens(replica) : [];
  const queues = room == null ? undefined : { ...queuesOf([]), room: new Map([...room, [NO_DESTINATION, limit]]) };
  return { limit, maxBytes, token: randomUUID() as ClaimToken, heldTokens, queues, ...LEASE };
}

const NOTHING_HELD = { heldTokens: [] };

async function ask({ replicas }: System, { replica }: Claiming, request: ClaimRequest): Promise<ClaimResult> {
  const store = replicas[replica]?.store;
  if (store === undefined) throw new Error(`there is no replica ${replica}`);
  return await store.outbox.claim(request);
}

type Claimed = Pick<ClaimResult, "rows">;

function take(model: OutboxModel, { replica }: Claiming, { token, queues }: ClaimRequest, result: Claimed): void {
  const seen = result.rows.map(({ id, claimToken, key, attempt }) => ({ id, claimToken, key, attempt }));
  const expected = idsOf(result).map((id) => {
    const { key, attempt } = model.row(id);
    return { id, claimToken: token, key, attempt };
  });
  expect(seen).toEqual(expected);
  model.claim(replica, idsOf(result), token, LEASE, queues !== undefined);
}

const idsOf = (result: Claimed): readonly MessageId[] => result.rows.map(({ id }) => id);
