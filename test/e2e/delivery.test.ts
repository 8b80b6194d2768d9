import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { ordersTo, type Service, startOver, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

const PARTNER_KEY = "let-me-in-7788";
const STATIC_HEADERS = { "X-Static": "static", "X-Both": "destination" };
/** `outbox.maxAttempts` by default. */
const MAX_ATTEMPTS = 5;

let database: TestDatabase;
let receiver: Receiver;
/** Delivers to the receiver, with retries that come at once. */
let service: Service;

const client = { clientId: "relay", clientSecret: "client-secret-1", scope: "hooks" };
/** Destinations that ask for credentials: each gets what has its name for a topic, at a path of its name. */
const auths = (url: string) => ({
  basic: { username: "user", password: "pass-word-1" },
  header: { headerName: "X-Hook-Key", headerValue: "hook-key-1" },
  oauth2: { ...client, tokenUrl: `${url}/token`, extraParams: { audience: "tills" } },
});

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const entries = Object.entries(auths(receiver.url));
  const guarded = entries.map(([name, auth]) => [name, { baseUrl: receiver.url, path: `/${name}`, auth }]);
  const partner = { type: "api-key", key: PARTNER_KEY, headerName: "X-Partner-Key" };
  const config = ordersTo(receiver, {
    outbox: { retryBaseDelayMs: 20 },
    sources: { partner: { path: "/partner", idempotencyKeyPath: "$.id", topic: "orders.created", auth: partner } },
    destinations: {
      ...Object.fromEntries(guarded),
      labelled: { baseUrl: receiver.url, path: "/hook", headers: STATIC_HEADERS },
      // Retries until the receiver takes it, however slow the machine is.
      patient: { baseUrl: receiver.url, path: "/hook", maxAttempts: 1000 },
    },
    routes: [
      ...entries.map(([name]) => ({ topicPattern: name, destination: name })),
      { topicPattern: "orders.labelled", destination: "labelled" },
      { topicPattern: "orders.patient", destination: "patient" },
      { topicPattern: "orders.**", destination: "receiver" },
    ],
  });
  service = await services.start({ database, config });
});

beforeEach(() => startOver(database, receiver));

interface OutboxRow {
  readonly id: string;
  readonly state: string;
  readonly attempt: number;
  readonly last_error: string | null;
}

async function outboxRow(topic = "orders.created"): Promise<OutboxRow> {
  const rows = await database.query<OutboxRow & { topic: string }>("SELECT * FROM outbox WHERE topic = $1", [topic]);
  const [row] = rows;
  if (row === undefined || rows.length > 1) throw new Error(`${rows.length} outbox rows of topic ${topic}`);
  return row;
}

