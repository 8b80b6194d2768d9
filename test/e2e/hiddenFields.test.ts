import { randomUUID } from "node:crypto";
import { beforeAll, expect, test } from "@jest/globals";
import { addDestinationCommands } from "../../src/cli/destinations.ts";
import { addExplainCommand } from "../../src/cli/explain.ts";
import type { AddCommands } from "../../src/cli/io.ts";
import { addParkedCommands } from "../../src/cli/parked.ts";
import { addReplayCommand } from "../../src/cli/replay.ts";
import { addStatusCommands } from "../../src/cli/status.ts";
import { addTraceCommand } from "../../src/cli/trace.ts";
import { PARKED_UNTIL } from "../../src/model/rows.ts";
import { runCommand } from "../support/commands.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, type Service, useServices } from "../support/service.ts";

/** What operators see anywhere of a field that `admin.redactPayloadPaths` hides. */

const services = useServices("block");
failOnLeaks("block");

/** The value of the field; no id has its beginning. */
const CARD = 'qzx4111-"quoted"-é-1111';
const SEEN = /qzx/i;
const echoed = (card: string) => `POST http://127.0.0.1:9/hook was answered 400: {"refused":${JSON.stringify(card)}}`;
const ECHOED = echoed(CARD);
/** Cut within the value. */
const CUT = `POST http://127.0.0.1:9/hook was answered 400: {"refused":"qzx4111-\\"quo…`;
const RETRIED = "attempt = 1, scheduled_at = now() + interval '1 hour'";
const PARKED = `attempt = 5, scheduled_at = '${PARKED_UNTIL}'`;
const DEAD = "state = 'dead', attempt = 5";

const CONFIG = ordersTo(
  { url: "http://127.0.0.1:9" },
  {
    destinations: {
      receiver: { circuitBreaker: {} },
      batches: { baseUrl: "http://127.0.0.1:9", path: "/hook", batch: {} },
    },
    inbox: { pull: { enabled: true } },
    sources: { pulled: { path: "/pulled", idempotencyKeyPath: "$.id", consumption: "pull" } },
    routes: [
      { topicPattern: "batches.*", destination: "batches" },
      { topicPattern: "**", destination: "receiver" },
    ],
    admin: {
      enabled: true,
      console: true,
      showPayloads: true,
      insecure: true,
      redactPayloadPaths: ["$.card.number"],
    },
  },
);

let database: TestDatabase;
let service: Service;
let config: ConfigTree;
let ids: Readonly<
  Record<"received" | "pulled" | "dead" | "cut" | "raw" | "parked" | "retried" | "waiting" | "batched", string>
>;
beforeAll(async () => {
  database = await services.database();
  service = await services.start({ database, config: CONFIG, roles: ["admin"] });
  ids = {
    received: await received("orders", CARD, ECHOED),
    // Its client named the other messages of the claim.
    pulled: await received("pulled", `${CARD}-3`, ECHOED),
    dead: await row(DEAD, CARD, ECHOED),
    cut: await row(DEAD, "cut", CUT),
    raw: await row(`${DEAD}, payload = 'card=qzx4111'`, "raw", 'was answered 400: "card=qzx4111"'),
    parked: await row(PARKED, CARD, ECHOED),
    retried: await row(RETRIED, `${CARD}-2`, echoed(`${CARD}-2`), { card: { number: `${CARD}-2` } }),
    waiting: await row("state = 'pending'", null, null, {}),
    batched: await row(RETRIED, "batched", ECHOED, {}, "batches.first"),
  };
  await happened();
  config = merged(CONFIG, { database: databaseConfig(database) });
});

