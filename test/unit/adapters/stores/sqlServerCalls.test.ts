import { afterAll, beforeAll, describe, expect, jest, test } from "@jest/globals";
import { SqlServerPool } from "../../../../src/adapters/stores/sqlserver/pool.ts";
import type { ParameterType, Statement } from "../../../../src/adapters/stores/sqlserver/statement.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { ClaimToken, MessageId, NewInboxRow } from "../../../../src/model/rows.ts";
import type { Store } from "../../../../src/ports/store.ts";
import { unconnectedSqlServerStore } from "../../../support/unconnectedSqlServer.ts";

/** What the methods of the store give to their statements: the server refuses a value of the wrong type only when it is there. */

const ID = "01932c5e-8f3a-7c31-b0d5-1f6a3f6f8a11" as MessageId;
const TOKEN = "0b0f9b4e-2f5c-4f0e-9c55-6f0e6c6b9d0a" as ClaimToken;

interface Call {
  readonly statement: Statement;
  readonly values: Readonly<Record<string, unknown>>;
}

const calls: Call[] = [];

/** No row is found that it is about. */
const REFUSAL = new StoreError("refused", "no");
const blocked = (queue: string) => [{ queue, candidates: 9, held_back: 9, gap: 0 }];

/** Enough of an answer for a method to continue with its next statement, or why it fails. */
const ANSWERS: Readonly<Record<string, readonly Record<string, unknown>[][] | StoreError>> = {
  "messages.outbox row": [[{ id: ID, state: "sent", expanded_to: '["billing"]' }]],
  "operations.messages of dead deliveries": [[{ id: ID, expanded_to: '["billing"]' }]],
  "outbox.due": [[{ answer: 1 }]],
  "outbox.unlabelled rows": [[{ id: ID, sequence: "1", topic: "orders" }]],
  "outbox.claim": [blocked("billing"), [{ has_unlabelled: 1, lost: false }], []],
  "outbox.claim of all": [blocked(""), [{ has_unlabelled: 0, lost: false }], []],
  "outbox.claim past blocked keys": REFUSAL,
  "outbox.rows chosen by a claim past blocked keys": [[{ id: ID }]],
  "inbox.relay candidates": [[{ positions: 1 }], [{ id: ID, source: "orders", idempotency_key: "k", headers: "{}" }]],
  "inbox.relay": [[{ id: ID }]],
};

beforeAll(() => {
  const runAll = async (statement: Statement, values: Call["values"] = {}) => {
    calls.push({ statement, values });
    const answer = ANSWERS[statement.name] ?? [[], [], []];
    if (answer instanceof StoreError) throw answer;
    return answer;
  };
  const run = async (statement: Statement, values?: Call["values"]) => (await runAll(statement, values)).at(-1) ?? [];
  jest.spyOn(SqlServerPool.prototype, "runAll").mockImplementation(runAll);
  jest.spyOn(SqlServerPool.prototype, "transaction").mockImplementation((_, work) => work({ run, runAll }));
});

afterAll(() => {
  jest.restoreAllMocks();
});