describe("a message that comes in over HTTP", () => {
  test("goes out byte for byte: number precision, key order, white space, escapes and emoji", async () => {
    const body =
      '{ "z": 12345678901234567890, "a":1.0,"id":"m-1",\t"type":"created", "nul": "\\u0000", "pair": "\\ud83d\\ude00", ' +
      '"lone": "\\ud800", "slash": "\\/", "emoji": "😀é", "twice": 1, "twice": 2, "exp": 1E400, "" : [ ] }\n';
    expect((await service.post(body)).status).toBe(202);
    const [request] = await receiver.received(1);
    expect(request?.method).toBe("POST");
    expect(request?.url).toBe("/hook");
    expect(request?.body.toString("utf8")).toBe(body);
    expect(request?.body.equals(Buffer.from(body))).toBe(true);
  });

  test("takes its headers along and tells who it is", async () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const answer = await service.post(
      { id: "m-1", key: "c-1", type: "created" },
      { headers: { traceparent, "X-Tenant": "blue", "X-Correlation-Id": "corr-7", "content-type": "text/plain" } },
    );
    expect(answer.headers["x-correlation-id"]).toBe("corr-7");
    const { messageId } = answer.json() as { messageId: string };
    const [request] = await receiver.received(1);
    expect(request?.headers).toMatchObject({
      traceparent,
      "x-tenant": "blue",
      "x-correlation-id": "corr-7",
      "x-source": "orders",
      "x-idempotency-key": "m-1",
      "x-inbox-id": messageId,
      "x-message-id": (await outboxRow()).id,
      "content-type": "application/json",
      host: `127.0.0.1:${receiver.port}`,
    });
  });

  test("arrives with an idempotency key of control characters, from which its receiver reads the key back", async () => {
    const keys = ["line\r\nx-injected: 1", "\u0001\t\u001f", "del\u007f", "é\n😀", " blank", "UTF-8''%41", "plain"];
    for (const id of keys) expect((await service.post({ id, key: "c-1", type: "created" })).status).toBe(202);
    // The same key is the same message.
    expect((await service.post({ id: keys[0], key: "c-1", type: "created" })).json()).toEqual({ status: "duplicate" });
    const requests = await receiver.received(keys.length);
    const decoded = requests.map(({ headers }) => decodedHeader(String(headers["x-idempotency-key"])));
    expect(decoded).toEqual(keys);
    for (const { headers } of requests) expect(headers).not.toHaveProperty("x-injected");
    const rows = () => database.query("SELECT state, attempt FROM outbox GROUP BY state, attempt");
    await eventually(async () => expect(await rows()).toEqual([{ state: "sent", attempt: 0 }]));
  });

  test("gets a correlation id when its sender gives none", async () => {
    const answer = await service.post({ id: "m-1", type: "created" });
    expect(answer.headers["x-correlation-id"]).toMatch(/^[0-9a-f-]{36}$/);
    const [request] = await receiver.received(1);
    expect(request?.headers["x-correlation-id"]).toBe(answer.headers["x-correlation-id"]);
  });

  test("leaves its sender's credentials behind: they are neither stored nor delivered", async () => {
    const credentials = {
      "X-Partner-Key": PARTNER_KEY,
      authorization: "Bearer of-the-sender-1",
      cookie: "session=of-the-sender-2",
      "proxy-authorization": "Basic of-the-sender-3",
      "x-api-key": "of-the-sender-4",
    };
    const headers = { ...credentials, "x-kept": "yes" };
    const answer = await service.post({ id: "m-1" }, { path: "/inbox/partner", headers });
    expect(answer.status).toBe(202);
    const [request] = await receiver.received(1);
    expect(request?.headers["x-kept"]).toBe("yes");
    const stored = await database.query("SELECT i.headers AS i, o.headers AS o FROM inbox i, outbox o");
    expect(stored).toHaveLength(1);
    expect(JSON.stringify([stored, request?.rawHeaders])).not.toMatch(/of-the-sender|let-me-in/);
  });
});

describe("a row that an application inserts with plain SQL", () => {
  test("is delivered with its own headers over the static ones of the destination", async () => {
    await database.query(
      `INSERT INTO outbox (topic, payload, headers) VALUES ('orders.labelled', '{"n": 1.50}', '{"x-both": "row"}')`,
    );
    const [request] = await receiver.received(1);
    expect(request?.body.toString()).toBe('{"n": 1.50}');
    expect(request?.headers).toMatchObject({ "x-static": "static", "x-both": "row" });
  });

  test("needs no more than a topic and a payload, and ends as sent", async () => {
    await database.query(`INSERT INTO outbox (topic, payload) VALUES ('orders.sql', '[]')`);
    await receiver.received(1);
    await eventually(async () => expect(await outboxRow("orders.sql")).toMatchObject({ state: "sent" }));
  });
});

