import { randomUUID } from "node:crypto";
import { expect } from "@jest/globals";
import fc, { type AsyncCommand } from "fast-check";
import type { ClaimToken, MessageId, Outcome } from "../../../src/model/rows.ts";
import type { ReplayFilter, ReplayPage, ReplayScope, ReplayStore } from "../../../src/ports/finishedRows.ts";
import { type Expansion, NO_DESTINATION, type Store } from "../../../src/ports/store.ts";
import { eventually } from "../../support/eventually.ts";
import { REPLAY_PATH } from "../settings.ts";
import {
  type Claiming,
  claim,
  claimDuring,
  claimOutOfSight,
  claimTogether,
  expansionOf,
  insertDeliveries,
  receive,
  receiveDuring,
} from "./claims.ts";
import { LEASE, LIST, LIST_TOPIC, ODDITIES, type OutboxModel } from "./model.ts";
import { type NewRow, type System, TIME_UNIT_MS } from "./system.ts";

type Command = AsyncCommand<OutboxModel, System>;

/** A command that is always possible, and after which table and model must agree. */
function command(
  name: string,
  parameters: unknown,
  run: (model: OutboxModel, system: System) => Promise<void>,
): Command {
  return {
    check: () => true,
    async run(model, system) {
      model.step += 1;
      await run(model, system);
      await expectAgreement(model, system);
    },
    toString: () => `${name}(${JSON.stringify(parameters)})`,
  };
}

/** Every row of the table is what the model says. */
export async function expectAgreement(model: OutboxModel, system: System): Promise<void> {
  const inUnits = (time: number) => (time - model.now) / TIME_UNIT_MS;
  const expected = model.rows.map((row) => ({
    id: row.id,
    state: row.state,
    attempt: row.attempt,
    token: row.token,
    lastError: row.lastError,
    dueIn: Number.isFinite(row.dueAt) ? inUnits(row.dueAt) : null,
    leaseEndsIn: row.leaseEndsAt === null ? null : inUnits(row.leaseEndsAt),
    isExpanded: row.isExpanded,
  }));
  const found = await system.rows();
  expect(found.map(({ destination: _, ...row }) => row)).toEqual(expected);
  for (const { id, destination } of found) {
    const row = model.row(id);
    expect([null, row.destination ?? (row.topic === null ? NO_DESTINATION : null)]).toContain(destination);
    row.label = destination;
  }
}

/** One outcome, for a claim that the replica has, has lost, or never had. */
interface DrawnOutcome {
  readonly pick: number;
  readonly of: "live" | "lost" | "foreign";
  readonly kind: Outcome["kind"];
  readonly delayMs: number;
  readonly attempted: boolean;
}

/** The outcomes in terms of the store; those for which the replica has no claim are left out, and so is a second one for a row. */
function settlementsOf(model: OutboxModel, replica: number, outcomes: readonly DrawnOutcome[]): readonly Outcome[] {
  const settlements = outcomes.flatMap(({ pick, of, kind, delayMs, attempted }): Outcome[] => {
    const claims = of === "lost" ? model.lostClaims(replica) : model.liveClaims(replica);
    const rows = of === "foreign" ? model.rows : claims;
    const id = rows[pick % Math.max(1, rows.length)]?.id;
    if (id === undefined) return [];
    const claimToken = of === "foreign" ? foreignToken() : (claims[pick % claims.length]?.claimToken ?? foreignToken());
    const reason = `${kind} ${pick}`;
    if (kind === "retry") return [{ id, claimToken, kind, delayMs, reason }];
    if (kind === "park") return [{ id, claimToken, kind, reason }];
    return kind === "dead" ? [{ id, claimToken, kind, attempted, reason }] : [{ id, claimToken, kind }];
  });
  const first = new Map(settlements.map((each) => [`${each.id} ${each.claimToken}`, each]));
  return [...first.values()];
}

const foreignToken = () => randomUUID() as ClaimToken;

const insert = (rows: readonly NewRow[]): Command =>
  command("insert", rows, async (model, system) => {
    const ids = await system.insert(rows);
    for (const [n, id] of ids.entries()) {
      const { key = null, topic = "orders", dueInMs = 0, oddity = null } = rows[n] ?? {};
      model.insert(id, key, dueInMs, { oddity, topic });
    }
  });

