import { createHmac } from "node:crypto";
import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import { request as httpRequest, type IncomingMessage } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { beforeAll, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { describedApi } from "../support/describedApi.ts";
import { eventually } from "../support/eventually.ts";
import { type ConfigTree, ordersTo, type Service, useServices } from "../support/service.ts";

/** The credentials of the admin and pull routes: what a recorded request opens, and for how long an answer lasts. */

const services = useServices("block");
const SECRET = "the-secret";
const UUID = "00000000-0000-7000-8000-000000000001";
const TIMED = { timestampHeader: "X-Timestamp" };
const REQUEST = { ...TIMED, signaturePayloadFormat: "timestamp-dot-request" };
let database: TestDatabase;

/** Admin and pull routes with these credentials. */
const start = (auth: ConfigTree): Promise<Service> =>
  services.start({
    database,
    roles: ["ingest", "admin"],
    config: ordersTo(
      { url: "http://127.0.0.1:9" },
      {
        admin: { enabled: true, console: true, auth },
        inbox: { pull: { enabled: true, auth } },
        sources: {
          orders: { consumption: "pull" },
          others: { path: "/others", idempotencyKeyPath: "$.id", topic: "x", consumption: "pull" },
        },
      },
    ),
  });

beforeAll(async () => {
  database = await services.database();
});

interface Sent {
  readonly method: string;
  /** The request target that is sent. */
  readonly target: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Sends a request on a connection of its own, and waits for the headers of the answer. */
async function open(at: Service, { method, target, headers = {}, body = "" }: Sent): Promise<IncomingMessage> {
  const request = httpRequest({ host: "127.0.0.1", port: at.port, method, path: target, headers, agent: false });
  // A GET with a body needs its length.
  if (body !== "") request.setHeader("Content-Length", Buffer.byteLength(body));
  request.end(body);
  const [answer] = (await once(request, "response")) as [IncomingMessage];
  return answer;
}

async function ask(at: Service, sent: Sent) {
  const answer = await open(at, sent);
  return { status: answer.statusCode, headers: answer.headers, text: await text(answer) };
}

const hmac = (signedText: string): string => `sha256=${createHmac("sha256", SECRET).update(signedText).digest("hex")}`;

/** The headers of a request whose sender signs it whole. */
function signatureOf({ method, target, body = "" }: Sent, time = String(Date.now())) {
  return { "x-timestamp": time, "x-signature": hmac(`${time}.${method}.${target}.${body}`) };
}

/** Every operation of the service behind a path, with values in place of the parameters. */
async function operationsOf(at: Service, prefix: RegExp): Promise<readonly Sent[]> {
  const { operations } = describedApi((await at.get("/openapi.json")).text);
  return operations.flatMap((name) => {
    const [method = "", target = ""] = name.replace("{id}", UUID).replace("{name}", "receiver").split(" ");
    return prefix.test(target) ? [{ method, target }] : [];
  });
}

describe.each([
  ["body", {}],
  ["timestamp-dot-body", TIMED],
])("the format %s", (format, keys) => {
  test("opens the routes of the specification, by the body that it signs, and no others", async () => {
    const service = await start({ secret: SECRET, ...keys });
    const signature = (body: string) => {
      const time = String(Date.now());
      return { "x-timestamp": time, "x-signature": hmac(format === "body" ? body : `${time}.${body}`) };
    };
    // All that has no body has this signature.
    const headers = signature("");
    const operations = await operationsOf(service, /^\/(?:admin|pull)\//);
    expect(operations.length).toBeGreaterThan(25);
    const opened: string[] = [];
    for (const sent of operations) {
      const answer = await open(service, { ...sent, headers });
      if (answer.statusCode !== 401) opened.push(`${sent.method} ${sent.target} ${answer.statusCode}`);
      else expect(JSON.parse(await text(answer))).toEqual({ error: expect.stringContaining("timestamp-dot-request") });
    }
    expect(opened).toEqual(["POST /admin/transform/test 400", "POST /admin/replay 400"]);

    const trial = JSON.stringify({ expression: "id", payload: { id: 7 } });
    const target = "/admin/transform/test";
    const right = await ask(service, { method: "POST", target, headers: signature(trial), body: trial });
    expect([right.status, JSON.parse(right.text)]).toMatchObject([200, { success: true, result: 7 }]);
    const other = await ask(service, { method: "POST", target, headers: signature(trial), body: `${trial} ` });
    expect(other.status).toBe(401);

    for (const body of ["", '{"by":"mallory"}']) {
      const answer = await ask(service, {
        method: "POST",
        target: "/console/session",
        headers: signature(body),
        body,
      });
      expect([answer.status, answer.headers["set-cookie"], answer.text]).toEqual([
        401,
        undefined,
        expect.stringContaining("a signature opens no session"),
      ]);
    }
    const warnings = service.process.stdout.filter((line) => line.includes("configuration warning"));
    expect(warnings).toEqual([
      expect.stringMatching(/admin\.auth\.signaturePayloadFormat.*other than POST .*set it to sign/),
      expect.stringMatching(/inbox\.pull\.auth\.signaturePayloadFormat.*does not open the pull routes/),
    ]);
  });
});

describe("the format timestamp-dot-request", () => {
  let signed: Service;
  beforeAll(async () => {
    signed = await start({ secret: SECRET, ...REQUEST });
  });
  const signedAsk = (sent: Sent) => ask(signed, { ...sent, headers: signatureOf(sent) });
  const READ: Sent = { method: "GET", target: "/admin/messages?key=a.b&limit=1" };

  test("opens every admin and pull route, and no start warns", async () => {
    for (const sent of await operationsOf(signed, /^\/(?:admin|pull)\//)) {
      const { method, target, status } = {
        ...sent,
        status: (await open(signed, { ...sent, headers: signatureOf(sent) })).statusCode,
      };
      expect([method, target, status]).not.toEqual([method, target, 401]);
    }
    expect(signed.process.stdout.filter((line) => line.includes("configuration warning"))).toEqual([]);
  });

  test("takes a repetition while its time is within the tolerance", async () => {
    const headers = signatureOf(READ);
    for (let n = 0; n < 2; n++) expect((await ask(signed, { ...READ, headers })).status).toBe(200);
    const old = signatureOf(READ, String(Date.now() - 300_001));
    expect((await ask(signed, { ...READ, headers: old })).status).toBe(401);
    expect(
      (await ask(signed, { ...READ, headers: { ...headers, "x-timestamp": String(Date.now() - 9) } })).status,
    ).toBe(401);
  });

  test("signs the sent form of the request target: a recorded signature opens no other form of it", async () => {
    const host = `127.0.0.1:${signed.port}`;
    const forms: readonly (Sent & { readonly recorded: number; readonly own: number })[] = [
      { ...READ, recorded: 200, own: 200 },
      { ...READ, method: "HEAD", recorded: 401, own: 200 },
      { ...READ, method: "POST", recorded: 405, own: 405 },
      { method: "GET", target: "/admin/messages?limit=1&key=a.b", recorded: 401, own: 200 },
      { method: "GET", target: "/admin/messages?key=a%2Eb&limit=1", recorded: 401, own: 200 },
      { method: "GET", target: "/admin/messages?key=a.b&limit=1#x", recorded: 401, own: 400 },
      { method: "GET", target: "/admin/messages?key=a.b", recorded: 401, own: 200 },
      { method: "GET", target: "/admin/messages?key=a", body: "b&limit=1", recorded: 401, own: 401 },
      { method: "GET", target: `http://${host}${READ.target}`, recorded: 401, own: 200 },
      { method: "GET", target: `HTTP://other.example${READ.target}`, recorded: 401, own: 200 },
      { method: "GET", target: `/${READ.target}`, recorded: 404, own: 404 },
      { method: "GET", target: "/admin//messages?key=a.b&limit=1", recorded: 404, own: 404 },
      { method: "GET", target: "/admin/./messages?key=a.b&limit=1", recorded: 404, own: 404 },
      { method: "GET", target: "/admin/messages/?key=a.b&limit=1", recorded: 404, own: 404 },
      { method: "GET", target: "/admin/%6dessages?key=a.b&limit=1", recorded: 404, own: 404 },
      { method: "GET", target: "/Admin/messages?key=a.b&limit=1", recorded: 404, own: 404 },
      { method: "GET", target: `/prefix${READ.target}`, recorded: 404, own: 404 },
      { method: "GET", target: "/admin/overview", recorded: 401, own: 200 },
    ];
    const recorded = signatureOf(READ);
    const seen: unknown[] = [];
    for (const { method, target, body, ...expected } of forms) {
      const sent = { method, target, ...(body === undefined ? {} : { body }) };
      const answers = [await ask(signed, { ...sent, headers: recorded }), await signedAsk(sent)];
      seen.push({ ...sent, recorded: answers[0]?.status, own: answers[1]?.status, expected });
    }
    expect(seen).toEqual(
      forms.map(({ recorded, own, ...sent }) => ({ ...sent, recorded, own, expected: { recorded, own } })),
    );
  });

  test("signs the claim of one source: no other operation, source or body has its signature", async () => {
    const claim: Sent = { method: "POST", target: "/pull/orders/claim", body: '{"max":1}' };
    const headers = signatureOf(claim);
    expect((await ask(signed, { ...claim, headers })).status).toBe(200);
    const forms: readonly (readonly [Partial<Sent>, number])[] = [
      [{ target: "/pull/orders/ack" }, 401],
      [{ target: "/pull/orders/claim?" }, 401],
      [{ target: `http://127.0.0.1:${signed.port}/pull/orders/claim` }, 401],
      [{ body: '{"max":2}' }, 401],
      [{ body: "" }, 401],
      [{ target: '/pull/orders/claim.{"max":1}', body: "" }, 404],
      [{ target: "/pull/others/claim" }, 401],
      [{ target: "//pull/orders/claim" }, 404],
      [{ target: "/pull/orders/claim/" }, 404],
      [{ target: "/pull/%6frders/claim" }, 404],
      [{ method: "GET" }, 405],
      [{ method: "HEAD" }, 405],
    ];
    for (const [form, status] of forms)
      expect([form, (await ask(signed, { ...claim, ...form, headers })).status]).toEqual([form, status]);
  });

  test("does not sign in", async () => {
    const sent = { method: "POST", target: "/console/session", body: '{"by":"alice"}' };
    const answer = await signedAsk(sent);
    expect([answer.status, answer.headers["set-cookie"]]).toEqual([401, undefined]);
  });

  test("keeps the events open while its time is within the tolerance", async () => {
    const short = await start({ secret: SECRET, ...REQUEST, timestampTolerance: 2000 });
    const sent = { method: "GET", target: "/admin/events" };
    const events = await open(short, { ...sent, headers: signatureOf(sent) });
    expect(events.statusCode).toBe(200);
    expect(await text(events)).toContain("event: overview");
  });
});

describe("with a bearer token in a file", () => {
  const token = { old: "first-admin-token", new: "second-admin-token" };
  const bearer = (text: string) => ({ authorization: `Bearer ${text}` });
  let file: string;
  let service: Service;
  beforeAll(async () => {
    file = path.join(services.folder(), "token");
    writeFileSync(file, token.old);
    service = await start({ token: `file:${file}` });
  });

  test("no answer is stored by a cache, or taken for a page", async () => {
    const operations = await operationsOf(service, /^\/(?:admin|pull|console)\b/);
    const reads = ["/admin/messages", "/admin/config", "/admin/overview", "/admin/events"];
    const admitted: readonly Sent[] = [
      ...reads.map((target) => ({ method: "GET", target })),
      { method: "POST", target: "/pull/orders/claim" },
      { method: "POST", target: "/admin/replay", body: "x".repeat(70_000) },
    ].map((sent) => ({ ...sent, headers: bearer(token.old) }));
    const others: readonly Sent[] = [
      { method: "GET", target: "/admin/nothing" },
      { method: "DELETE", target: "/admin/messages" },
      { method: "OPTIONS", target: "/admin/messages" },
      { method: "GET", target: "/pull/orders/claim" },
      { method: "POST", target: "/admin/replay", body: "x".repeat(1_100_000) },
      { method: "POST", target: "/pull/orders/claim", body: "x".repeat(1_100_000) },
    ];
    for (const sent of [...operations, ...admitted, ...others]) {
      const { headers } = await open(service, sent);
      const found = [headers["cache-control"], headers["x-content-type-options"]];
      expect([sent.method, sent.target, ...found]).toEqual([sent.method, sent.target, "no-store", "nosniff"]);
    }
  });

  // The last one: the token is another then.
  test("an answer that lasts ends when the token is replaced", async () => {
    const events = await open(service, { method: "GET", target: "/admin/events", headers: bearer(token.old) });
    const claim = { method: "POST", target: "/pull/orders/claim", body: '{"waitMs":60000}' };
    const poll = ask(service, { ...claim, headers: bearer(token.old) });
    let received = "";
    events.setEncoding("utf8").on("data", (chunk) => (received += chunk));
    const ended = once(events, "close");
    await eventually(() => expect(received).toContain("event: overview"));
    writeFileSync(`${file}.tmp`, token.new);
    renameSync(`${file}.tmp`, file);
    const list = { method: "GET", target: "/admin/destinations", headers: bearer(token.new) };
    await eventually(async () => expect((await ask(service, list)).status).toBe(200));

    await ended;
    expect((await service.post({ id: "o-1", type: "created" })).status).toBe(202);
    const polled = await poll;
    expect([polled.status, JSON.parse(polled.text)]).toMatchObject([200, { claimToken: null, messages: [] }]);
    const next = await ask(service, { ...claim, headers: bearer(token.new) });
    expect(JSON.parse(next.text)).toMatchObject({ messages: [{ idempotencyKey: "o-1" }] });
  });
});