describe("a delivery that cannot be", () => {
  test("is dead with the reason when no route matches its topic, and the next message goes through", async () => {
    await database.query(`INSERT INTO outbox (topic, payload) VALUES ('invoices.created', '{}')`);
    const row = await eventually(async () => {
      const found = await outboxRow("invoices.created");
      expect(found.state).toBe("dead");
      return found;
    });
    expect(row.last_error).toMatch(/no route matches the topic "invoices.created"/);
    await service.post({ id: "m-1", type: "created" });
    await receiver.received(1);
  });

  test("is tried again after a 500, with the attempts and the last error on the row meanwhile", async () => {
    let release = () => {};
    const after = new Promise<void>((resolve) => {
      release = resolve;
    });
    const refusal = { status: 500, body: "the till is closed" };
    receiver.answerNext(refusal, refusal, { status: 200, after });
    await service.post({ id: "m-1", type: "created" });
    const requests = await receiver.received(3);
    const waiting = await outboxRow();
    expect(waiting).toMatchObject({ state: "processing", attempt: 2 });
    expect(waiting.last_error).toMatch(/answered 500: the till is closed/);
    release();
    await eventually(async () => expect(await outboxRow()).toMatchObject({ state: "sent", attempt: 2 }));
    expect(new Set(requests.map(({ headers }) => headers["x-message-id"])).size).toBe(1);
  });

  test("is dead at the ceiling of its attempts", async () => {
    const dead = 'svc_outbox_messages_total{status="dead"}';
    const before = await service.metric(dead);
    receiver.answer = { status: 503, body: "not today" };
    await service.post({ id: "m-1", type: "created" });
    await eventually(async () => expect(await outboxRow()).toMatchObject({ state: "dead", attempt: MAX_ATTEMPTS }));
    expect((await outboxRow()).last_error).toMatch(/503.*not today/);
    expect(receiver.requests).toHaveLength(MAX_ATTEMPTS);
    expect(await service.metric(dead)).toBe(before + 1);
  });

  test("holds back its own key and nothing else", async () => {
    let broken = true;
    receiver.answer = ({ body }, response) => {
      const { id } = JSON.parse(body.toString()) as { id: string };
      response.writeHead(broken && id === "a-1" ? 500 : 200).end();
    };
    const ids = () => receiver.requests.map(({ body }) => (JSON.parse(body.toString()) as { id: string }).id);
    for (const id of ["a-1", "a-2", "b-1", "b-2", "c-1"]) await service.post({ id, key: id[0], type: "patient" });
    await eventually(() => {
      expect(ids().filter((id) => id === "a-1").length).toBeGreaterThan(1);
      expect(ids()).toEqual(expect.arrayContaining(["b-1", "b-2", "c-1"]));
    });
    expect(ids()).not.toContain("a-2");
    broken = false;
    await eventually(() => expect(ids()).toContain("a-2"));
    expect(ids().filter((id) => id === "b-1" || id === "b-2" || id === "c-1")).toHaveLength(3);
  });

  test("fails when the receiver answers with a redirect, which is never followed", async () => {
    receiver.answer = { status: 307, headers: { location: `${receiver.url}/elsewhere` } };
    await service.post({ id: "m-1", type: "created" });
    await eventually(async () => expect(await outboxRow()).toMatchObject({ state: "dead", attempt: MAX_ATTEMPTS }));
    expect((await outboxRow()).last_error).toMatch(
      /307, a redirect, which is not followed: set baseUrl to its Location/,
    );
    expect(new Set(receiver.requests.map(({ url }) => url))).toEqual(new Set(["/hook"]));
  });

  test("continues when the receiver comes back after it was gone", async () => {
    await receiver.close();
    await service.post({ id: "m-1", type: "patient" });
    await eventually(async () => expect((await outboxRow("orders.patient")).last_error).toMatch(/ECONNREFUSED/));
    await receiver.listen();
    await receiver.received(1);
  });
});

test("a destination gets the credentials it asks for: basic, a header, or a token that is fetched once", async () => {
  receiver.answer = ({ url }, response) => {
    const token = { access_token: "token-of-the-hour", token_type: "Bearer", expires_in: 3600 };
    response.writeHead(200, { "content-type": "application/json" }).end(url === "/token" ? JSON.stringify(token) : "");
  };
  await database.query(
    `INSERT INTO outbox (topic, payload) VALUES ('basic', '1'), ('header', '2'), ('oauth2', '3'), ('oauth2', '4')`,
  );
  await receiver.received(5);
  const to = (url: string) => receiver.requests.filter((request) => request.url === url);
  expect(to("/basic")[0]?.headers.authorization).toBe(`Basic ${Buffer.from("user:pass-word-1").toString("base64")}`);
  expect(to("/header")[0]?.headers["x-hook-key"]).toBe("hook-key-1");
  expect(to("/oauth2").map(({ headers }) => headers.authorization)).toEqual(
    Array.from({ length: 2 }, () => "Bearer token-of-the-hour"),
  );
  expect(to("/token")).toHaveLength(1);
  const form = new URLSearchParams(to("/token")[0]?.body.toString());
  expect(form.get("grant_type")).toBe("client_credentials");
  expect(form.get("scope")).toBe("hooks");
  expect(form.get("audience")).toBe("tills");
});

/** A header value as docs/outbox.md has a receiver read it. */
function decodedHeader(value: string): string {
  const encoded = /^UTF-8''(.*)$/s.exec(value)?.[1];
  return encoded === undefined ? value : decodeURIComponent(encoded);
}