/** Every method, with values that differ from one `variant` to the other. */
async function useEverything(
  { inbox, outbox, history, messages, operations, parked, pull, replay, retention, destinations, schema }: Store,
  variant: number,
): Promise<void> {
  const text = `it's [${variant}] "${"x".repeat(variant)}"`;
  const row: NewInboxRow = {
    id: ID,
    source: text,
    idempotencyKey: text,
    aggregateId: variant === 1 ? null : text,
    eventType: variant === 1 ? null : text,
    payload: text,
    state: "pending",
    consumption: "push",
    correlationId: null,
    headers: { [text]: text },
    lastError: null,
  };
  await inbox.insert(Array.from({ length: variant }, (_, n) => ({ ...row, idempotencyKey: `${n}` })));
  const topics = { orders: [text] };
  const droppedHeaders = { names: [text], prefixes: [] };
  await inbox.relay({ limit: variant, topics, ownKeySources: [text], maxAttempts: variant, droppedHeaders });
  await inbox.oldestPendingAgeMs([text]);
  await inbox.unrelayed([text], variant);

  const lease = { leaseMs: 1000.5 * variant, claimTimeoutMs: 2000 * variant };
  const claims = { ...lease, limit: variant, maxBytes: 2 ** 33 * variant, token: TOKEN, heldTokens: [TOKEN] };
  const routing = { destinationOf: () => (variant === 1 ? undefined : text), listOf: () => undefined, hash: text };
  const queues = { room: new Map([["billing", 1]]), exceptIds: variant === 1 ? [] : [ID], routing };
  // The second claims are those past a blocked front; one fails.
  for (const which of [{}, {}]) await outbox.claim({ ...claims, ...which });
  for (const which of [{ queues }, { queues }]) {
    await expect(outbox.claim({ ...claims, ...which })).rejects.toBe(REFUSAL);
  }
  const delivery = { destination: text, isDead: variant === 1, reason: variant === 1 ? null : text };
  for (const skipped of [[], [{ destination: text, reason: text }]]) {
    await outbox.expand([{ id: ID, deliveries: [delivery], skipped }]);
  }
  await outbox.messagesToExpand([ID]);
  await outbox.renew([TOKEN], lease);
  const settled = { id: ID, claimToken: TOKEN };
  await outbox.settle([
    { ...settled, kind: "sent" },
    { ...settled, kind: "retry", delayMs: 1.5 * variant, reason: text },
    { ...settled, kind: "park", reason: text },
    { ...settled, kind: "dead", attempted: true, reason: text },
  ]);
  const record = { attempt: variant, destination: text, replica: text, code: text, status: null, durationMs: 1.5 };
  await outbox.settle([{ ...settled, kind: "park", reason: text, record }]);
  await outbox.reclaim(variant, lease.claimTimeoutMs);
  await outbox.backlog();
  await outbox.backlog({ totalsOnly: true });
  await outbox.relabel([text], null, variant);
  await outbox.relabel([text], JSON.stringify([text, String(variant)]), variant);
  await outbox.destinationsWaiting();

  const request = {
    source: text,
    token: TOKEN,
    limit: variant,
    maxBytes: 2 ** 33,
    leaseMs: 1000,
    maxAttempts: variant,
  };
  await pull.claim(request);
  const claim = { source: text, token: TOKEN, ids: variant === 1 ? null : [ID] };
  await pull.acknowledge(claim);
  await pull.reject(claim, { delayMs: 1.5 * variant, reason: variant === 1 ? null : text, maxAttempts: variant });
  await pull.extend(claim, 1000 * variant);

  const scope = { finishedUntil: "2026-01-05T09:30:00.1234567Z", lastSequence: String(variant) };
  const filter = variant === 1 ? {} : { state: "dead" as const, topics: [text], createdAfter: "2026-01-05T09:30:00Z" };
  await replay.begin();
  await replay.page(scope, filter, variant === 1 ? null : "7", variant);
  await replay.find(scope, filter, [ID]);
  await replay.move(scope, [ID], "alice");
  await replay.untried([ID]);

  await parked.list(variant === 1 ? {} : { ids: [ID], key: text }, variant === 1 ? null : "7", variant);
  await parked.retry([ID], "alice");
  await parked.discard([ID], "alice", text);

  await history.of(ID, variant);
  await history.since(null, variant);
  await history.since("7", variant);

  await operations.partlyDead(variant);
  await messages.get(ID, variant === 1);
  await messages.byIdempotencyKey([text], text);
  await messages.rowBefore(ID, variant === 1 ? null : text);
  const search = variant === 1 ? {} : { key: text, topic: text, destination: text, correlationId: text };
  await messages.outboxPage(search, variant === 1 ? null : "7", variant);
  const received = { ...search, source: text, isUnrelayed: variant === 1, pullSources: [text] };
  await messages.inboxPage(received, variant === 1 ? null : `2026-01-05T09:30:00.1234567Z ${ID}`, variant);

  await retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 86_400_000 * variant });
  await retention.plan({ table: "outbox", kind: "COUNT", maxCount: variant });
  await retention.plan({ table: "inbox", kind: "AGE", maxAgeMs: 86_400_000 * variant });
  const until = ["2026-01-05T09:30:00.1234567Z", String(variant)];
  await retention.deleteBatch({ table: "outbox", state: "sent", from: null, until }, variant);
  await retention.deleteBatch({ table: "outbox", state: "dead", from: until, until }, variant);
  await retention.deleteBatch({ table: "inbox", state: null, from: null, until: [until[0] as string, ID] }, variant);

  await destinations.states();
  await destinations.pause(text, { by: text, reason: text, forMs: variant === 1 ? undefined : 0.5 * variant });
  await destinations.resume(text);
  await destinations.takeFromRate(text, { tokens: variant, perSecond: 0.1 * variant, capacity: 1.5 * variant });
  await destinations.open(text, {
    probe: variant === 1 ? null : TOKEN,
    openMs: 1000 * variant,
    maxOpenMs: Number.MAX_VALUE,
    factor: 1.1,
    atLeastMs: 0,
    stableAfterMs: 1000.5 * variant,
    reason: text,
  });
  await destinations.takeProbe(text, TOKEN, 1000.5 * variant);
  await destinations.renewProbe(text, TOKEN, 1000.5 * variant);
  await destinations.close(text, TOKEN);
  await destinations.returnProbe(text, TOKEN, 1000.5 * variant);
  const failure = variant === 1 ? undefined : { agoMs: 1.5, reason: text };
  await schema.cell({ position: variant, name: text, cells: variant });
  await schema.hasUnfinished();
  await destinations.report([{ name: text, succeededAgoMs: 1.5, failure, isSlow: true }]);
}

const FITS: Readonly<Record<ParameterType, (value: unknown) => boolean>> = {
  int: (value) => Number.isInteger(value) && Math.abs(value as number) < 2 ** 31,
  bigint: (value) => Number.isSafeInteger(value) || (typeof value === "string" && /^-?\d+$/.test(value)),
  bit: (value) => typeof value === "boolean",
  uuid: (value) => value === ID || value === TOKEN,
  text: (value) => typeof value === "string" && value.length <= 4000,
  longText: (value) => typeof value === "string",
  list: Array.isArray,
  ms: (value) => Number.isFinite(value),
  bytes: Buffer.isBuffer,
};

describe("the methods of the store", () => {
  const textsOf = (variant: number): Promise<readonly string[]> =>
    useEverything(unconnectedSqlServerStore(), variant).then(() =>
      calls.splice(0).map(({ statement }) => statement.text),
    );

  test("give every parameter a value of its type", async () => {
    calls.length = 0;
    await useEverything(unconnectedSqlServerStore(), 1);
    await useEverything(unconnectedSqlServerStore(), 3);
    expect(calls.length).toBeGreaterThan(40);
    const wrong = calls.flatMap(({ statement: { name, parameters }, values }) => {
      const unfit = Object.entries(parameters).filter(
        ([parameter, type]) => values[parameter] !== null && !FITS[type](values[parameter]),
      );
      return unfit.map(([parameter]) => `${name} @${parameter}`);
    });
    expect(wrong).toEqual([]);
  });

  test("run the same texts whatever the values are", async () => {
    calls.length = 0;
    expect(await textsOf(3)).toEqual(await textsOf(1));
  });
});