async function row(
  set: string,
  key: string | null,
  lastError: string | null,
  payload: object = { card: { number: CARD } },
  topic = "orders.created",
): Promise<string> {
  const id = randomUUID();
  await database.query(
    "INSERT INTO outbox (id, topic, key, payload, headers, last_error) VALUES ($1, $2, $3, $4, $5, $6)",
    [id, topic, key, JSON.stringify(payload), JSON.stringify({ "x-correlation-id": key ?? "none" }), lastError],
  );
  await database.query(`UPDATE outbox SET ${set} WHERE id = $1`, [id]);
  await database.query(
    "INSERT INTO outbox_history (outbox_id, at, event, attempt, destination, reason) VALUES ($1, now(), 'retry', 1, $2, $3)",
    [id, topic.startsWith("batches") ? "batches" : "receiver", lastError],
  );
  return id;
}

/** A message that died in the inbox. */
async function received(source: string, card: string, reason: string): Promise<string> {
  const id = randomUUID();
  await database.query(
    `INSERT INTO inbox (id, source, idempotency_key, aggregate_id, correlation_id, payload, state, last_error)
     VALUES ($1, $5, $2, $2, $2, $3, 'dead', $4)`,
    [id, card, JSON.stringify({ card: { number: card } }), reason, source],
  );
  return id;
}

/** What is not of one row. */
async function happened(): Promise<void> {
  await database.query(
    `INSERT INTO outbox_destination (name, breaker_state, openings, open_until, breaker_reason, last_failure_at, last_error)
     VALUES ('receiver', 'open', 1, now() + interval '1 hour', $1, now(), $1)`,
    [ECHOED],
  );
  await database.query(
    `INSERT INTO outbox_journal (at, source, outcome, idempotency_key, correlation_id, replica)
     VALUES (now(), 'orders', 'filtered', $1, 'c-1', 'r')`,
    [CARD],
  );
}

/** The first event of a stream, or the whole answer. */
async function ask(method: string, path: string, body?: object) {
  const leaving = new AbortController();
  const answer = await fetch(`http://127.0.0.1:${service.port}${path}`, {
    method,
    headers: { connection: "close", "content-type": "application/json" },
    signal: leaving.signal,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (answer.headers.get("content-type")?.startsWith("text/event-stream") !== true) {
    return { status: answer.status, text: await answer.text() };
  }
  let text = "";
  const decoder = new TextDecoder();
  for await (const part of answer.body ?? []) {
    text += decoder.decode(part as Uint8Array, { stream: true });
    if (text.includes("event: overview")) break;
  }
  leaving.abort();
  return { status: answer.status, text };
}

interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
}

/** Queries that find what is hidden, by operation. */
const QUERIES: Readonly<Record<string, readonly string[]>> = {
  admin_messages: ["", "?state=dead", "?correlationId=c-1", `?key=${encodeURIComponent(CARD)}`],
  admin_failures: ["", "?state=dead"],
};
/** Enough for every change; each takes what it knows. */
const BODY = { reason: "a test", by: "alice", state: "dead", payload: {}, expression: "$" };
const BODIES: Readonly<Record<string, readonly object[]>> = {
  admin_replays: [{ ...BODY, dryRun: true }, BODY],
  admin_parked_retry: [{ topic: "none" }, { all: true }],
  admin_parked_discard: [{ ...BODY, all: true }],
};

test("no answer of any operation has it", async () => {
  const { paths } = JSON.parse((await ask("GET", "/openapi.json")).text) as {
    paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  };
  const operations = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })),
  );
  const texts = new Map<string, string>();
  const statuses: Record<string, number[]> = {};
  const visit = async (method: string) => {
    for (const { path, operationId } of operations.filter((each) => each.method === method)) {
      const places = path.includes("{id}") ? Object.values(ids).map((id) => path.replace("{id}", id)) : [path];
      for (const place of places.map((each) => each.replace("{name}", "receiver"))) {
        const queries = method === "GET" ? (QUERIES[operationId] ?? [""]) : [""];
        const bodies = method === "GET" ? [undefined] : (BODIES[operationId] ?? [BODY]);
        for (const query of queries) {
          for (const body of bodies) {
            const { status, text } = await ask(method, `${place}${query}`, body);
            statuses[operationId] = [...(statuses[operationId] ?? []), status];
            texts.set(`${method} ${place}${query} ${JSON.stringify(body)}`, text);
            // As a client does that sees a list behind the change.
            expect([operationId, status < 500 || status === 501 || status === 503]).toEqual([operationId, true]);
          }
        }
      }
    }
  };
  await visit("GET");
  const reads = operations.filter(({ path, method }) => method === "GET" && path.startsWith("/admin"));
  expect(reads.flatMap(({ operationId }) => statuses[operationId] ?? []).filter((status) => status !== 200)).toEqual(
    [],
  );
  // What is there to see: rows, and that something was hidden.
  const all = [...texts.values()].join("\n");
  for (const id of Object.values(ids)) expect(all).toContain(id);
  const shown = JSON.parse(texts.get(`GET /admin/messages/${ids.dead} undefined`) ?? "");
  expect(shown).toMatchObject({
    key: "***",
    lastError: 'POST http://127.0.0.1:9/hook was answered 400: {"refused":"***"}',
    payload: '{"card":{"number":"***"}}',
  });
  expect(JSON.parse(texts.get(`GET /admin/messages/${ids.cut} undefined`) ?? "")).toMatchObject({
    key: "cut",
    lastError: 'POST http://127.0.0.1:9/hook was answered 400: {"refused":"…',
  });
  for (const id of [ids.raw, ids.pulled])
    expect(JSON.parse(texts.get(`GET /admin/messages/${id} undefined`) ?? "")).toMatchObject({ lastError: "***" });
  expect(JSON.parse(texts.get(`GET /admin/messages/${ids.waiting} undefined`) ?? "").waits[0]).toEqual({
    code: "breaker_open",
    text: expect.stringContaining("the circuit breaker of receiver is open (failures)"),
  });
  expect(JSON.parse(texts.get("GET /admin/parked undefined") ?? "").rows).toMatchObject([
    { id: ids.parked, key: "***", lastError: null },
  ]);

  await visit("POST");
  await visit("GET");
  expect(statuses).toMatchObject({ admin_replays: [200, 200], admin_parked_retry: [200, 200] });
  expect([...texts].filter(([, text]) => SEEN.test(text))).toEqual([]);
});