/** Replicas expand some messages that wait for it, all at the same moment. */
const expand = (replicas: readonly number[], some: readonly number[]): Command =>
  command("expand", { replicas, some }, async (model, system) => {
    const { length } = pickedOf(model.unexpanded(), some);
    const expanded = await expandNow(model, system, replicas, some);
    expect(expanded).toHaveLength(length);
    for (const { store } of system.replicas) expect(await store.outbox.expand(expanded)).toMatchObject({ expanded: 0 });
  });

const pickedOf = <T>(all: readonly T[], some: readonly number[]): readonly T[] => [
  ...new Set(some.flatMap((pick) => all[pick % Math.max(1, all.length)] ?? [])),
];

/** @returns the expanded rows: a claim may have others */
async function expandNow(
  model: OutboxModel,
  system: System,
  replicas: readonly number[],
  some: readonly number[],
): Promise<readonly Expansion[]> {
  // A condition may be false, or fail and make a delivery dead.
  const expansions = pickedOf(model.unexpanded(), some).map(({ id, place }) =>
    expansionOf(id, place % 5 === 0 ? LIST.slice(1) : LIST, place % 7 === 0),
  );
  const orders = [expansions, expansions.toReversed()];
  const results = await Promise.all(
    replicas.map((replica, n) => system.replicas[replica]?.store.outbox.expand(orders[n % 2] ?? [])),
  );
  const found = new Set((await system.rows()).filter(({ isExpanded }) => isExpanded).map(({ id }) => id));
  const expanded = expansions.filter(({ id }) => found.has(id));
  expect(results.flatMap((result) => result?.refused ?? [])).toEqual([]);
  expect(results.reduce((sum, result) => sum + (result?.expanded ?? 0), 0)).toBe(expanded.length);
  await insertDeliveries(model, system, expanded);
  return expanded;
}

/**
 * A claim has begun and waits for a lock when rows of transactions are committed that began after it (`begunLater`) or
 * before it: whatever it takes is in order.
 */
const claimBehindLock = (one: Claiming, rows: readonly { readonly key: string; readonly begunLater: boolean }[]) =>
  command("claimBehindLock", { one, rows }, async (model, system) => {
    const insertThem = async () => {
      await using lock = await system.lockOutbox();
      const claiming = claimOutOfSight(model, system, one);
      // A claim that finds nothing waits for nothing.
      await eventually(async () => claiming.hasEnded() || (await lock.isWaitedFor()));
      for (const [n, id] of (await lock.insert(rows)).entries()) model.insert(id, rows[n]?.key ?? null, 0);
      await lock.release();
      return claiming;
    };
    await (await insertThem()).check();
  });

/**
 * A row of `key` stays in a trigger, with its place in the order and nothing else, while a replica claims other rows
 * and looks for its marks.
 */
const insertSlowly = (one: Claiming, key: string, other: string): Command =>
  command("insertSlowly", { one, key, other }, async (model, system) => {
    await using slow = await system.insertSlowly(key);
    const position = model.reserve();
    const [first, second] = await system.insert([
      { key: other, topic: "orders", dueInMs: 0, oddity: null },
      { key: other, topic: "orders", dueInMs: 0, oddity: null },
    ]);
    for (const id of [first, second]) if (id !== undefined) model.insert(id, other, 0);
    for (let look = 0; look < 3; look += 1) {
      for (const { clock } of system.replicas) clock.advance(MARK_AGE_MS);
      await claim(model, system, { ...one, limit: 100 });
      const settlements = model
        .liveClaims(one.replica)
        .slice(0, -1)
        .map((each): Outcome => ({ ...each, kind: "sent" }));
      await settleAll(model, system.replicas[one.replica]?.store, settlements);
    }
    model.insert(await slow.finish(), key, 0, { position, topic: null });
    const [last] = await system.insert([{ key, topic: "orders", dueInMs: 0, oddity: null }]);
    if (last !== undefined) model.insert(last, key, 0);
    // Which of them it sees before it looks for its marks again is its own affair.
    for (const replica of model.replicas) replica.mayLookPastFront = true;
    await claim(model, system, { ...one, limit: 100 });
  });

const MARK_AGE_MS = 1001;

