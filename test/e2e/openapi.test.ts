import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { beforeAll, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { type DescribedApi, describedApi } from "../support/describedApi.ts";
import { eventually } from "../support/eventually.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
const MAX_BODY_BYTES = 3000;
const BEARER = { authorization: "Bearer the-token" };
const auth = { type: "bearer", token: "the-token" };
const source = { idempotencyKeyPath: "$.id", topic: "orders.x" };
const CONFIG = ordersTo(
  { url: "http://127.0.0.1:9" },
  {
    inbox: { maxBodyBytes: MAX_BODY_BYTES, pull: { enabled: true, auth } },
    admin: { enabled: true, auth, maxPayloadBytes: 1000 },
    sources: {
      guarded: { ...source, path: "/guarded", auth },
      filtered: { ...source, path: "/filtered", filter: { exclude: [{ header: "X-Test", exists: true }] } },
      changed: {
        ...source,
        path: "/changed",
        transform: { expression: 'id = "bad" ? $error("never") : $', timeoutMs: 10_000 },
      },
      limited: { ...source, path: "/limited", rateLimit: { requestsPerMinute: 4 } },
      pulled: { ...source, path: "/pulled", consumption: "pull" },
    },
  },
);
const SOURCES = ["orders", "guarded", "filtered", "changed", "limited", "pulled"];

let database: TestDatabase;
let service: Service;
let api: DescribedApi;

beforeAll(async () => {
  database = await services.database();
  service = await services.start({ database, config: CONFIG });
  api = describedApi((await service.get("/openapi.json")).text);
});

interface Request {
  readonly body?: string | object;
  readonly headers?: Readonly<Record<string, string>>;
  /** What stands for `{name}` in the path. */
  readonly name?: string;
}

/** Makes a request, holds its answer against the document, and gives it. */
async function ask(operation: string, { body = "", headers = {}, name = "{name}" }: Request = {}) {
  const [method = "", path = ""] = operation.split(" ");
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const answer =
    method === "GET" && text === "" && Object.keys(headers).length === 0
      ? await service.get(path)
      : await exchange(service.port, method, path.replace(/\{\w+\}/, encodeURIComponent(name)), headers, text);
  api.check(method, path.split("?", 1)[0] ?? "", answer);
  return answer;
}

/** A request of any method with a body, on a connection of its own. */
function exchange(port: number, method: string, path: string, headers: object, body: string) {
  return new Promise<Awaited<ReturnType<Service["get"]>>>((resolve, reject) => {
    const length = { "content-length": String(Buffer.byteLength(body)) };
    const options = {
      host: "127.0.0.1",
      port,
      method,
      path,
      agent: false,
      headers: { ...length, ...headers },
    } as const;
    const request = httpRequest(options, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.once("end", () => {
        const { statusCode: status = 0, headers: received } = response;
        resolve({ status, headers: received, text, json: () => JSON.parse(text) as unknown });
      });
    });
    request.once("error", reject);
    request.end(body);
  });
}

/** The answer with events, up to the first one: it would not end. */
async function firstEvent() {
  const path = "/admin/events";
  const request = httpRequest({ host: "127.0.0.1", port: service.port, path, agent: false, headers: BEARER }).end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) {
    text += chunk as string;
    if (text.includes("event: ") && text.endsWith("\n\n")) break;
  }
  const answer = { status: response.statusCode ?? 0, headers: response.headers, text };
  api.check("GET", path, answer);
  return answer;
}

