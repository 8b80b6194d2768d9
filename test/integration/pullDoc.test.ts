import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { ClaimToken } from "../../src/model/rows.ts";
import { pullRequest, receive } from "../conformance/store/pullSupport.ts";
import { createDatabase, TEST_APPLICATION_NAME } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { blocksOf } from "../support/markdown.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { seeded } from "../support/random.ts";
import { read } from "../support/repository.ts";
import { DATABASE, load } from "../unit/config/support.ts";

/** docs/pull.md: its configuration, and the statements in docs/examples/pull that it links to, run unchanged. */

const PAGE = read("docs/pull.md");
const blocks = (language: string): readonly string[] => blocksOf(PAGE, language);
const LINKED = [...PAGE.matchAll(/\]\((examples\/pull\/[^)]+)\)/g)].map(([, file = ""]) => read(`docs/${file}`));
const STATEMENTS = new Map(LINKED.map((text) => [/^-- (\w+):/.exec(text)?.[1] ?? "unnamed", text]));

failOnLeaks();

type Query = (text: string, values: readonly unknown[]) => Promise<Record<string, unknown>[]>;

/** Runs a statement of the page on an inbox of the test's own. */
async function open() {
  const database = await createDatabase();
  const store = postgresStore(database);
  await store.schema.migrate();
  const run = async (name: string, values: readonly unknown[], query: Query = database.query) => {
    const text = STATEMENTS.get(name);
    if (text === undefined) throw new Error(`docs/pull.md links to no statement "${name}"`);
    return await query(text, values);
  };
  return {
    database,
    store,
    run,
    /** Gives what came, by its payload. */
    claim: async (token: string, { max = 10, leaseMs = 60_000, attempts = 5 } = {}, query: Query = database.query) =>
      (await run("claim", ["orders", max, token, leaseMs, attempts], query)).map((row) => row.payload),
    put: (...rows: readonly (readonly [payload: string, aggregateId: string | null])[]) =>
      receive(
        { store },
        rows.map(([payload, aggregateId]) => ({ payload, aggregateId })),
      ),
    idOf: async (payload: string) =>
      (await database.query("SELECT id FROM inbox WHERE payload = $1", [payload]))[0]?.id,
    stateOf: async (payload: string) =>
      (
        await database.query(
          "SELECT state, attempt, claim_token, last_error, processed_at IS NOT NULL AS processed FROM inbox WHERE payload = $1",
          [payload],
        )
      )[0],
    expireLeases: () => database.query("UPDATE inbox SET lease_expires_at = now() - interval '1 second'"),
    makeDue: () => database.query("UPDATE inbox SET scheduled_at = now()"),
    async [Symbol.asyncDispose]() {
      await store.close();
      await database.drop();
    },
  };
}
type Inbox = Awaited<ReturnType<typeof open>>;

const FREE = { claim_token: null, processed: false, state: "pending" };

test("the page links to the six statements, and its configuration is without a fault", () => {
  expect([...STATEMENTS.keys()]).toEqual(["claim", "renew", "complete", "retry", "dead", "release"]);
  const { config, warnings } = load(`${DATABASE}${blocks("yaml").join("")}`, { env: { PULL_TOKEN: "t0ken" } });

  expect(warnings).toEqual([]);
  expect(config.inbox.pull.enabled).toBe(true);
  expect(config.sources.orders?.consumption).toBe("pull");
});

