import { describe, expect, test } from "@jest/globals";
import { type ListEntry, MessageExpansion } from "../../src/core/delivery/expansion.ts";
import { deliveryId } from "../../src/model/deliveries.ts";
import { PublishError, TransformError } from "../../src/model/errors.ts";
import { type ClaimedRow, type ClaimToken, CONDITION, type MessageId } from "../../src/model/rows.ts";
import { type ClaimRequest, NO_DESTINATION, type Store, type TopicRouting } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import {
  claimRequest,
  died,
  failed,
  inboxRow,
  parked,
  relayRequest,
  released,
  sent,
} from "../conformance/store/harness.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { refuse, skip } from "../support/looseTables.ts";
import { databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { recordingLog, recordingMetrics, silentLog, silentMetrics } from "../support/recorders.ts";
import { problemsOf, withStore } from "../support/schemaChecks.ts";

failOnLeaks();
const open = databaseCopies();

const DESTINATIONS = ["a", "b", "c"];
const LISTS: Readonly<Record<string, readonly string[]>> = { ab: ["a", "b"], abc: DESTINATIONS };
/** Topics are called as their destination, or as those of their list. */
const ROUTING: TopicRouting = {
  destinationOf: (topic) => DESTINATIONS.find((each) => each === topic),
  listOf: (topic) => LISTS[topic],
  hash: "hash",
};
/** No condition can be evaluated now. */
const BUSY = new PublishError("transform_unavailable", "no worker");

async function withTables(body: (store: Store, database: TestDatabase) => Promise<void>): Promise<void> {
  await using database = await open();
  await withStore(postgresStore(database), async (store) => {
    await store.schema.checkColumns();
    await body(store, database);
  });
}

/** Inserts rows as an application does, each given as its topic and key (`-` for none); payloads count from 1. */
async function insert(database: TestDatabase, ...rows: readonly string[]): Promise<readonly MessageId[]> {
  const ids: MessageId[] = [];
  for (const row of rows) {
    const [topic, key] = row.split(" ");
    const [inserted] = await database.query<{ id: MessageId }>(
      `INSERT INTO outbox (topic, key, payload)
       SELECT $1, nullif($2, '-'), (count(*) FILTER (WHERE message_sequence IS NULL) + 1)::text FROM outbox RETURNING id`,
      [topic, key],
    );
    if (inserted !== undefined) ids.push(inserted.id);
  }
  return ids;
}

interface Asked extends Partial<ClaimRequest> {
  /** The destinations with room; all by default. */
  readonly of?: readonly string[];
  readonly except?: readonly MessageId[];
}

const requestFor = ({ of = DESTINATIONS, except = [], ...more }: Asked): ClaimRequest =>
  claimRequest({
    queues: {
      room: new Map([...of, NO_DESTINATION].map((each) => [each, more.limit ?? 100])),
      exceptIds: except,
      routing: ROUTING,
    },
    ...more,
  });

const claim = async (store: Store, asked: Asked = {}) => await store.outbox.claim(requestFor(asked));

const expansionTo = (id: MessageId, destinations: readonly string[]) => ({
  id,
  deliveries: destinations.map((destination) => ({ destination, isDead: false, reason: null })),
  skipped: [],
});
const expand = async (store: Store, ids: readonly MessageId[], destinations = ["a", "b"]) =>
  await store.outbox.expand(ids.map((id) => expansionTo(id, destinations)));

/** Inserts, expands what has a list, and labels nothing. */
async function insertExpanded(store: Store, database: TestDatabase, ...rows: readonly string[]): Promise<void> {
  const ids = await insert(database, ...rows);
  for (const [n, id] of ids.entries()) {
    const list = LISTS[rows[n]?.split(" ")[0] ?? ""];
    if (list !== undefined) expect(await expand(store, [id], [...list])).toEqual({ expanded: 1, refused: [] });
  }
}

/** A claimed row by the number in its payload and its destination. */
const nameOf = ({ payload, destination }: ClaimedRow): string => `${payload} to ${destination}`;
const named = (rows: readonly ClaimedRow[], name: string): ClaimedRow => {
  const row = rows.find((each) => nameOf(each) === name);
  if (row === undefined) throw new Error(`${name} was not claimed, but ${rows.map(nameOf).join(", ")}`);
  return row;
};

/** Claims, under one token, until nothing more is found: a claim may only label rows, or pass others. */
async function claimAll(store: Store, asked: Asked = {}): Promise<readonly ClaimedRow[]> {
  const found: ClaimedRow[] = [];
  for (;;) {
    const request = requestFor(asked);
    const heldTokens = [...request.heldTokens, ...new Set(found.map(({ claimToken }) => claimToken))];
    const { rows, more } = await store.outbox.claim({ ...request, heldTokens });
    found.push(...rows);
    if (rows.length === 0 && !more) return found;
  }
}
const namesOfAll = async (store: Store, asked: Asked = {}) => (await claimAll(store, asked)).map(nameOf);

const statesOf = (database: TestDatabase, where = "true") =>
  database.query(
    `SELECT coalesce(destination, '-') AS destination, state, last_error AS reason FROM outbox WHERE ${where} ORDER BY coalesce(message_sequence, sequence), message_sequence NULLS FIRST, destination`,
  );

describe("a message of a list", () => {
  test("is found by a claim, and expanded once into a delivery of each destination with all that it has", async () => {
    await withTables(async (store, database) => {
      const [row] = await database.query<{ id: MessageId }>(
        `INSERT INTO outbox (topic, key, payload, headers, aggregate_type, max_attempts, expires_at)
         VALUES ('ab', 'k', '{"n": 1.0}', '{"h": "1"}', 'order', 7, now() + interval '1 hour') RETURNING id`,
      );
      const id = row?.id as MessageId;

      expect(await claim(store)).toMatchObject({ rows: [], lists: [{ id, topic: "ab" }] });
      expect(await expand(store, [id])).toEqual({ expanded: 1, refused: [] });
      expect(await expand(store, [id])).toEqual({ expanded: 0, refused: [] });

      const rows = await claimAll(store);
      const ofBoth = {
        ...{ messageId: id, hasOpenCondition: false, topic: "ab", key: "k", headers: { h: "1" } },
        ...{ aggregateType: "order", attempt: 0, maxAttempts: 7, isPinned: true, createdAt: expect.any(Date) },
      };
      expect(rows).toMatchObject(
        ["a", "b"].map((destination) => ({ ...ofBoth, destination, id: deliveryId(id, destination) })),
      );
      expect(rows.map(({ payload }) => JSON.parse(String(payload)))).toEqual([{ n: 1 }, { n: 1 }]);
      for (const { expiresInMs } of rows) expect(expiresInMs).toBeGreaterThan(3_500_000);
      expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(2);
      expect(await claim(store)).toMatchObject({ rows: [], more: false });
      const own = await database.query(
        "SELECT state, expanded_to, attempt, claimed_at, payload IS NULL AS is_narrow FROM outbox ORDER BY sequence",
      );
      const delivery = { state: "sent", expanded_to: null, attempt: 0, claimed_at: null, is_narrow: true };
      expect(own).toEqual([
        { state: "sent", expanded_to: '["a","b"]', attempt: 0, claimed_at: null, is_narrow: false },
        delivery,
        delivery,
      ]);
    });
  });

  test("is expanded by one of several replicas that try at the same moment", async () => {
    await withTables(async (store, database) => {
      await withStore(postgresStore(database), async (other) => {
        await other.schema.checkColumns();
        const ids = await insert(database, ...Array.from({ length: 20 }, () => "ab k"));
        const results = await Promise.all([expand(store, ids), expand(other, ids.toReversed()), expand(store, ids)]);
        // A replica that finds them locked leaves them.
        expect(results.reduce((sum, { expanded }) => sum + expanded, 0)).toBe(20);
        expect(results.flatMap(({ refused }) => refused)).toEqual([]);
        expect(await namesOfAll(store)).toHaveLength(40);
      });
    });
  });

  test("that goes nowhere is sent, with the reasons in its history, and holds nothing back", async () => {
    await withTables(async (store, database) => {
      const [id] = await insert(database, "ab k", "a k");
      const skipped = ["a", "b"].map((destination) => ({ destination, reason: "false" }));
      await store.outbox.expand([{ id: id as MessageId, deliveries: [], skipped }]);
      expect(await namesOfAll(store)).toEqual(["2 to a"]);
      const entries = await store.history.of(id as MessageId, 10);
      expect(entries).toMatchObject(
        ["a", "b"].map((destination) => ({ event: "skipped", destination, reason: "false", attempt: null })),
      );
      expect(await database.query("SELECT state, expanded_to FROM outbox WHERE topic = 'ab'")).toEqual([
        { state: "sent", expanded_to: "[]" },
      ]);
    });
  });

  test("that is scheduled ahead waits for its time, and holds nothing back", async () => {
    await withTables(async (store, database) => {
      const ids = await insert(database, "ab k", "a k");
      await database.query("UPDATE outbox SET scheduled_at = now() + interval '1 hour' WHERE topic = 'ab'");
      expect((await claim(store)).lists ?? []).toEqual([]);
      await database.query("UPDATE outbox SET scheduled_at = now() WHERE topic = 'ab'");
      await eventually(async () => expect((await claim(store)).lists).toMatchObject([{ id: ids[0] }]));
    });
  });

  test("without a key has deliveries that wait for nothing", async () => {
    await withTables(async (store, database) => {
      await insertExpanded(store, database, "ab -", "ab -");
      const { rows } = await claim(store, { of: ["a"], limit: 1 });
      expect(rows.map(nameOf)).toEqual(["1 to a"]);
      await store.outbox.settle(rows.map(parked));
      expect(await namesOfAll(store)).toEqual(["1 to b", "2 to a", "2 to b"]);
    });
  });

  test("is expanded if one of its destinations has room", async () => {
    await withTables(async (store, database) => {
      const [id] = await insert(database, "ab k");
      expect((await claim(store, { of: ["c"] })).lists ?? []).toEqual([]);
      expect((await claim(store, { of: ["b"] })).lists).toMatchObject([{ id }]);
      expect((await claim(store, { of: ["b"], except: [id as MessageId] })).lists ?? []).toEqual([]);
    });
  });

  test("is delivered with a dead delivery at its side, whose row says why", async () => {
    await withTables(async (store, database) => {
      const [id] = await insert(database, "ab k");
      const [dead, pending] = [
        { destination: "a", isDead: true, reason: "broken" },
        { destination: "b", isDead: false, reason: null },
      ];
      await store.outbox.expand([{ id: id as MessageId, deliveries: [dead, pending], skipped: [] }]);
      expect(await namesOfAll(store)).toEqual(["1 to b"]);
      expect(await statesOf(database)).toMatchObject([
        { destination: "-", state: "sent" },
        { destination: "a", state: "dead", reason: "broken" },
        { destination: "b", state: "processing" },
      ]);
    });
  });
});

describe("the order of a key", () => {
  /** Claims one row, which another process has from then on. */
  const elsewhere = async (store: Store, of: string, name: string): Promise<ClaimedRow> => {
    const rows: ClaimedRow[] = [];
    while (rows.length === 0) rows.push(...(await claim(store, { of: [of], limit: 1 })).rows);
    return named(rows, name);
  };

  test("holds for each destination of a list alone: behind a delivery in other hands", async () => {
    await withTables(async (store, database) => {
      await insertExpanded(store, database, "ab k", "ab k");
      const first = await elsewhere(store, "a", "1 to a");
      expect(await namesOfAll(store)).toEqual(["1 to b", "2 to b"]);
      await store.outbox.settle([sent(first)]);
      expect(await namesOfAll(store)).toEqual(["2 to a"]);
    });
  });

  test("and behind a delivery that failed, was released, is parked or was discarded", async () => {
    await withTables(async (store, database) => {
      await insertExpanded(store, database, "abc k", "abc k");
      const rows = await claimAll(store);
      const [a, b, c] = DESTINATIONS.map((each) => [named(rows, `1 to ${each}`), named(rows, `2 to ${each}`)]) as [
        [ClaimedRow, ClaimedRow],
        [ClaimedRow, ClaimedRow],
        [ClaimedRow, ClaimedRow],
      ];
      await store.outbox.settle([
        failed(a[0]),
        released(a[1]),
        parked(b[0]),
        released(b[1]),
        died(c[0]),
        released(c[1]),
      ]);
      expect(await namesOfAll(store)).toEqual(["2 to c"]);
      await store.parked.discard([b[0].id], "alice", "given up");
      expect(await namesOfAll(store)).toEqual(["2 to b"]);
      await database.query("UPDATE outbox SET scheduled_at = now() WHERE id = $1", [a[0].id]);
      expect(await namesOfAll(store)).toEqual(["1 to a", "2 to a"]);
    });
  });

  test("makes deliveries wait for an earlier row with one destination, if that is theirs, and for a claim of the same process", async () => {
    await withTables(async (store, database) => {
      const except = await insert(database, "a k");
      await insertExpanded(store, database, "abc k");
      // The first row has no destination yet.
      expect((await claim(store, { except })).rows).toEqual([]);
      const first = await elsewhere(store, "a", "1 to a");
      expect(await namesOfAll(store, { heldTokens: [first.claimToken] })).toEqual(["2 to b", "2 to c"]);
      await store.outbox.settle([failed(first, 0)]);
      expect(await namesOfAll(store)).toEqual(["1 to a"]);
      const [again] = await database.query<{ token: ClaimToken }>(
        "SELECT claim_token AS token FROM outbox WHERE topic = 'a'",
      );
      await store.outbox.settle([{ ...sent(first), claimToken: again?.token as ClaimToken }]);
      expect(await namesOfAll(store)).toEqual(["2 to a"]);
    });
  });

  test("makes a row with one destination wait for the earlier deliveries there alone", async () => {
    await withTables(async (store, database) => {
      await insertExpanded(store, database, "ab k", "a k", "c l", "ab l", "b l");
      const rows = await claimAll(store);
      expect(rows.map(nameOf)).toEqual(["1 to a", "1 to b", "3 to c", "4 to a", "4 to b"]);
      await store.outbox.settle([sent(named(rows, "1 to a")), sent(named(rows, "3 to c"))]);
      expect(await namesOfAll(store)).toEqual(["2 to a"]);
      await store.outbox.settle([sent(named(rows, "4 to b"))]);
      expect(await namesOfAll(store)).toEqual(["5 to b"]);
    });
  });

  test("makes all wait for a message that is not expanded, and lets later rows that go elsewhere pass its deliveries", async () => {
    await withTables(async (store, database) => {
      const ids = await insert(database, "ab k", "ab k", "c k");
      await expand(store, ids.slice(1, 2));
      expect(await namesOfAll(store)).toEqual([]);
      await expand(store, ids.slice(0, 1));
      expect(await namesOfAll(store)).toEqual(["1 to a", "1 to b", "2 to a", "2 to b", "3 to c"]);
    });
  });

  test("has the place of the message, not of the moment of its expansion", async () => {
    await withTables(async (store, database) => {
      const ids = await insert(database, "ab k", "ab k", "ab k");
      for (const n of [2, 0, 1]) await expand(store, [ids[n] as MessageId]);
      const { rows } = await claim(store);
      expect(rows.map(nameOf)).toEqual(["1 to a", "1 to b", "2 to a", "2 to b", "3 to a", "3 to b"]);
    });
  });

  test("of a delivery that an operator has moved is that of its new destination", async () => {
    await withTables(async (store, database) => {
      await insertExpanded(store, database, "ab k", "ab k");
      const rows = await claimAll(store);
      await store.outbox.settle(rows.map((row) => (nameOf(row) === "1 to a" ? died(row) : released(row))));
      const scope = await store.replay.begin();
      const { id } = named(rows, "1 to a");
      expect(await store.replay.move(scope, [id], "alice", "b")).toMatchObject({ changed: 1 });
      const b = await elsewhere(store, "b", "1 to b");
      expect(await namesOfAll(store)).toEqual(["2 to a"]);
      await store.outbox.settle([sent(b)]);
      expect(await namesOfAll(store)).toEqual(["1 to b", "2 to b"]);
    });
  });
});

describe("past a blocked front", () => {
  /** Another process has the first delivery of `front` to `a`; so many deliveries and other rows wait behind it that a claim finds no others. */
  async function withBlocked(body: (store: Store, database: TestDatabase) => Promise<void>): Promise<void> {
    await withTables(async (store, database) => {
      await insertExpanded(store, database, "ab front");
      await claimAll(store);
      await insertExpanded(store, database, ...Array.from({ length: 12 }, (_, n) => (n % 2 ? "a front" : "ab front")));
      await claimAll(store, { of: ["a"], limit: 6 });
      await body(store, database);
    });
  }
  const behindIt = (store: Store, asked: Asked = {}) => namesOfAll(store, { of: ["a"], limit: 6, ...asked });

  test("both lanes are claimed", async () => {
    await withBlocked(async (store, database) => {
      await insertExpanded(store, database, "ab k", "ab k", "a l", "a l");
      expect((await behindIt(store)).toSorted()).toEqual(["14 to a", "15 to a", "16 to a", "17 to a"]);
    });
  });

  test.each([
    ["under any claim", false, ["19 to a", "21 to a"]],
    ["but not for one of its lane in the same process", true, ["17 to a", "19 to a", "21 to a"]],
  ])("a row waits for an earlier one of its key that goes there, %s", async (_, namesHeld, expected) => {
    await withBlocked(async (store, database) => {
      await insertExpanded(store, database, "ab k", "a l", "c m");
      const rows = await claimAll(store, { of: ["a", "c"], limit: 6 });
      expect(rows.map(nameOf).toSorted()).toEqual(["14 to a", "15 to a", "16 to c"]);
      const heldTokens = namesHeld ? [...new Set(rows.map(({ claimToken }) => claimToken))] : [];
      await insertExpanded(store, database, "abc k", "abc l", "abc m", "a k", "a n");
      expect((await behindIt(store, { heldTokens })).toSorted()).toEqual(expected);
    });
  });
});

describe("conditions of a list", () => {
  /** Expands what claims find, with a condition for `b` that does this. */
  async function expandWith(
    store: Store,
    onError: "Fail" | "Skip" | "Dead",
    holds: () => Promise<boolean>,
  ): Promise<ReturnType<typeof recordingLog>["lines"]> {
    const { log, lines } = recordingLog();
    const list: readonly ListEntry[] = [
      { destination: "a", condition: null },
      { destination: "b", condition: { onError, holds } },
    ];
    const expansion = new MessageExpansion({
      ...{
        store: store.outbox,
        listOf: () => list,
        mayExpand: () => true,
        onEnd() {},
        wait: async () => {},
        clock: systemClock,
      },
      ...{ redact: (text) => text.replaceAll("secret", "***"), metrics: silentMetrics, log },
    });
    const { lists = [] } = await claim(store);
    expansion.begin(lists);
    // Claims do not find them again meanwhile.
    expect(expansion.running).toEqual(lists.map(({ id }) => id));
    expansion.begin(lists);
    await expansion.ended();
    expect(expansion.running).toEqual([]);
    return lines;
  }
  function fails(): Promise<boolean> {
    return Promise.reject(new TransformError("failed", "no secret"));
  }

  test.each([
    ["is true", "Fail", () => Promise.resolve(true), [{ destination: "b", state: "pending", reason: null }]],
    ["is false", "Fail", () => Promise.resolve(false), []],
    ["fails", "Fail", fails, [{ destination: "b", state: "pending", reason: `${CONDITION}failed: no ***` }]],
    ["fails and is skipped", "Skip", fails, [{ destination: "b", state: "pending", reason: null }]],
    ["fails for good", "Dead", fails, [{ destination: "b", state: "dead", reason: `${CONDITION}failed: no ***` }]],
  ] as const)("a condition that %s", async (_, onError, holds, ofB) => {
    await withTables(async (store, database) => {
      const [id] = await insert(database, "ab k");
      expect(await expandWith(store, onError, holds)).toEqual([]);
      expect(await statesOf(database, "destination = 'b'")).toEqual(ofB);
      const [message] = await database.query("SELECT expanded_to FROM outbox WHERE topic = 'ab' AND id = $1", [id]);
      expect(JSON.parse(String(message?.expanded_to))).toEqual(ofB.length === 0 ? ["a"] : ["a", "b"]);
      const skipped = ofB.length === 0 ? [{ event: "skipped", destination: "b", reason: expect.any(String) }] : [];
      expect(await store.history.of(id as MessageId, 10)).toMatchObject(skipped);
      const rows = await claimAll(store);
      expect(rows.map(({ hasOpenCondition }) => hasOpenCondition)).toEqual(
        ofB.some(({ state }) => state === "pending") ? [false, onError === "Fail" && holds === fails] : [false],
      );
    });
  });

  test("stays open while it was not true, also if the delivery is replayed", async () => {
    await withTables(async (store, database) => {
      const [id] = await insert(database, "ab k");
      const [failure, other] = [`${CONDITION}failed: no number`, "status 500"];
      const deliveries = [
        { destination: "a", isDead: true, reason: failure },
        { destination: "b", isDead: true, reason: other },
      ];
      await store.outbox.expand([{ id: id as MessageId, deliveries, skipped: [] }]);
      const scope = await store.replay.begin();
      await store.replay.move(
        scope,
        deliveries.map((each) => deliveryId(id as MessageId, each.destination)),
        "alice",
      );
      const rows = await claimAll(store);
      expect(rows.map((row) => [nameOf(row), row.hasOpenCondition])).toEqual([
        ["1 to a", true],
        ["1 to b", false],
      ]);
    });
  });

  test("sees the message, and leaves it while none can be evaluated", async () => {
    await withTables(async (store, database) => {
      const [id] = await insert(database, "ab k", "a k");
      const lines = await expandWith(store, "Dead", async () => {
        throw BUSY;
      });
      expect(lines).toMatchObject([{ level: "error", fields: { reason: expect.stringContaining("no worker") } }]);
      expect(await statesOf(database, "topic = 'ab'")).toEqual([{ destination: "-", state: "pending", reason: null }]);
      expect(await namesOfAll(store)).toEqual([]);

      const seen: unknown[] = [];
      const condition = {
        onError: "Fail",
        async holds(body: string, message: object) {
          seen.push([body, message]);
          return true;
        },
      } as const;
      const { metrics, calls } = recordingMetrics();
      const ends: number[] = [];
      const expansion = new MessageExpansion({
        ...{ store: store.outbox, listOf: () => [{ destination: "b", condition }], mayExpand: () => true },
        ...{
          redact: String,
          metrics,
          log: silentLog,
          onEnd: () => ends.push(1),
          wait: async () => {},
          clock: systemClock,
        },
      });
      expansion.begin([{ id: id as MessageId, topic: "ab" }]);
      await expansion.ended();
      const message = { id, topic: "ab", key: "k", headers: {}, attempt: 0, createdAt: expect.any(Date) };
      expect(seen).toEqual([["1", expect.objectContaining(message)]]);
      expect({ calls, ends }).toEqual({ calls: ["messagesExpanded(1)"], ends: [1] });
      expect(await namesOfAll(store)).toEqual(["1 to b", "2 to a"]);
    });
  });
});

describe("a receipt of messages of a list", () => {
  const RELAY = relayRequest({
    topics: { orders: ["", ""] },
    ...{ routing: ROUTING, mayExpand: () => true },
  });
  const rowOf = (topic: string, aggregateId: string | null, payload = "1") =>
    inboxRow({ eventType: topic, aggregateId, payload });
  const receive = async (
    store: Store,
    rows: readonly ReturnType<typeof rowOf>[],
    asked: Partial<ClaimRequest> = {},
    relay = RELAY,
  ) => {
    const received = await store.inbox.insertRelayed?.(rows, relay, claimRequest(asked));
    return {
      outcomes: received?.outcomes.map((each) => (each.kind === "stored" ? each.relayed : each.kind)),
      claimed: received?.claimed.map(nameOf),
      rows: received?.claimed ?? [],
    };
  };

  test("expands them, and claims their deliveries with all that they have", async () => {
    await withTables(async (store, database) => {
      const row = rowOf("ab", "k", '{"n":1}');
      const { rows, outcomes } = await receive(store, [row]);
      expect(outcomes).toEqual(["claimed"]);
      const shared = { messageId: row.id, topic: "ab", key: "k", attempt: 0, isPinned: true, hasOpenCondition: false };
      expect(rows).toMatchObject(
        ["a", "b"].map((destination) => ({ ...shared, destination, id: deliveryId(row.id, destination) })),
      );
      for (const { payload, headers } of rows) {
        expect(JSON.parse(String(payload))).toEqual({ n: 1 });
        expect(headers).toMatchObject({ "x-inbox-id": row.id });
      }
      expect(await database.query("SELECT expanded_to FROM outbox WHERE state = 'sent'")).toEqual([
        { expanded_to: '["a","b"]' },
      ]);
      expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(2);
    });
  });

  test("claims none of a key with rows of both lanes", async () => {
    await withTables(async (store) => {
      const { claimed, outcomes } = await receive(store, [
        rowOf("ab", "k", "1"),
        rowOf("a", "k", "2"),
        rowOf("ab", "l", "3"),
      ]);
      expect(claimed).toEqual(["3 to a", "3 to b"]);
      expect(outcomes).toEqual(["pending", "pending", "claimed"]);
      const first = await claimAll(store);
      expect(first.map(nameOf)).toEqual(["1 to a", "1 to b"]);
      await store.outbox.settle(first.map(sent));
      expect(await namesOfAll(store)).toEqual(["2 to a"]);
    });
  });

  test("claims all deliveries of a message or none, up to its limit", async () => {
    await withTables(async (store) => {
      const rows = [rowOf("ab", "k", "1"), rowOf("abc", "l", "2"), rowOf("a", "m", "3")];
      const { claimed, outcomes } = await receive(store, rows, { limit: 4 });
      expect(claimed).toEqual(["1 to a", "1 to b"]);
      expect(outcomes).toEqual(["claimed", "pending", "pending"]);
      expect(await namesOfAll(store)).toEqual(["2 to a", "2 to b", "2 to c", "3 to a"]);
    });
  });

  test("leaves deliveries that wait in their lane, and all behind another row of the key", async () => {
    await withTables(async (store, database) => {
      await insertExpanded(store, database, "ab k", "c m");
      const rows = await claimAll(store);
      await store.outbox.settle([failed(named(rows, "1 to a")), sent(named(rows, "1 to b"))]);
      const received = await receive(store, [
        rowOf("abc", "k", "3"),
        rowOf("abc", "m", "4"),
        rowOf("a", "k", "5"),
        rowOf("b", "n", "6"),
      ]);
      // The key `k` has rows of both lanes.
      expect(received.claimed).toEqual(["4 to a", "4 to b", "6 to b"]);
      expect(received.outcomes).toEqual(["pending", "pending", "pending", "claimed"]);
      expect(await namesOfAll(store)).toEqual(["3 to b", "3 to c"]);
      const alone = await receive(store, [rowOf("abc", "k", "7"), rowOf("a", "o", "8")]);
      // The fifth goes to `a` alone, but no claim has said so yet.
      expect(alone.claimed).toEqual(["8 to a"]);
      expect(alone.outcomes).toEqual(["pending", "claimed"]);
    });
  });

  test("leaves those to the poller that it may not expand, and the rows of their keys", async () => {
    await withTables(async (store) => {
      const relay = { ...RELAY, mayExpand: () => false };
      const rows = [rowOf("ab", "k", "1"), rowOf("a", "k", "2"), rowOf("a", "l", "3")];
      const { claimed, outcomes } = await receive(store, rows, {}, relay);
      expect(claimed).toEqual(["3 to a"]);
      expect(outcomes).toEqual(["pending", "pending", "claimed"]);
      expect((await claim(store)).lists).toMatchObject([{ id: rows[0]?.id, topic: "ab" }]);
    });
  });
});

describe("a table that refuses a delivery", () => {
  test.each([
    ["with an error", refuse, "not this one"],
    ["without one", skip, "a trigger on the table drops what is written to the row"],
  ])("keeps the message, which rests and blocks its key: %s", async (_, trigger, reason) => {
    await withTables(async (store, database) => {
      await trigger(database, "INSERT", "outbox", "NEW.destination = 'b' AND NEW.key = 'bad'");
      const [good, bad, other] = (await insert(database, "ab k", "ab bad", "ab l", "a bad")) as [
        MessageId,
        MessageId,
        MessageId,
        MessageId,
      ];
      expect((await claim(store)).lists?.map(({ id }) => id)).toEqual([good, bad, other]);
      const result = await expand(store, [good, bad, other]);
      expect(result).toEqual({
        expanded: 2,
        refused: [expect.objectContaining({ id: bad, reason: expect.stringContaining(reason) })],
      });
      expect(await namesOfAll(store)).toEqual(["1 to a", "1 to b", "3 to a", "3 to b"]);
      expect((await claim(store)).lists ?? []).toEqual([]);
      expect(await statesOf(database, "key = 'bad'")).toMatchObject([{ state: "pending" }, { state: "pending" }]);
    });
  });
});

describe("a table of an owner", () => {
  const checkFailure = async (store: Store, lists: boolean) =>
    await store.schema.checkColumns(["outbox"], { lists }).then(
      () => undefined,
      (error: unknown) => error,
    );

  test("without the columns of lists is refused if a route has one, with the statements that add them", async () => {
    await using database = await createDatabase();
    await withStore(postgresStore(database), async (store) => {
      await store.schema.migrate();
      await database.query(
        "ALTER TABLE outbox DROP COLUMN message_sequence CASCADE, DROP COLUMN expanded_to, DROP COLUMN destination, DROP COLUMN routes, ALTER COLUMN payload SET NOT NULL",
      );
      expect(await checkFailure(store, false)).toBeUndefined();
      const [id] = await insertNarrow(database);
      expect((await claim(store)).rows.map((row) => row.id)).toEqual([id]);
      expect(await expand(store, [id as MessageId])).toEqual({ expanded: 0, refused: [] });

      const problems = problemsOf(await checkFailure(store, true));
      expect(problems).toContain("database.columnMapping.outbox.messageSequence: the table");
      const statements = problems.match(/ALTER TABLE .*;/g) ?? [];
      expect(statements.join(" ").match(/"[a-z_]+" (bigint|text)|"payload" DROP NOT NULL/g)).toEqual([
        '"destination" text',
        '"routes" text',
        '"message_sequence" bigint',
        '"expanded_to" text',
        '"payload" DROP NOT NULL',
      ]);
      for (const statement of statements) await database.query(statement);
      expect(await checkFailure(store, true)).toBeUndefined();
    });
    await withStore(postgresStore(database), async (store) => {
      await store.schema.checkColumns(["outbox"], { lists: true });
      await database.query("DELETE FROM outbox");
      await insertExpanded(store, database, "ab k");
      expect(await namesOfAll(store)).toEqual(["1 to a", "1 to b"]);
    });
  });

  /** A row of a table that knows no deliveries. */
  const insertNarrow = async (database: TestDatabase) =>
    (await database.query<{ id: MessageId }>("INSERT INTO outbox (topic, payload) VALUES ('a', '1') RETURNING id")).map(
      ({ id }) => id,
    );
});