const renew = (replica: number, lost: boolean): Command =>
  command("renew", { replica, lost }, async (model, { replicas }) => {
    const claims = lost ? model.lostClaims(replica) : model.liveClaims(replica);
    const tokens = [...new Set(claims.map(({ claimToken }) => claimToken))];
    expect(await replicas[replica]?.store.outbox.renew(tokens, LEASE)).toEqual(model.renew(tokens));
  });

const settle = (replica: number, outcomes: readonly DrawnOutcome[]): Command =>
  command("settle", { replica, outcomes }, (model, system) => settleNow(model, system, replica, outcomes));

async function settleAll(model: OutboxModel, store: Store | undefined, settlements: readonly Outcome[]): Promise<void> {
  const settled = await store?.outbox.settle(settlements);
  const { closed } = model.settle(settlements);
  expect(settled?.closed).toEqual(closed);
  expect([...(settled?.refused.keys() ?? [])]).toEqual([]);
}

async function settleNow(model: OutboxModel, { replicas }: System, replica: number, outcomes: readonly DrawnOutcome[]) {
  await settleAll(model, replicas[replica]?.store, settlementsOf(model, replica, outcomes));
}

const reclaim = (replica: number, limit: number): Command =>
  command("reclaim", { replica, limit }, (model, system) => reclaimNow(model, system, replica, limit));

/** A failover loses the latest outcomes, which the replica knows. */
const goBack = (replica: number, outcomes: readonly DrawnOutcome[]): Command =>
  command("goBack", { replica, outcomes }, async (model, system) => {
    const snapshot = model.snapshot();
    const putBack = await system.copy();
    await settleNow(model, system, replica, outcomes);
    await putBack();
    model.goBack(snapshot);
  });

/** Some replica does its work for once: all that it can get is sent. */
const work = (replica: number): Command =>
  command("work", replica, async (model, system) => {
    await system.elapse(LEASE.claimTimeoutMs + TIME_UNIT_MS);
    model.now += LEASE.claimTimeoutMs + TIME_UNIT_MS;
    forgetMoments(model);
    await reclaimNow(model, system, replica, 100);
    await claim(model, system, { replica, limit: 100, maxBytes: 1_000_000, namesHeld: false });
    const settlements = model.liveClaims(replica).map((each): Outcome => ({ ...each, kind: "sent" }));
    await settleAll(model, system.replicas[replica]?.store, settlements);
  });

/** Which of the expired rows come back is the store's choice when there are more than the limit. */
async function reclaimNow(model: OutboxModel, system: System, replica: number, limit: number): Promise<void> {
  const expired = model.expired();
  const count = await system.replicas[replica]?.store.outbox.reclaim(limit, LEASE.claimTimeoutMs);
  expect(count).toBe(Math.min(limit, expired.length));
  const tokens = new Map((await system.rows()).map(({ id, token }) => [id, token]));
  for (const row of expired) if (tokens.get(row.id) !== row.token) model.reclaim(row);
  expect(model.expired()).toHaveLength(expired.length - Number(count));
}

const elapse = (ms: number): Command =>
  command("elapse", ms, async (model, system) => {
    await system.elapse(ms);
    model.now += ms;
    forgetMoments(model);
  });

/** The database's clock is set back. */
const setBack = (ms: number): Command =>
  command("setBack", ms, async (model, system) => {
    await system.elapse(-ms);
    model.now -= ms;
    forgetMoments(model);
  });

function forgetMoments(model: OutboxModel): void {
  // A scope is a moment of the database's clock, which has been moved.
  model.scope = undefined;
  for (const replica of model.replicas) {
    replica.mayLookPastFront = false;
  }
}

const beginReplay = (replica: number): Command =>
  command("beginReplay", replica, async (model, { replicas }) => {
    const scope = await replicas[replica]?.store.replay.begin();
    if (scope !== undefined) model.scope = { scope, step: model.step, now: model.now };
  });

/** Moves some rows of the replay that has begun, or of a new one. */
const replay = (replica: number, picks: readonly number[]): Command =>
  command("replay", { replica, picks }, (model, system) => replayNow(model, system, replica, picks));