describe("claim", () => {
  test("gives available pull messages of the source in order, with a lease, and counts the attempt", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", null], ["3", "a"]);
    await receive(inbox, [{ source: "payments" }, { consumption: "push" }, { state: "dead", lastError: "x" }]);
    const token = randomUUID();

    expect(await inbox.claim(token)).toEqual(["1", "2", "3"]);

    expect(await inbox.stateOf("3")).toMatchObject({ state: "pending", attempt: 1, claim_token: token });
    expect(await inbox.claim(randomUUID())).toEqual([]);
    await inbox.expireLeases();
    expect(await inbox.claim(randomUUID(), { max: 2 })).toEqual(["1", "2"]);
    expect((await inbox.stateOf("1"))?.attempt).toBe(2);
  });

  test("by two clients at the same moment shares nothing and keeps the order", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", "a"], ["3", "b"]);
    const other = new pg.Client({ connectionString: inbox.database.url, application_name: TEST_APPLICATION_NAME });
    await other.connect();
    try {
      await other.query("BEGIN");
      const query: Query = async (text, values) => (await other.query(text, [...values])).rows;
      expect(await inbox.claim(randomUUID(), { max: 1 }, query)).toEqual(["1"]);

      expect(await inbox.claim(randomUUID())).toEqual(["3"]);

      await other.query("ROLLBACK");
    } finally {
      await other.end();
    }
    expect(await inbox.claim(randomUUID())).toEqual(["1", "2"]);
  });

  test("holds a message back while an earlier one of its aggregate is claimed or waits, but not behind one scheduled ahead", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", "a"], ["3", "b"], ["4", "b"]);
    await inbox.database.query("UPDATE inbox SET scheduled_at = now() + interval '1 hour' WHERE payload = '3'");
    const token = randomUUID();
    expect(await inbox.claim(token, { max: 1 })).toEqual(["1"]);

    expect(await inbox.claim(randomUUID())).toEqual(["4"]);
    await inbox.run("retry", ["orders", token, await inbox.idOf("1"), 60_000, "no stock", 5]);
    expect(await inbox.claim(randomUUID())).toEqual([]);

    await inbox.makeDue();
    expect(await inbox.claim(randomUUID())).toEqual(["1", "2"]);
  });

  test("lets a message die that was claimed too often, and frees its aggregate", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", "a"]);
    await inbox.claim(randomUUID(), { max: 1 });
    await inbox.expireLeases();

    expect(await inbox.claim(randomUUID(), { attempts: 1 })).toEqual(["2"]);

    expect(await inbox.stateOf("1")).toEqual({
      state: "dead",
      attempt: 1,
      claim_token: null,
      last_error: "claimed 1 times without being acknowledged",
      processed: true,
    });
  });
});

describe("the fence", () => {
  test("lets only the holder of the claim token close a message", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", "a"]);
    const late = randomUUID();
    await inbox.claim(late);
    await inbox.expireLeases();
    const token = randomUUID();
    expect(await inbox.claim(token)).toEqual(["1", "2"]);
    const [first, second] = [await inbox.idOf("1"), await inbox.idOf("2")];

    expect(await inbox.run("complete", ["orders", late, [first, second]])).toEqual([]);
    expect(await inbox.run("retry", ["orders", late, first, 0, "late", 5])).toEqual([]);
    expect(await inbox.run("dead", ["orders", late, first, "late"])).toEqual([]);
    expect(await inbox.run("renew", ["orders", late, 1000])).toEqual([]);
    expect(await inbox.run("release", ["orders", late])).toEqual([]);
    expect(await inbox.run("complete", ["payments", token, [first]])).toEqual([]);

    expect(await inbox.run("complete", ["orders", token, [first, second]])).toEqual(
      expect.arrayContaining([{ id: first }, { id: second }]),
    );
    expect(await inbox.stateOf("1")).toMatchObject({
      state: "processed",
      processed: true,
      claim_token: null,
      last_error: null,
    });
    expect(await inbox.run("complete", ["orders", token, [first]])).toEqual([]);
  });

  test("renews a lease that runs, and none that has run out", async () => {
    await using inbox = await open();
    await inbox.put(["1", null]);
    const token = randomUUID();
    await inbox.claim(token, { leaseMs: 10_000 });

    expect(await inbox.run("renew", ["orders", token, 3_600_000])).toEqual([{ id: await inbox.idOf("1") }]);

    const [left] = await inbox.database.query(
      "SELECT extract(epoch FROM lease_expires_at - now())::int AS seconds FROM inbox",
    );
    expect(left?.seconds).toBeGreaterThan(3000);
    await inbox.expireLeases();
    expect(await inbox.run("renew", ["orders", token, 1000])).toEqual([]);
  });
});