test("no command prints it, and svc tail neither", async () => {
  const file = services.configFile(config);
  await database.query(`UPDATE outbox SET ${PARKED} WHERE id = $1`, [ids.parked]);
  const run = async (add: AddCommands, ...args: readonly string[]) => {
    const { error, stdout, stderr } = await runCommand(add, [...args, "--config", file]);
    if (error !== undefined) throw error;
    return `${stdout}${stderr}`;
  };
  const printed = [
    await run(addParkedCommands, "parked", "list"),
    await run(addParkedCommands, "parked", "list", "--json"),
    await run(addReplayCommand, "replay", "--id", ids.dead, "--dry-run"),
    await run(addDestinationCommands, "destinations", "list"),
    await run(addDestinationCommands, "destinations", "list", "--json"),
    await run(addExplainCommand, "explain", "topic", "orders.created", "--state"),
    await run(addStatusCommands, "status"),
    await run(addStatusCommands, "status", "--json"),
    await run(addStatusCommands, "audit", "--json"),
    ...(await Promise.all(Object.values(ids).map((id) => run(addTraceCommand, "trace", id)))),
    await run(addTraceCommand, "trace", "c-1", "--json"),
  ];
  expect(printed.join("")).toContain(ids.parked);

  const tail = services.processes.svc(["tail", "-n", "50", "--json", "--config", file], { env: { LOG_LEVEL: "warn" } });
  // One of each row of the outbox.
  await eventually(() => expect(tail.stdout.length).toBeGreaterThanOrEqual(Object.values(ids).length - 2));
  tail.kill("SIGINT");
  await tail.exited;
  for (const text of [...printed, ...tail.stdout]) expect(text).not.toMatch(SEEN);
});