describe("every answer is as the OpenAPI document has it", () => {
  test("of each operation to a body above the cap", async () => {
    for (const operation of api.operations) {
      const answer = await ask(operation, { body: "x".repeat(MAX_BODY_BYTES + 1) });
      expect([operation, answer.status]).toEqual([operation, 413]);
    }
    // Between the two caps the admin routes answer in words of their own.
    for (const operation of api.operations.filter((each) => each.includes("/admin/"))) {
      expect((await ask(operation, { body: "x".repeat(1001) })).status).toBe(413);
    }
  });

  test("of each operation to an encoding that is not read, and to a body that is not what it says", async () => {
    const posts = api.operations.filter((operation) => operation.startsWith("POST "));
    for (const operation of posts) {
      for (const [encoding, status] of [
        ["zstd", 415],
        ["gzip", 400],
      ] as const) {
        const headers = { ...BEARER, "content-encoding": encoding };
        const answer = await ask(operation, { body: "not gzip", headers });
        expect([operation, answer.status]).toEqual([operation, status]);
      }
    }
  });

  test("of each operation to what it is for", async () => {
    const message = { id: "m-1", type: "created" };
    const statuses = {
      "GET /": 200,
      "GET /health": 200,
      "GET /health/live": 200,
      "GET /health/ready": 200,
      "GET /metrics": 200,
      "GET /openapi.json": 200,
    };
    for (const [operation, status] of Object.entries(statuses)) {
      expect([operation, (await ask(operation)).status]).toEqual([operation, status]);
    }
    for (const path of SOURCES) {
      const answer = await ask(`POST /inbox/${path}`, { body: message, headers: BEARER });
      expect([path, answer.status]).toEqual([path, 202]);
    }
    for (const path of SOURCES) {
      const answer = await ask(`POST /inbox/${path}`, { body: message, headers: BEARER });
      expect([path, answer.status]).toEqual([path, 200]);
    }
    const headers = { ...BEARER, "content-type": "application/x-ndjson" };
    for (const path of SOURCES) {
      const lines = '{"id":"m-1"}\n{"id":"m-9","type":"created"}\n';
      expect((await ask(`POST /inbox/${path}`, { body: `${lines}{`, headers })).status).toBe(207);
    }
    for (const [body, status] of [
      ['{"id":"m-1"}', 200],
      ['{"id":"m-10"}', 202],
      ["{", 400],
    ] as const) {
      expect((await ask("POST /inbox/orders", { body, headers })).status).toBe(status);
    }
    expect((await ask("POST /inbox/changed", { body: '{"id":"bad"}', headers })).status).toBe(422);
    const evaluated = await ask("POST /admin/transform/test", {
      body: { expression: "1", payload: 1 },
      headers: BEARER,
    });
    expect(evaluated.status).toBe(200);
    expect((await ask("POST /admin/replay", { body: { topic: "nobody" }, headers: BEARER })).status).toBe(200);
    const pause = { body: { reason: "they migrate" }, headers: BEARER };
    const [name = ""] = Object.keys(CONFIG.destinations as object);
    expect((await ask("POST /admin/destinations/{name}/pause", { ...pause, name })).status).toBe(200);
    expect((await ask("GET /admin/destinations", { headers: BEARER })).status).toBe(200);
    expect((await ask("POST /admin/destinations/{name}/resume", { headers: BEARER, name })).status).toBe(200);
    expect((await ask("POST /admin/destinations/{name}/pause", pause)).status).toBe(404);
    expect((await ask("POST /admin/destinations/{name}/resume", { headers: BEARER })).status).toBe(404);
    expect((await ask("GET /admin/destinations")).status).toBe(401);
    expect((await ask("GET /admin/parked", { headers: BEARER })).status).toBe(200);
    expect((await ask("GET /admin/config", { headers: BEARER })).status).toBe(200);
    for (const path of ["config", "events"]) expect((await ask(`GET /admin/${path}`)).status).toBe(401);
    expect((await firstEvent()).text).toContain("event: overview");
    const found = (await ask("GET /admin/messages", { headers: BEARER })).json() as { messages: { id: string }[] };
    const shown = { name: found.messages[0]?.id ?? "", headers: BEARER };
    expect((await ask("GET /admin/messages/{id}", shown)).status).toBe(200);
    expect((await ask("POST /admin/parked/retry", { body: { all: true }, headers: BEARER })).status).toBe(200);
    const discard = { topic: "no.**", reason: "nobody wants it" };
    expect((await ask("POST /admin/parked/discard", { body: discard, headers: BEARER })).status).toBe(200);
  });

  test("of the sources to what they turn away", async () => {
    for (const path of SOURCES) {
      const answer = await ask(`POST /inbox/${path}`, { body: "no json", headers: BEARER });
      expect([path, answer.status]).toEqual([path, 400]);
    }
    expect((await ask("POST /inbox/guarded", { body: {} })).status).toBe(401);
    expect((await ask("POST /inbox/filtered", { body: {}, headers: { "x-test": "1" } })).status).toBe(202);
    expect((await ask("POST /inbox/changed", { body: { id: "bad" } })).status).toBe(422);
    expect((await ask("POST /inbox/limited", { body: {} })).status).toBe(429);
  });

  test("of the pull and admin routes to what they refuse", async () => {
    const guarded = api.operations.filter((operation) => /^POST \/(pull|admin)\//.test(operation));
    expect(guarded).toHaveLength(14);
    for (const operation of guarded) {
      expect([operation, (await ask(operation, { body: {} })).status]).toEqual([operation, 401]);
      expect([operation, (await ask(operation, { body: "[]", headers: BEARER })).status]).toEqual([operation, 400]);
    }
    const transform = (expression: string) =>
      ask("POST /admin/transform/test", { body: { expression, payload: 1 }, headers: BEARER });
    expect((await transform("((")).status).toBe(400);
    expect((await transform("nowhere")).status).toBe(400);
    expect((await ask("POST /admin/replay", { body: {}, headers: BEARER })).status).toBe(400);
    expect((await ask("GET /admin/parked")).status).toBe(401);
    expect((await ask("GET /admin/parked?limit=0", { headers: BEARER })).status).toBe(400);
    expect((await ask("GET /admin/messages")).status).toBe(401);
    expect((await ask("GET /admin/messages?limit=0", { headers: BEARER })).status).toBe(400);
    expect((await ask("GET /admin/messages?cursor=x", { headers: BEARER })).status).toBe(404);
    const nobody = { name: "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f" };
    expect(
      (await ask("GET /admin/messages/{id}", { ...nobody, headers: { authorization: "Bearer wrong" } })).status,
    ).toBe(401);
    expect((await ask("GET /admin/messages/{id}", { ...nobody, headers: BEARER })).status).toBe(404);
  });

  test("of the routes that show the installation, and of replays and actions", async () => {
    const wrong = { headers: { authorization: "Bearer wrong" } };
    const nobody = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";
    for (const path of ["overview?minutes=0", "failures?limit=0", "blocked-keys?limit=0", "audit?cursor=x"]) {
      expect([path, (await ask(`GET /admin/${path}`, { headers: BEARER })).status]).toEqual([path, 400]);
      const [plain = ""] = path.split("?");
      expect([plain, (await ask(`GET /admin/${plain}`, { headers: BEARER })).status]).toEqual([plain, 200]);
      expect([plain, (await ask(`GET /admin/${plain}`, wrong)).status]).toEqual([plain, 401]);
    }
    const replay = (body: object) => ask("POST /admin/replays", { body, headers: BEARER });
    expect((await replay({ state: "dead", dryRun: true })).status).toBe(200);
    expect((await replay({ topic: "nobody", perSecond: 5 })).status).toBe(200);
    expect((await ask("POST /admin/replays", wrong)).status).toBe(401);
    const insert = async (state: string) => {
      const [row] = await database.query(
        `INSERT INTO outbox (topic, payload, state, attempt, scheduled_at) VALUES ('nowhere', '{}', $1, 1, now() + interval '1 hour') RETURNING id`,
        [state],
      );
      return String(row?.id);
    };
    for (const [action, from] of [
      ["retry", "pending"],
      ["discard", "pending"],
      ["replay", "dead"],
    ] as const) {
      const act = (name: string) =>
        ask(`POST /admin/messages/{id}/${action}`, { body: { reason: "no longer wanted" }, headers: BEARER, name });
      const row = await insert(from);
      expect([action, (await act(row)).status]).toEqual([action, 200]);
      const other = await insert(from === "dead" ? "pending" : "dead");
      expect([action, (await act(other)).status]).toEqual([action, 409]);
      expect([action, (await act(nobody)).status]).toEqual([action, 404]);
    }
  });

  test("of the pull routes to a client", async () => {
    const pull = (name: string, body: object) => ask(`POST /pull/pulled/${name}`, { body, headers: BEARER });
    await ask("POST /inbox/pulled", { body: { id: "p-1", note: 1.5 } });
    const claimed = await pull("claim", { max: 10, waitMs: 1000 });
    const { claimToken, messages } = claimed.json() as { claimToken: string; messages: readonly { id: string }[] };
    expect(messages.length).toBeGreaterThan(0);
    expect((await pull("extend", { claimToken })).status).toBe(200);
    expect((await pull("nack", { claimToken, ids: [messages[0]?.id], delayMs: 60_000, error: "later" })).status).toBe(
      200,
    );
    expect((await pull("ack", { claimToken, ids: messages.slice(1).map(({ id }) => id) })).status).toBe(200);
    for (const name of ["extend", "nack", "ack"]) expect((await pull(name, { claimToken })).status).toBe(409);
    expect((await pull("claim", {})).json()).toMatchObject({ claimToken: null, messages: [] });
  });

  test("when the tables are gone", async () => {
    const claimToken = "0d0b9a6e-54b5-4c27-9a3b-7d8f6f0f2b11";
    await database.query("ALTER TABLE inbox RENAME TO inbox_away; ALTER TABLE outbox RENAME TO outbox_away");
    for (const path of ["orders", "guarded", "filtered", "pulled"]) {
      const answer = await ask(`POST /inbox/${path}`, { body: { id: "m-3", type: "created" }, headers: BEARER });
      expect([path, answer.status]).toEqual([path, 500]);
      const lines = { ...BEARER, "content-type": "application/x-ndjson" };
      expect((await ask(`POST /inbox/${path}`, { body: '{"id":"m-3"}', headers: lines })).status).toBe(500);
    }
    for (const name of ["claim", "ack", "nack", "extend"]) {
      const answer = await ask(`POST /pull/pulled/${name}`, { body: { claimToken }, headers: BEARER });
      expect([name, answer.status]).toEqual([name, 500]);
    }
    expect((await ask("POST /admin/replay", { body: { topic: "x" }, headers: BEARER })).status).toBe(500);
    expect((await ask("GET /admin/parked", { headers: BEARER })).status).toBe(500);
    for (const change of ["retry", "discard"]) {
      const body = { all: true, reason: "x" };
      expect((await ask(`POST /admin/parked/${change}`, { body, headers: BEARER })).status).toBe(500);
    }
    for (const path of ["/health", "/health/ready"]) {
      await eventually(async () => expect((await ask(`GET ${path}`)).status).toBe(503));
    }
    await database.query("ALTER TABLE inbox_away RENAME TO inbox; ALTER TABLE outbox_away RENAME TO outbox");
  });

  test("while the service stops", async () => {
    // A request whose body does not come keeps the servers waiting.
    const headers = { "content-length": "5", expect: "100-continue" };
    const options = { host: "127.0.0.1", port: service.port, method: "POST", path: "/inbox/orders", headers };
    const unfinished = httpRequest(options).on("error", () => {});
    unfinished.flushHeaders();
    await once(unfinished, "continue");
    const ended = service.stop();
    await eventually(async () => expect((await ask("GET /")).status).toBe(503));
    for (const operation of api.operations) {
      expect([operation, (await ask(operation, { body: "{}", headers: BEARER })).status]).toEqual([operation, 503]);
    }
    unfinished.destroy();
    expect((await ended).code).toBe(0);
  });

  test("and no documented answer was left out but those to faults of the service", () => {
    const unseen = api.answers.filter((answer) => !api.seen.has(answer));
    expect(unseen.filter((answer) => !/ 50[01]$/.test(answer))).toEqual([]);
  });
});
