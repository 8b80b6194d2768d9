import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { beforeAll, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../../support/databases.ts";
import { type DescribedApi, describedApi } from "../../support/describedApi.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, type Service, useServices } from "../../support/service.ts";

/** Sessions of the console, as HTTP clients see them. */

const services = useServices("block");

const TOKEN = "the-admin-token";
const DESTINATION = { url: "http://127.0.0.1:9" };
let database: TestDatabase;
let service: Service;
/** With other credentials, for HMAC. */
let signed: Service;
const HMAC = { type: "hmac", secret: "the-secret" };

const withAdmin = (admin: ConfigTree): ConfigTree =>
  ordersTo(DESTINATION, { admin: { enabled: true, console: true, ...admin } });

beforeAll(async () => {
  database = await services.database();
  const start = (auth: ConfigTree) => services.start({ database, roles: ["admin"], config: withAdmin({ auth }) });
  [service, signed] = await Promise.all([start({ type: "bearer", token: TOKEN }), start(HMAC)]);
});

interface Sent {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
}

const documents = new Map<Service, DescribedApi>();

async function documentOf(at: Service): Promise<DescribedApi> {
  const known = documents.get(at) ?? describedApi((await at.get("/openapi.json")).text);
  documents.set(at, known);
  return known;
}

/** Sends a request on a connection of its own, and waits for the headers of the answer. */
async function open(path: string, { method = "GET", headers = {}, body }: Sent, at: Service): Promise<IncomingMessage> {
  const request = httpRequest({ host: "127.0.0.1", port: at.port, path, method, headers, agent: false });
  request.end(body === undefined ? undefined : JSON.stringify(body));
  const [answer] = (await once(request, "response")) as [IncomingMessage];
  return answer;
}

/** {@link open} that waits for the whole answer; the answers of the console are held against the OpenAPI document. */
async function ask(path: string, sent: Sent = {}, at: Service = service) {
  const { method = "GET" } = sent;
  const answer = await open(path, sent, at);
  const content = await text(answer);
  if (/^\/console(?:\/s|\/?$)/.test(path)) {
    const document = await documentOf(at);
    document.check(method, path, { status: answer.statusCode ?? 0, headers: answer.headers, text: content });
  }
  const [cookie = ""] = answer.headers["set-cookie"] ?? [];
  return { status: answer.statusCode, headers: answer.headers, text: content, cookie };
}

const BEARER = { authorization: `Bearer ${TOKEN}` };
const cookieOf = (setCookie: string): string => setCookie.split(";", 1)[0] ?? "";

async function signIn(at: Service = service, headers: Readonly<Record<string, string>> = BEARER, body: object = {}) {
  const answer = await ask("/console/session", { method: "POST", headers, body }, at);
  expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
  const { csrfToken } = JSON.parse(answer.text) as { csrfToken: string };
  return { cookie: cookieOf(answer.cookie), csrfToken, setCookie: answer.cookie };
}

describe("a session", () => {
  test("comes from the admin credentials, as a cookie that scripts and other sites do not see", async () => {
    const { setCookie } = await signIn();
    expect(setCookie).toMatch(/^svc_console=[\w.-]+; Max-Age=1800; Path=\/; HttpOnly; SameSite=Strict$/);
    const behindProxy = await signIn(service, { ...BEARER, "x-forwarded-proto": "https" });
    expect(behindProxy.setCookie).toMatch(/; SameSite=Strict; Secure$/);
  });

  test("opens the admin routes", async () => {
    const { cookie } = await signIn();
    expect((await ask("/admin/destinations", { headers: { cookie } })).status).toBe(200);
    expect((await ask("/admin/destinations")).status).toBe(401);
    const shown = await ask("/console/session", { headers: { cookie } });
    expect(JSON.parse(shown.text)).toMatchObject({ isSignedIn: true, method: "bearer", by: null });
  });

  test("never makes up for wrong credentials", async () => {
    const { cookie } = await signIn();
    const headers = { cookie, authorization: "Bearer wrong" };
    expect((await ask("/admin/destinations", { headers })).status).toBe(401);
  });

  test("changes nothing without its CSRF token, or for another site", async () => {
    const { cookie, csrfToken } = await signIn();
    const other = await signIn();
    const pause = (headers: Readonly<Record<string, string>>) =>
      ask("/admin/destinations/receiver/pause", {
        method: "POST",
        headers: { cookie, ...headers },
        body: { reason: "x" },
      });
    expect((await pause({})).status).toBe(403);
    expect((await pause({ "x-csrf-token": other.csrfToken })).status).toBe(403);
    expect((await pause({ "x-csrf-token": csrfToken, origin: "https://evil.example" })).status).toBe(403);
    expect((await pause({ "x-csrf-token": csrfToken, "sec-fetch-site": "cross-site" })).status).toBe(403);
    expect((await pause({ "x-csrf-token": csrfToken, origin: `http://127.0.0.1:${service.port}` })).status).toBe(200);
    // Credentials of their own need no token.
    const resume = { method: "POST", headers: BEARER };
    expect((await ask("/admin/destinations/receiver/resume", resume)).status).toBe(200);
  });

  test("ends with the sign-out, also for who has kept the cookie", async () => {
    const { cookie, csrfToken } = await signIn();
    const out = { method: "POST", headers: { cookie } };
    expect((await ask("/console/sign-out", out)).status).toBe(403);
    const headers = { cookie, "x-csrf-token": csrfToken };
    const answer = await ask("/console/sign-out", { method: "POST", headers });
    expect([answer.status, answer.cookie]).toEqual([200, expect.stringContaining("svc_console=; Max-Age=0;")]);
    expect((await ask("/admin/destinations", { headers })).status).toBe(401);
  });

  test("holds the events open until the sign-out", async () => {
    const { cookie, csrfToken } = await signIn();
    const events = await open("/admin/events", { headers: { cookie } }, service);
    expect(events.statusCode).toBe(200);
    const headers = { cookie, "x-csrf-token": csrfToken };
    expect((await ask("/console/sign-out", { method: "POST", headers })).status).toBe(200);
    expect(await text(events)).toMatch(/^(?:: connected|event: overview)\n/);
  });

  test("reads nothing for another site", async () => {
    const { cookie } = await signIn();
    for (const sign of [{ "sec-fetch-site": "cross-site" }, { origin: "https://evil.example" }])
      expect((await ask("/admin/destinations", { headers: { cookie, ...sign } })).status).toBe(403);
  });

  test("is not what somebody else wrote or changed", async () => {
    const { cookie } = await signIn();
    const [sealed = "", signature = ""] = cookie.replace("svc_console=", "").split(".");
    const longer = JSON.parse(Buffer.from(sealed, "base64url").toString()) as Record<string, unknown>;
    const changed = Buffer.from(JSON.stringify({ ...longer, since: 9e15, seen: 9e15 })).toString("base64url");
    for (const forged of [`${changed}.${signature}`, `${sealed}.`, sealed, ".", "a.b", ""]) {
      const answer = await ask("/admin/destinations", { headers: { cookie: `svc_console=${forged}` } });
      expect([forged, answer.status]).toEqual([forged, 401]);
    }
    expect((await ask("/admin/destinations", { headers: { cookie: `a=b; ${cookie}; c=d` } })).status).toBe(200);
  });

  test("is accepted by every replica with the same credentials, and by none with others", async () => {
    const auth = { type: "bearer", token: TOKEN };
    const replica = await services.start({ database, roles: ["admin"], config: withAdmin({ auth }) });
    const { cookie } = await signIn();
    expect((await ask("/admin/destinations", { headers: { cookie } }, replica)).status).toBe(200);
    expect((await ask("/admin/destinations", { headers: { cookie } }, signed)).status).toBe(401);
  });

  test("is not made of a wrong key, and its texts are in no log", async () => {
    const guessed = await services.start({
      database,
      roles: ["admin"],
      config: withAdmin({ auth: { type: "api-key", key: "the-key", headerName: "X-Admin" } }),
    });
    const { cookie, csrfToken } = await signIn(guessed, { "x-admin": "the-key" });
    const headers = { "x-admin": "guess-1" };
    expect((await ask("/console/session", { method: "POST", headers }, guessed)).status).toBe(401);
    expect((await ask("/admin/destinations", { headers: { cookie } }, guessed)).status).toBe(200);
    const log = guessed.process.lines.join("\n");
    for (const secret of [cookie.slice(12), csrfToken, "the-key", "guess-"]) expect(log).not.toContain(secret);
  });
});

describe("with hmac credentials", () => {
  test("svc console sign-in prints a code that makes one session", async () => {
    const file = services.configFile(merged(withAdmin({ auth: HMAC }), { database: databaseConfig(database) }));
    const child = services.processes.svc(["console", "sign-in", "--config", file, "--by", "alice"]);
    expect((await child.exited).code).toBe(0);
    const [code = ""] = child.stdout;
    expect(code).not.toContain("the-secret");

    const first = await ask("/console/session", { method: "POST", body: { code } }, signed);
    expect(JSON.parse(first.text)).toMatchObject({ isSignedIn: true, method: "hmac", by: "alice" });
    expect((await ask("/admin/destinations", { headers: { cookie: cookieOf(first.cookie) } }, signed)).status).toBe(
      200,
    );
    const second = await ask("/console/session", { method: "POST", body: { code } }, signed);
    expect([second.status, second.text]).toEqual([401, expect.stringContaining("make another one")]);
    expect((await ask("/console/session", { method: "POST", body: {} }, signed)).status).toBe(401);
  });
});

describe("without admin.auth", () => {
  test("a browser gets in by this machine's names only, and for this site only", async () => {
    const insecure = await services.start({ database, roles: ["admin"], config: withAdmin({ insecure: true }) });
    const origin = { "sec-fetch-site": "same-origin" };
    expect((await ask("/admin/destinations", { headers: origin }, insecure)).status).toBe(200);
    const foreign = await insecure.get("/admin/destinations");
    expect(foreign.status).toBe(200);
    const paused = { method: "POST", body: { reason: "x" } };
    const path = "/admin/destinations/receiver/pause";
    expect((await ask(path, { ...paused, headers: { "sec-fetch-site": "cross-site" } }, insecure)).status).toBe(403);
    expect((await ask(path, { ...paused, headers: { origin: "http://evil.example" } }, insecure)).status).toBe(403);
    expect((await ask(path, { ...paused, headers: { host: "evil.example", ...origin } }, insecure)).status).toBe(403);
    expect((await ask(path, paused, insecure)).status).toBe(200);
    const reads = ["/admin/failures", "/admin/overview?minutes=1440", "/admin/events", "/console/session"];
    for (const read of reads) {
      for (const site of [{ "sec-fetch-site": "cross-site" }, { "sec-fetch-site": "same-site" }, { origin: "null" }])
        expect([read, (await ask(read, { headers: site }, insecure)).status]).toEqual([read, 403]);
      expect([read, (await open(read, { headers: origin }, insecure)).statusCode]).toEqual([read, 200]);
    }
    const head = { method: "HEAD", headers: { "sec-fetch-site": "cross-site" } };
    expect((await ask("/admin/failures", head, insecure)).status).toBe(403);
    // To a plain http:// URL a browser sends no sign of itself with a GET: the page of another name must not read.
    for (const read of ["/admin/destinations", "/admin/messages", "/admin/events", "/console/session"])
      expect((await ask(read, { headers: { host: "evil.example:8080" } }, insecure)).status).toBe(403);
  });
});

describe("the files", () => {
  test("come with a policy that allows this host alone; only files with a hash are cached", async () => {
    const page = await ask("/console");
    expect([page.status, page.headers["content-type"]]).toEqual([200, "text/html; charset=utf-8"]);
    const slash = await fetch(`http://127.0.0.1:${service.port}/console/`, { redirect: "manual" });
    expect([slash.status, slash.headers.get("location")]).toEqual([308, "../console"]);
    expect(page.headers["content-security-policy"]).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    );
    expect(page.headers["x-content-type-options"]).toBe("nosniff");
    expect(page.headers["referrer-policy"]).toBe("no-referrer");
    expect(page.headers["cache-control"]).toBe("no-store");
    const names = [...page.text.matchAll(/console\/assets\/([\w.-]+)/g)].map(([, name]) => name);
    expect(names).toHaveLength(2);
    for (const name of names) {
      const file = await ask(`/console/assets/${name}`);
      expect([file.status, file.headers["cache-control"]]).toEqual([200, expect.stringContaining("immutable")]);
    }
    for (const name of ["nothing.js", "..%2findex.html", "%2e%2e%2f%2e%2e%2fpackage.json", "index.html"]) {
      expect((await ask(`/console/assets/${name}`)).status).toBe(404);
    }
  });

  test("are fewer than 100 kB compressed", async () => {
    const page = await ask("/console");
    const names = [...page.text.matchAll(/console\/assets\/([\w.-]+)/g)].map(([, name]) => name);
    const sizes = await Promise.all(
      names.map(async (name) => {
        const answer = await service.get(`/console/assets/${name}`);
        return gzipSync(answer.text).length;
      }),
    );
    const total = sizes.reduce((sum, size) => sum + size, 0);
    expect(total).toBeGreaterThan(10_000);
    expect(total).toBeLessThan(100_000);
  });
});

// The last test: the service of the others stops.
test("the service stops at once, however many follow the events", async () => {
  const followers = await Promise.all(
    [1, 2, 3].map(async () => ({ events: text(await open("/admin/events", { headers: BEARER }, service)) })),
  );
  const begun = performance.now();
  expect((await service.stop()).code).toBe(0);
  // Without an end of the events the servers would wait for five seconds, and say so.
  expect(performance.now() - begun).toBeLessThan(4000);
  expect(service.process.lines.join("\n")).not.toContain("requests in flight are cut off");
  for (const { events } of followers) expect(await events).toMatch(/^(?:: connected|event: overview)\n/);
});
