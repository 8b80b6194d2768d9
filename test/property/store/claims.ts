import { randomUUID } from "node:crypto";
import { expect } from "@jest/globals";
import { deliveryId } from "../../../src/model/deliveries.ts";
import type { ClaimToken, MessageId } from "../../../src/model/rows.ts";
import { type ClaimRequest, type ClaimResult, type Expansion, NO_DESTINATION } from "../../../src/ports/store.ts";
import { queuesOf } from "../../conformance/store/harness.ts";
import { LEASE, LIST, LIST_TOPIC, type OutboxModel, PAYLOAD } from "./model.ts";
import { LIST_ROUTING, type ReceivedRow, type System } from "./system.ts";

/** A generated claim. */
export interface Claiming {
  readonly replica: number;
  readonly limit: number;
  readonly maxBytes: number;
  /** Whether the replica names the claims that it holds, and so continues with their keys. */
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
  // However many rows wait behind others, a free one is found, or a message to expand that has taken its room.
  const foundNone = !result.more && (result.lists ?? []).length === 0;
  if (!replica.mayLookPastFront && !isAnyRunning && free.length > 0 && foundNone) {
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

/**
 * A replica receives rows, and claims at once what a claim may have: the rows that wait for nothing, up to the limit. It expands messages of a list, and claims
 * none of a key with rows of both lanes.
 */
export async function receive(
  model: OutboxModel,
  system: System,
  claiming: Claiming,
  received: readonly ReceivedRow[],
): Promise<void> {
  const request = requestOf(model, { ...claiming, room: null });
  const isMixed = (key: string | null) =>
    key !== null && new Set(received.filter((row) => row.key === key).map(({ topic }) => topic)).size > 1;
  let made = 0;
  const expected = received.map(({ key, topic }) => {
    const isDelivery = topic === LIST_TOPIC;
    const destinations = isDelivery ? LIST : [topic];
    made += destinations.length;
    if (made > request.limit || isMixed(key)) return [];
    return destinations.filter((each) => model.isFree(key, each, isDelivery, request.heldTokens));
  });
  const { ids, claimed } = await system.receive(claiming.replica, received, request);
  await insertReceived(model, system, received, ids);
  const idsToClaim = ids.flatMap((id, n) =>
    (expected[n] ?? []).map((each) => (received[n]?.topic === LIST_TOPIC ? deliveryId(id, each) : id)),
  );
  expect(new Set(claimed.map(({ id }) => id))).toEqual(new Set(idsToClaim));
  take(model, claiming, request, { rows: claimed });
}

/** Rows that a receipt has stored, and expanded, come into the model in their order. */
async function insertReceived(
  model: OutboxModel,
  system: System,
  received: readonly ReceivedRow[],
  ids: readonly MessageId[],
): Promise<void> {
  for (const [n, id] of ids.entries()) {
    const { key = null, topic = "orders" } = received[n] ?? {};
    model.insert(id, key, 0, { topic });
  }
  const messages = ids.filter((_, n) => received[n]?.topic === LIST_TOPIC).map((id) => expansionOf(id, LIST));
  await insertDeliveries(model, system, messages);
}

/** All deliveries of a message, to these destinations. */
export function expansionOf(id: MessageId, destinations: readonly string[], isDead = false): Expansion {
  const deliveries = destinations.map((destination, n) => {
    const dies = isDead && n === 0;
    return { destination, isDead: dies, reason: dies ? "broken" : null };
  });
  return { id, deliveries, skipped: [] };
}

/** Messages have been expanded: each delivery is there once. */
export async function insertDeliveries(
  model: OutboxModel,
  system: System,
  expansions: readonly Expansion[],
): Promise<void> {
  const made = new Map(
    expansions.flatMap(({ id, deliveries }) =>
      deliveries.map((each) => [deliveryId(id, each.destination), { message: model.row(id), each }]),
    ),
  );
  const found = (await system.rows()).filter(({ id }) => made.has(id));
  expect(found).toHaveLength(made.size);
  for (const { id } of expansions) model.expand(model.row(id));
  for (const { id } of found) {
    const delivery = made.get(id);
    if (delivery !== undefined) model.deliver(delivery.message, { ...delivery.each, id });
  }
}

/** Receives while something else happens: each claimed row must be right by what was before, or by what is after. */
export async function receiveDuring(
  model: OutboxModel,
  system: System,
  claiming: Claiming,
  received: readonly ReceivedRow[],
  other: () => Promise<void>,
): Promise<void> {
  const request = requestOf(model, { ...claiming, room: null });
  const before = model.snapshot();
  const [{ ids, claimed }] = await Promise.all([system.receive(claiming.replica, received, request), other()]);
  for (const state of [before, model]) await insertReceived(state, system, received, ids);
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
  const queues =
    room == null
      ? undefined
      : { ...queuesOf([]), room: new Map([...room, [NO_DESTINATION, limit]]), routing: LIST_ROUTING };
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
  const seen = result.rows.map(({ id, claimToken, key, attempt, messageId = null, payload }) => {
    return { id, claimToken, key, attempt, messageId, payload };
  });
  const expected = idsOf(result).map((id) => {
    const { key, attempt, messageId, oddity } = model.row(id);
    return { id, claimToken: token, key, attempt, messageId, payload: oddity === "payload NULL" ? null : PAYLOAD };
  });
  expect(seen).toEqual(expected);
  model.claim(replica, idsOf(result), token, LEASE, queues !== undefined);
}

const idsOf = (result: Claimed): readonly MessageId[] => result.rows.map(({ id }) => id);
