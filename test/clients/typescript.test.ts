import { readdirSync } from "node:fs";
import { beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import {
  createOutbox,
  DeadMessage,
  forget,
  fromPg,
  httpSource,
  type Message,
  once,
  onceTable,
  type PullSource,
  type SqlClient,
  sqlSource,
  type Worker,
  worker,
} from "../../clients/typescript/src/index.ts";
import * as pullStatements from "../../clients/typescript/src/pullStatements.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { pathOf, read } from "../support/repository.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";
import { CASES, type EnqueueCase, type OnceCase, shown, written } from "./contract.ts";

/** The client for TypeScript passes clients/contract/cases.json. */

const services = useServices("block");
failOnLeaks("block");
const TOKEN = "pull-sesame-1";
const API = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");

let database: TestDatabase;
let service: Service;
let pool: pg.Pool;

beforeAll(async () => {
  database = await services.database();
  const config = ordersTo(
    { url: "http://127.0.0.1:9" },
    {
      sources: { pulled: { path: "/pulled", idempotencyKeyPath: "$.id", consumption: "pull" } },
      inbox: { pull: { enabled: true, maxAttempts: 3, auth: { token: TOKEN } } },
    },
  );
  service = await services.start({ database, config, roles: ["ingest"] });
  pool = new pg.Pool({ connectionString: database.url, application_name: TEST_APPLICATION_NAME, max: 12 });
  services.defer(() => pool.end());
  await database.query("CREATE TABLE written (id text)");
  await database.query(onceTable);
});

test("the statements of all clients are those of docs/examples/pull, byte for byte", () => {
  const own = { ...pullStatements } as Readonly<Record<string, string>>;
  const java = "clients/java/src/main/resources/io/github/svcrelay/client/sql";
  for (const folder of ["clients/go/sql", "clients/python/src/svc_client/sql", java]) {
    const files = readdirSync(pathOf(folder));
    // The client for Go ends a message by its last attempt.
    expect(files).toEqual(
      expect.arrayContaining(["claim.sql", "complete.sql", "release.sql", "renew.sql", "retry.sql"]),
    );
    for (const file of files)
      expect([folder, read(`${folder}/${file}`)]).toEqual([folder, read(`docs/examples/pull/${file}`)]);
  }
  for (const file of readdirSync(pathOf("docs/examples/pull"))) {
    expect(own[file.replace(".sql", "").toUpperCase()]).toBe(read(`docs/examples/pull/${file}`));
  }
});

const ofKind = <K extends (typeof CASES)[number]["kind"]>(kind: K) =>
  CASES.filter((each): each is Extract<(typeof CASES)[number], { kind: K }> => each.kind === kind);

describe("enqueue", () => {
  test.each(ofKind("enqueue").map((each) => [each.about, each] as const))("%s", async (_, each) => {
    await database.query("TRUNCATE outbox");
    for (const statement of each.setup ?? []) await database.query(statement);
    await run(each);
    if (each.rows !== undefined) {
      const rows = await shown(database, each);
      expect(rows).toHaveLength(each.rows.length);
      each.rows.forEach((row, n) => void expect(rows[n]).toEqual(expect.objectContaining(row)));
    }
    for (const [cell, keys] of Object.entries(each.rowsByCell ?? {})) {
      const rows = await database.query(`SELECT key FROM ${cell}.outbox ORDER BY sequence`);
      expect([cell, rows.map(({ key }) => key)]).toEqual([cell, keys]);
    }
  });

  async function run({ steps, options }: EnqueueCase): Promise<void> {
    const outbox = createOutbox(options);
    const client = await pool.connect();
    const tx = fromPg(client);
    try {
      for (const step of steps) {
        if (step.begin) await client.query("BEGIN");
        else if (step.commit) await client.query("COMMIT");
        else if (step.rollback) await client.query("ROLLBACK");
        else if (step.savepoint) await client.query(`SAVEPOINT ${step.savepoint}`);
        else if (step.rollbackTo) await client.query(`ROLLBACK TO ${step.rollbackTo}`);
        else {
          const messages = (step.enqueueMany ?? [step.enqueue ?? {}]).map(
            (each) => written(each) as unknown as Message,
          );
          const [first] = messages;
          const ids = withSpan(step.span, async () =>
            step.enqueueMany === undefined && first !== undefined
              ? [await outbox.enqueue(tx, first)]
              : await outbox.enqueueMany(tx, messages),
          );
          if (step.error === undefined) expectIds(await ids, step.returns);
          else await expect(ids).rejects.toMatchObject({ name: "EnqueueError", code: step.error });
        }
      }
    } finally {
      client.release();
    }
  }

  function expectIds(ids: readonly string[], returns: string | undefined): void {
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    if (returns === "increasing-v7") {
      expect(ids).toEqual(ids.toSorted());
      expect(new Set(ids).size).toBe(ids.length);
      for (const id of ids) expect(id).toMatch(/^.{14}7.{4}[89ab]/);
    } else if (returns !== undefined) expect(ids).toEqual([returns]);
  }

  /** As the API of OpenTelemetry registers itself. */
  async function withSpan<T>(traceparent: string | undefined, work: () => Promise<T>): Promise<T> {
    if (traceparent === undefined) return await work();
    const [, traceId, spanId, flags = "00"] = traceparent.split("-");
    const spanContext = () => ({ traceId, spanId, traceFlags: Number.parseInt(flags, 16) });
    const active = () => ({ getValue: (key: symbol) => (key === SPAN ? { spanContext } : undefined) });
    const registry = globalThis as Record<symbol, unknown>;
    const before = registry[API];
    registry[API] = { context: { active } };
    try {
      return await work();
    } finally {
      registry[API] = before;
    }
  }
});

describe.each(["sql", "http"] as const)("worker over %s", (transport) => {
  const cases = ofKind("worker").filter(({ transports }) => transports?.includes(transport) ?? true);

  test.each(cases.map((each) => [each.about, each] as const))("%s", async (_, each) => {
    await database.query("TRUNCATE inbox, written");
    for (const { id, aggregate } of each.messages) {
      await database.query(
        "INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, consumption) VALUES ('pulled', $1, $2, $3, 'pull')",
        [id, aggregate, JSON.stringify({ id })],
      );
    }
    const calls: { readonly id: string; readonly aggregate: string | null }[] = [];
    const cancelled: string[] = [];
    const running = new Set<string>();
    const errors: unknown[] = [];
    const { workers = 1, worker: settings = {} } = each;
    const { retryDelayMs = 50, maxAttempts, ...others } = settings;
    const { now } = Date;
    if (each.clockOffsetMs !== undefined) Date.now = () => now() + (each.clockOffsetMs ?? 0);
    const stops: Promise<void>[] = [];
    const started: Worker[] = [];
    try {
      for (let n = 0; n < workers; n++)
        started.push(
          worker({
            ...others,
            source: sourceOver(transport, maxAttempts),
            handler,
            retryDelayMs: () => retryDelayMs,
            pollMs: 20,
            hooks: { failed: (error) => errors.push(error) },
          }),
        );
      await eventually(async () => {
        const rows = await database.query<{
          id: string;
          state: string;
          attempt: number;
          lastError: string | null;
          isClaimed: boolean;
        }>(
          `SELECT idempotency_key AS id, state, attempt, last_error AS "lastError", claim_token IS NOT NULL AS "isClaimed" FROM inbox`,
        );
        const states = Object.fromEntries(rows.map(({ id, ...row }) => [id, row]));
        for (const [id, { http, ...state }] of Object.entries(each.states)) {
          expect([id, states[id]]).toEqual([
            id,
            expect.objectContaining({ ...(transport === "http" ? (http ?? state) : state), isClaimed: false }),
          ]);
        }
        if (each.stopWhenStarted !== undefined) expect(stops).toHaveLength(1);
        await Promise.all(stops);
      });
    } finally {
      Date.now = now;
      await Promise.all(started.map((each) => each.stop()));
    }
    for (const [aggregate, ids] of Object.entries(each.order ?? {})) {
      expect(calls.filter((call) => call.aggregate === aggregate).map(({ id }) => id)).toEqual(ids);
    }
    expect(cancelled).toEqual(each.cancelled ?? []);
    if (each.written !== undefined) {
      expect((await database.query("SELECT id FROM written")).map(({ id }) => id)).toEqual(each.written);
    }

    async function handler(
      {
        idempotencyKey: id,
        aggregateId: aggregate,
        payload,
      }: { idempotencyKey: string; aggregateId: string | null; payload: unknown },
      { tx, signal }: { tx: SqlClient | undefined; signal: AbortSignal },
    ): Promise<void> {
      expect(payload).toEqual({ id });
      const script = each.handler[id] ?? each.handler["*"] ?? ["ok"];
      const call = calls.filter((other) => other.id === id).length;
      calls.push({ id, aggregate });
      // Never two of an aggregate at a time, in whichever worker.
      const chain = aggregate ?? id;
      expect(running.has(chain)).toBe(false);
      running.add(chain);
      try {
        for (const { whenStarted, sql } of call === 0 ? (each.events ?? []) : [])
          if (whenStarted === id) await database.query(sql);
        if (each.stopWhenStarted === id) stops.push((started[0] as Worker).stop());
        await act(script[Math.min(call, script.length - 1)] ?? "ok", id, tx, signal);
      } finally {
        running.delete(chain);
      }
    }

    async function act(what: string, id: string, tx: SqlClient | undefined, signal: AbortSignal): Promise<void> {
      const [action, ms] = what.split(":");
      if (action === "wait") await new Promise((resolve) => setTimeout(resolve, Number(ms)));
      if (action === "until-cancelled") {
        await new Promise<void>((resolve) => {
          signal.addEventListener("abort", () => resolve());
        });
        cancelled.push(id);
        signal.throwIfAborted();
      }
      if (action?.startsWith("write")) await tx?.query("INSERT INTO written VALUES ($1)", [id]);
      if (action === "fail" || action === "write-then-fail") throw new Error("handler said no");
      if (action === "dead") throw new DeadMessage("never again");
    }
  });
});

function sourceOver(transport: "sql" | "http", maxAttempts = 5): PullSource<SqlClient | undefined> {
  if (transport === "sql")
    return sqlSource({ pool, source: "pulled", maxAttempts }) as PullSource<SqlClient | undefined>;
  const headers = { authorization: `Bearer ${TOKEN}` };
  return httpSource({ url: `http://127.0.0.1:${service.port}/pull`, source: "pulled", headers, waitMs: 100 });
}

test.each(["sql", "http"] as const)("a failed last attempt is dead for the hooks, over %s", async (transport) => {
  await database.query("TRUNCATE inbox");
  await database.query(
    "INSERT INTO inbox (source, idempotency_key, payload, consumption) VALUES ('pulled', 'a', '{}', 'pull')",
  );
  const results: string[] = [];
  const startedAt: number[] = [];
  const retryDelayMs = 150;
  const running = worker({
    source: sourceOver(transport, 3),
    async handler() {
      startedAt.push(performance.now());
      // Over HTTP it is an attempt, with the usual delay.
      throw transport === "http" ? new DeadMessage("never") : new Error("no");
    },
    retryDelayMs: () => retryDelayMs,
    pollMs: 20,
    hooks: { ended: (_, result) => results.push(result) },
  });
  try {
    await eventually(() => expect(results).toEqual(["retry", "retry", "dead"]));
  } finally {
    await running.stop();
  }
  const waits = startedAt.slice(1).map((at, n) => at - (startedAt[n] ?? 0));
  expect(Math.min(...waits)).toBeGreaterThanOrEqual(retryDelayMs);
});

describe("over HTTP", () => {
  test("each payload has the received text, however deep, with all digits", async () => {
    await database.query("TRUNCATE inbox");
    const payloads = ["[".repeat(6000) + "]".repeat(6000), '{"n": 12345678901234567890, "payload": [",}"]}', "null"];
    for (const [n, payload] of payloads.entries()) {
      await database.query(
        "INSERT INTO inbox (source, idempotency_key, payload, consumption) VALUES ('pulled', $1, $2, 'pull')",
        [String(n), payload],
      );
    }
    const source = sourceOver("http", undefined);
    const claim = await source.claim(3, 30_000);
    expect(claim.messages.map(({ json }) => json)).toEqual(payloads);
    expect(claim.messages[1]?.payload).toMatchObject({ payload: [",}"] });
  });

  test("a delay is as long as the service takes", async () => {
    await database.query("TRUNCATE inbox");
    for (const id of ["a", "b"]) {
      await database.query(
        "INSERT INTO inbox (source, idempotency_key, payload, consumption) VALUES ('pulled', $1, '1', 'pull')",
        [id],
      );
    }
    const source = sourceOver("http", undefined);
    const claim = await source.claim(2, 30_000);
    const delays = [172_800_000, -1];
    const results = claim.messages.map(({ id }, n) => source.retry(claim, id, delays[n] ?? 0, "no"));
    expect(await Promise.all(results)).toEqual(["retry", "retry"]);
  });
});

test("a connection that breaks within a handler fails the attempt, and no more", async () => {
  await database.query("TRUNCATE inbox");
  await database.query(
    "INSERT INTO inbox (source, idempotency_key, payload, consumption) VALUES ('pulled', 'a', '{}', 'pull')",
  );
  const results: string[] = [];
  const listeners: number[] = [];
  const running = worker({
    source: sqlSource({ pool, source: "pulled" }),
    async handler({ attempt }, { tx }) {
      const client = tx as unknown as pg.PoolClient;
      listeners.push(client.listenerCount("error"));
      if (attempt > 1) return;
      const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
      const ended = new Promise<void>((resolve) => {
        client.once("end", resolve);
      });
      await database.query("SELECT pg_terminate_backend($1)", [rows[0].pid]);
      await ended;
    },
    retryDelayMs: () => 20,
    pollMs: 20,
    hooks: { ended: (_, result) => results.push(result) },
  });
  try {
    await eventually(() => expect(results).toEqual(["retry", "done"]));
  } finally {
    await running.stop();
  }
  expect(listeners).toEqual([1, 1]);
});

test.each(["+010000-01-01T00:00:00Z", "0000-12-31T23:59:59Z", "-000001-01-01T00:00:00Z", "no time"])(
  "the time %s is refused",
  async (deliverAt) => {
    const message = { topic: "t", payload: 1, deliverAt };
    await expect(createOutbox().enqueue(fromPg(pool), message)).rejects.toMatchObject({ code: "time" });
  },
);

test("onceTable is repeatable", async () => {
  await database.query(onceTable);
});

describe("once", () => {
  test.each(ofKind("once").map((each) => [each.about, each] as const))("%s", async (_, { calls }: OnceCase) => {
    await database.query("TRUNCATE handled_messages");
    const client = await pool.connect();
    const tx = fromPg(client);
    try {
      for (const call of calls) {
        if ("forgetOlderThanMs" in call) {
          await forget(tx, call.forgetOlderThanMs);
          continue;
        }
        let hasRun = false;
        await client.query("BEGIN");
        const isFirst = await once(tx, call.message, async () => {
          hasRun = true;
        });
        await client.query(call.end === "commit" ? "COMMIT" : "ROLLBACK");
        expect([hasRun, isFirst]).toEqual([call.runs, call.runs]);
      }
    } finally {
      client.release();
    }
  });
});