async function replayNow(model: OutboxModel, { replicas }: System, replica: number, picks: readonly number[]) {
  const store = replicas[replica]?.store.replay;
  if (store === undefined) return;
  model.scope ??= { scope: await store.begin(), step: model.step, now: model.now };
  const { scope } = model.scope;
  const finished = model.finished(model.scope);
  const ids = pickedOf(
    model.rows.filter(({ isExpanded }) => !isExpanded),
    picks,
  ).map(({ id }) => id);
  const moved = finished.filter(({ id }) => ids.includes(id));
  const isNoMessage = (id: MessageId) => !model.row(id).isExpanded;
  expect((await pagesOf(store, scope)).filter(isNoMessage)).toEqual(finished.map(({ id }) => id));
  const dead = finished.filter(({ state }) => state === "dead");
  expect(await pagesOf(store, scope, { state: "dead" })).toEqual(dead.map(({ id }) => id));
  expect((await store.find(scope, {}, ids)).map(({ id }) => id)).toEqual(moved.map(({ id }) => id));
  expect(await store.move(scope, ids, "alice")).toMatchObject({ changed: moved.length });
  for (const row of moved) model.replay(row);
}

/** An operator retries or discards some of the parked rows. */
const unpark = (replica: number, picks: readonly number[], isRetry: boolean): Command =>
  command("unpark", { replica, picks, isRetry }, async (model, { replicas }) => {
    const store = replicas[replica]?.store.parked;
    if (store === undefined) return;
    expect((await store.list({}, null, 1000)).map(({ id }) => id)).toEqual(model.parked().map(({ id }) => id));
    const ids = [...new Set(picks.flatMap((pick) => model.rows[pick % Math.max(1, model.rows.length)]?.id ?? []))];
    const changed = model.parked().filter(({ id }) => ids.includes(id));
    const those = changed.map(({ id }) => id);
    const done = await (isRetry ? store.retry(those, "alice") : store.discard(those, "alice", "given up"));
    expect(done.changed).toBe(changed.length);
    for (const row of changed)
      isRetry ? model.retryParked(row) : model.discardParked(row, "discarded by alice: given up");
  });

async function pagesOf(
  store: ReplayStore,
  scope: ReplayScope,
  filter: ReplayFilter = {},
): Promise<readonly MessageId[]> {
  const ids: MessageId[] = [];
  let after: string | null = null;
  do {
    const page: ReplayPage = await store.page(scope, filter, after, PAGE_SIZE);
    ids.push(...page.rows.map(({ id }) => id));
    after = page.next;
  } while (after !== null);
  return ids;
}

const PAGE_SIZE = 3;

const REPLICAS = 3;
const replicaIndex = fc.nat({ max: REPLICAS - 1 });
const allRows = Array.from({ length: 100 }, (_, n) => n);
const picks = fc.oneof(fc.array(fc.nat({ max: 50 }), { minLength: 1, maxLength: 6 }), fc.constant(allRows));
const limits = fc.constantFrom(1, 2, 3, 100);
const times = fc.constantFrom(0, 0, TIME_UNIT_MS, 3 * TIME_UNIT_MS);
const keys = fc.constantFrom("a", "b", "c");
const lockedRow = fc.record({ key: keys, begunLater: fc.boolean() });
const topics = fc.constantFrom("orders", "orders", "bills");
const topicsAndLists = fc.constantFrom("orders", "bills", LIST_TOPIC, LIST_TOPIC);
const room = fc
  .uniqueArray(fc.tuple(topics, fc.constantFrom(1, 2, 100)), { minLength: 1, selector: ([topic]) => topic })
  .map((rooms) => new Map<string, number>(rooms));
const newRow = fc
  .record({
    key: fc.constantFrom("a", "a", "b", "c", null),
    topic: topicsAndLists,
    dueInMs: times,
    oddity: fc.option(fc.constantFrom(...ODDITIES), { freq: 2 }),
  })
  // Deliveries have the times and the payload of their message, and its trigger would refuse to let it be expanded.
  .map((row) => (row.topic === LIST_TOPIC ? { ...row, oddity: null } : row));
const receivedRows = fc.array(
  fc.record({ key: fc.constantFrom("a", "b", "c", null), topic: fc.constantFrom("orders", "orders", LIST_TOPIC) }),
  { minLength: 1, maxLength: 4 },
);
const claiming: fc.Arbitrary<Claiming> = fc.record({
  replica: replicaIndex,
  limit: limits,
  maxBytes: fc.constantFrom(1, 5, 1_000_000, 1_000_000),
  namesHeld: fc.boolean(),
  room: fc.option(room),
});
const outcomes: fc.Arbitrary<DrawnOutcome[]> = fc.array(
  fc.record({
    pick: fc.nat({ max: 50 }),
    of: fc.constantFrom("live", "live", "live", "lost", "foreign"),
    kind: fc.constantFrom("sent", "retry", "park", "dead", "release"),
    delayMs: times,
    attempted: fc.boolean(),
  }),
  { minLength: 1, maxLength: 6 },
);