describe("a message that fails", () => {
  test("comes again after its delay, and gives back the later ones of its aggregate", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", "a"], ["3", "b"]);
    const token = randomUUID();
    await inbox.claim(token);

    const rows = await inbox.run("retry", ["orders", token, await inbox.idOf("1"), 60_000, "no stock", 5]);

    expect(rows).toHaveLength(2);
    expect(rows).toEqual(
      expect.arrayContaining([
        { id: await inbox.idOf("1"), state: "pending", released: false },
        { id: await inbox.idOf("2"), state: "pending", released: true },
      ]),
    );
    expect(await inbox.stateOf("1")).toEqual({ ...FREE, attempt: 1, last_error: "no stock" });
    expect(await inbox.stateOf("2")).toEqual({ ...FREE, attempt: 0, last_error: null });
    expect(await inbox.stateOf("3")).toMatchObject({ claim_token: token });
    await inbox.makeDue();
    expect(await inbox.claim(randomUUID())).toEqual(["1", "2"]);
  });

  test("is dead when its claims are used up", async () => {
    await using inbox = await open();
    await inbox.put(["1", null]);
    const token = randomUUID();
    await inbox.claim(token);

    expect(await inbox.run("retry", ["orders", token, await inbox.idOf("1"), 0, "no stock", 1])).toEqual([
      { id: await inbox.idOf("1"), state: "dead", released: false },
    ]);
    expect(await inbox.stateOf("1")).toMatchObject({ state: "dead", processed: true, last_error: "no stock" });
  });

  test("is dead at once when its client says so, and is claimed again when an operator says so", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", "a"]);
    const token = randomUUID();
    await inbox.claim(token, { max: 1 });

    expect(await inbox.run("dead", ["orders", token, await inbox.idOf("1"), "no such customer"])).toEqual([
      { id: await inbox.idOf("1") },
    ]);

    expect(await inbox.stateOf("1")).toMatchObject({
      state: "dead",
      last_error: "no such customer",
      claim_token: null,
    });
    const again = /`(UPDATE inbox SET state = 'pending'[^`]+)`/.exec(PAGE)?.[1] ?? "";
    await inbox.database.query(again.replace("'...'", `'${await inbox.idOf("1")}'`));
    expect(await inbox.claim(randomUUID())).toEqual(["1", "2"]);
  });

  test("or that was not begun is given back uncounted", async () => {
    await using inbox = await open();
    await inbox.put(["1", "a"], ["2", "a"]);
    const token = randomUUID();
    await inbox.claim(token);

    expect(await inbox.run("release", ["orders", token])).toHaveLength(2);

    expect(await inbox.stateOf("1")).toEqual({ ...FREE, attempt: 0, last_error: null });
    expect(await inbox.claim(randomUUID())).toEqual(["1", "2"]);
  });
});

test.each([[3], [40]])(
  "SQL clients and clients of the service on %i aggregates process every message, each aggregate in order",
  async (aggregates) => {
    const total = 200;
    await using inbox = await open();
    await inbox.put(...Array.from({ length: total }, (_, n) => [String(n), `a-${n % aggregates}`] as const));
    const processed: number[] = [];
    const random = seeded(aggregates);
    const clients = [sqlClient, sqlClient, serviceClient, serviceClient];

    await Promise.all(clients.map((client) => client(inbox, processed, total, random)));

    expect(processed.toSorted((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, n) => n));
    for (let aggregate = 0; aggregate < aggregates; aggregate += 1) {
      const own = processed.filter((n) => n % aggregates === aggregate);
      expect(own).toEqual(own.toSorted((a, b) => a - b));
    }
  },
  60_000,
);

interface Claimed {
  readonly id: unknown;
  readonly payload: string;
  readonly aggregate: unknown;
}

/** Processes in order with one failure in ten, until everything is done. */
async function consume(
  processed: number[],
  total: number,
  random: () => number,
  client: {
    readonly claim: (max: number) => Promise<readonly Claimed[]>;
    readonly complete: (id: unknown) => Promise<readonly unknown[]>;
    readonly retry: (id: unknown) => Promise<unknown>;
  },
): Promise<void> {
  while (processed.length < total) {
    const failed = new Set<unknown>();
    for (const { id, payload, aggregate } of await client.claim(1 + Math.floor(random() * 10))) {
      if (failed.has(aggregate)) continue;
      if (random() < 0.1) {
        failed.add(aggregate);
        await client.retry(id);
      } else {
        processed.push(Number(payload));
        expect(await client.complete(id)).toHaveLength(1);
      }
    }
  }
}

async function sqlClient({ run }: Inbox, processed: number[], total: number, random: () => number): Promise<void> {
  let token = "";
  await consume(processed, total, random, {
    async claim(max) {
      token = randomUUID();
      const rows = await run("claim", ["orders", max, token, 60_000, 1_000_000]);
      return rows.map((row) => ({ id: row.id, payload: row.payload as string, aggregate: row.aggregate_id }));
    },
    complete: (id) => run("complete", ["orders", token, [id]]),
    retry: (id) => run("retry", ["orders", token, id, 1, "again", 1_000_000]),
  });
}

async function serviceClient(
  { store }: Inbox,
  processed: number[],
  total: number,
  random: () => number,
): Promise<void> {
  let token = "" as ClaimToken;
  const held = (id: unknown) => ({ source: "orders", token, ids: [id as never] });
  await consume(processed, total, random, {
    async claim(limit) {
      const request = pullRequest({ limit, maxAttempts: 1_000_000 });
      ({ token } = request);
      const { rows } = await store.pull.claim(request);
      return rows.map(({ id, payload, aggregateId }) => ({ id, payload, aggregate: aggregateId }));
    },
    complete: (id) => store.pull.acknowledge(held(id)),
    retry: (id) => store.pull.reject(held(id), { delayMs: 1, reason: "again", maxAttempts: 1_000_000 }),
  });
}