/** Everything that replicas, applications and operators do, in any order. */
export const commands = fc.commands(
  [
    fc.array(newRow, { minLength: 1, maxLength: 5 }).map(insert),
    claiming.map((one) => command("claim", one, (model, system) => claim(model, system, one))),
    claiming.map((one) => command("claim", one, (model, system) => claim(model, system, one))),
    fc
      .tuple(claiming, claiming, claiming)
      .map((all) => all.map((one, replica) => ({ ...one, replica })))
      .map((all) => command("claimTogether", all, (model, system) => claimTogether(model, system, all))),
    fc
      .tuple(claiming, receivedRows)
      .map(([one, rows]) => command("receive", { one, rows }, (model, system) => receive(model, system, one, rows))),
    fc.tuple(fc.array(replicaIndex, { minLength: 1, maxLength: 3 }), picks).map(([some, rows]) => expand(some, rows)),
    fc.tuple(fc.array(replicaIndex, { minLength: 1, maxLength: 3 }), picks).map(([some, rows]) => expand(some, rows)),
    fc
      .tuple(claiming, receivedRows, replicaIndex, outcomes)
      .map(([one, rows, replica, list]) =>
        command("receiveDuringSettle", { one, rows, replica, list }, (model, system) =>
          receiveDuring(model, system, one, rows, () => settleNow(model, system, replica, list)),
        ),
      ),
    fc.tuple(replicaIndex, outcomes).map(([replica, list]) => settle(replica, list)),
    fc.tuple(replicaIndex, outcomes).map(([replica, list]) => settle(replica, list)),
    fc.tuple(replicaIndex, outcomes).map(([replica, list]) => goBack(replica, list)),
    fc.tuple(replicaIndex, fc.boolean()).map(([replica, lost]) => renew(replica, lost)),
    fc.tuple(replicaIndex, limits).map(([replica, limit]) => reclaim(replica, limit)),
    fc.constantFrom(2, 4, 6).map((units) => elapse(units * TIME_UNIT_MS)),
    fc.constantFrom(2, 4).map((units) => setBack(units * TIME_UNIT_MS)),
    fc
      .tuple(claiming, fc.array(lockedRow, { minLength: 1, maxLength: 4 }))
      .map(([one, rows]) => claimBehindLock(one, rows)),
    fc.tuple(claiming, keys, keys).map(([one, key, other]) => insertSlowly(one, key, other)),
    replicaIndex.map(work),
    replicaIndex.map(beginReplay),
    fc.tuple(replicaIndex, picks).map(([replica, some]) => replay(replica, some)),
    fc.tuple(replicaIndex, picks, fc.boolean()).map(([replica, some, isRetry]) => unpark(replica, some, isRetry)),
    fc
      .tuple(claiming, replicaIndex, outcomes)
      .map(([one, replica, list]) =>
        command("claimDuringSettle", { one, replica, list }, (model, system) =>
          claimDuring(model, system, one, () => settleNow(model, system, replica, list)),
        ),
      ),
    fc
      .tuple(claiming, replicaIndex, picks)
      .map(([one, replica, some]) =>
        command("claimDuringExpansion", { one, replica, some }, (model, system) =>
          claimDuring(model, system, one, async () => void (await expandNow(model, system, [replica], some))),
        ),
      ),
    fc
      .tuple(claiming, replicaIndex, picks)
      .map(([one, replica, some]) =>
        command("claimDuringReplay", { one, replica, some }, (model, system) =>
          claimDuring(model, system, one, () => replayNow(model, system, replica, some)),
        ),
      ),
    fc
      .tuple(claiming, replicaIndex, limits)
      .map(([one, replica, limit]) =>
        command("claimDuringReclaim", { one, replica, limit }, (model, system) =>
          claimDuring(model, system, one, () => reclaimNow(model, system, replica, limit)),
        ),
      ),
  ],
  { maxCommands: 40, size: "+1", ...(REPLAY_PATH === undefined ? {} : { replayPath: REPLAY_PATH }) },
);
