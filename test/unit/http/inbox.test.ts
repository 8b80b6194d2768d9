import { createHash } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { httpPlan } from "../../../src/core/receipt/attributes.ts";
import { StoreError } from "../../../src/model/errors.ts";
import { Secret } from "../../../src/model/secret.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { postHead, RawClient, seen, startHttp } from "./harness.ts";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

failOnLeaks();

describe("POST of a message", () => {
  test("answers 202 filtered without a correlation header, before the body is looked at", async () => {
    await using http = await startHttp({ filter: { require: [{ header: "X-Kind", equals: "order" }] } });
    const response = await http.post("no JSON", { "x-kind": "other", "X-Correlation-Id": "c-1" });
    expect(await seen(response)).toEqual({ status: 202, body: '{"status":"filtered"}' });
    expect(response.headers.get("x-correlation-id")).toBeNull();
    expect(http.store.rows).toEqual([]);
    expect(http.calls).toEqual(["inboxFiltered()"]);
    expect((await http.post('{"id":1}', { "x-kind": "order" })).status).toBe(202);
    expect(http.store.rows).toHaveLength(1);
  });

  test("answers 400 with the reason when there is no idempotency key", async () => {
    await using http = await startHttp();
    expect(await seen(await http.post('{"id":{}}'))).toEqual({
      status: 400,
      body: '{"error":"no idempotency key at $.id: a non-empty string, a number or a boolean is expected"}',
    });
    expect(http.calls).toEqual(["inboxRejection(extraction_failed)"]);
  });

  test("has no key in a header that comes twice without a value, and one in a header that has it once", async () => {
    await using http = await startHttp({ attributes: httpPlan({ idempotencyKeyHeader: "X-Key" }) });
    const send = async (...values: readonly string[]) => {
      using client = new RawClient(http.data.port);
      const keys = values.map((value) => `X-Key: ${value}`);
      client.send(`${postHead([...keys, "Content-Length: 2", "Connection: close"])}{}`);
      await client.closed;
      return client.received.slice("HTTP/1.1 ".length, "HTTP/1.1 202".length);
    };
    expect(await send("", "")).toBe("400");
    expect(await send("", "a")).toBe("202");
    expect(await send("a", "")).toBe("200");
    expect(await send("a", "b")).toBe("202");
    expect(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["a", "a, b"]);
  });

  test("answers 401 with the failed check, and stores nothing", async () => {
    await using http = await startHttp({ route: { auth: { kind: "bearer", token: new Secret("s3cret") } } });
    const response = await http.post("no JSON", { Authorization: "Bearer wr0ng" });
    expect(await seen(response)).toEqual({ status: 401, body: '{"error":"the Bearer token is wrong"}' });
    expect(response.headers.get("www-authenticate")).toBe("Bearer");
    expect(http.calls).toEqual(["inboxRejection(unauthorized)"]);
    expect((await http.post('{"id":1}', { Authorization: "bearer s3cret" })).status).toBe(202);
  });

  test("answers 422 when the source transform rejects it, also to a repeat of a stored message", async () => {
    let reject = false;
    await using http = await startHttp({
      stage: async () => (reject ? { kind: "rejected", reason: "no such field" } : { kind: "unchanged" }),
    });
    expect((await http.post('{"id":1}')).status).toBe(202);
    reject = true;
    expect(await seen(await http.post('{"id":1}'))).toEqual({
      status: 422,
      body: '{"error":"Transform failed: no such field"}',
    });
  });

  test("answers 429 without a body and with Retry-After when the source's minute is used up", async () => {
    await using http = await startHttp({ route: { rateLimit: { requestsPerMinute: 2 } } });
    expect((await http.post('{"id":1}')).status).toBe(202);
    expect((await http.post('{"id":2}')).status).toBe(202);
    const response = await http.post('{"id":3}');
    expect(await seen(response)).toEqual({ status: 429, body: "" });
    expect(response.headers.get("retry-after")).toBe("30");
    expect(response.headers.get("content-type")).toBeNull();
    expect(http.calls).toContain("inboxRejection(rate_limited)");
    http.clock.advance(30_000);
    expect((await http.post('{"id":3}')).status).toBe(202);
  });

  test("does not count refused credentials against the rate limit", async () => {
    const route = {
      auth: { kind: "bearer", token: new Secret("s3cret") },
      rateLimit: { requestsPerMinute: 1 },
    } as const;
    await using http = await startHttp({ route });
    expect((await http.post('{"id":1}')).status).toBe(401);
    expect((await http.post('{"id":1}', { Authorization: "Bearer s3cret" })).status).toBe(202);
  });

  test("is checked in the order body size, credentials, rate limit, header filter", async () => {
    await using http = await startHttp({
      maxBodyBytes: 10,
      route: { auth: { kind: "bearer", token: new Secret("s3cret") }, rateLimit: { requestsPerMinute: 1 } },
      filter: { require: [{ header: "x-kind", exists: true }] },
    });
    const authorized = { Authorization: "Bearer s3cret" };
    expect((await http.post("x".repeat(11))).status).toBe(413);
    expect((await http.post("no JSON")).status).toBe(401);
    expect(await seen(await http.post("no JSON", authorized))).toEqual({ status: 202, body: '{"status":"filtered"}' });
    expect((await http.post("no JSON", authorized)).status).toBe(429);
  });

  test("answers 500 when the store fails, and logs no payload", async () => {
    await using http = await startHttp();
    http.store.fault = { reject: new StoreError("unavailable", "inbox.insert: connection lost") };
    expect(await seen(await http.post('{"id":"PAYLOAD-TEXT"}'))).toEqual({
      status: 500,
      body: '{"error":"Storage failed"}',
    });
    expect(http.lines.filter(({ level }) => level === "error")).toHaveLength(1);
    expect(JSON.stringify(http.lines)).not.toContain("PAYLOAD-TEXT");
  });

  test("answers 503 with Retry-After when the transform cannot be run now, stores nothing and counts it", async () => {
    await using http = await startHttp({ stage: async () => ({ kind: "unavailable", reason: "too many wait" }) });
    const response = await http.post('{"id":1}');
    expect(response.headers.get("Retry-After")).toBe("1");
    expect(await seen(response)).toEqual({ status: 503, body: '{"error":"The transform cannot be run now"}' });
    expect(http.store.rows).toEqual([]);
    expect(http.calls).toEqual(["inboxRejection(transform_unavailable)"]);
  });

  test("answers 400 when the database refuses the data for good", async () => {
    await using http = await startHttp();
    http.store.fault = { refuse: "unsupported Unicode escape" };
    expect(await seen(await http.post('{"id":1}'))).toEqual({
      status: 400,
      body: '{"error":"the database cannot hold this message: unsupported Unicode escape"}',
    });
  });
});

describe("the correlation id", () => {
  test("is taken from the request, sent back and stored", async () => {
    await using http = await startHttp();
    const response = await http.post('{"id":1}', { "x-correlation-ID": "order 17" });
    expect(response.headers.get("x-correlation-id")).toBe("order 17");
    expect(http.store.rows[0]?.correlationId).toBe("order 17");
  });

  test.each(["x".repeat(256), "a\tb"])(
    "is the digest of %j, which no column or header should hold",
    async (received) => {
      await using http = await startHttp();
      const response = await http.post('{"id":1}', { "X-Correlation-Id": received });
      const digest = `sha256:${createHash("sha256").update(received).digest("hex")}`;
      expect(response.headers.get("x-correlation-id")).toBe(digest);
      expect(http.store.rows[0]?.correlationId).toBe(digest);
    },
  );

  test.each([undefined, ""])("is a new UUID instead of %j", async (received) => {
    await using http = await startHttp();
    const headers: Record<string, string> = received === undefined ? {} : { "X-Correlation-Id": received };
    const response = await http.post('{"id":1}', headers);
    expect(response.headers.get("x-correlation-id")).toMatch(UUID);
    expect(http.store.rows[0]?.correlationId).toBe(response.headers.get("x-correlation-id"));
  });
});

test("received headers are stored in their letter case, repeats joined, credentials and correlation id left out", async () => {
  const auth = { kind: "api-key", key: new Secret("k1"), headerName: "X-Shop-Key" } as const;
  await using http = await startHttp({ route: { auth } });
  using client = new RawClient(http.data.port);
  const head = postHead([
    "Content-Length: 8",
    "X-Tag: one",
    "x-shop-KEY: k1",
    "AUTHORIZATION: Basic eA==",
    "Cookie: a=b",
    "X-API-Key: other",
    "X-Correlation-Id: c-1",
    "x-tag: two",
    "__proto__: p",
    "X-Name: \u00e9",
  ]);
  client.send(Buffer.from(`${head}{"id":1}`, "latin1"));
  await client.until("messageId");
  expect(JSON.parse(JSON.stringify(http.store.rows[0]?.headers))).toEqual(
    JSON.parse('{"Host":"localhost","Content-Length":"8","X-Tag":"one, two","__proto__":"p","X-Name":"é"}'),
  );
});

test("a header value in UTF-8 is text, any other is Latin-1, in the filter too", async () => {
  await using http = await startHttp({ filter: { require: [{ header: "x-city", equals: "Zürich" }] } });
  using client = new RawClient(http.data.port);
  const utf8 = (text: string) => Buffer.from(text).toString("latin1");
  const names = [`X-City: ${utf8("Zürich")}`, `X-Correlation-Id: ${utf8("c-ü-€")}`, "X-Old: \u00fc"];
  client.send(Buffer.from(`${postHead(["Content-Length: 8", ...names])}{"id":1}`, "latin1"));
  await client.until("messageId");
  expect(http.store.rows[0]).toMatchObject({
    correlationId: "c-ü-€",
    headers: { "X-City": "Zürich", "X-Old": "ü" },
  });
});

test("headers that the configuration names as credentials are left out, in any letter case", async () => {
  await using http = await startHttp({ credentialHeaders: ["X-Partner-Pass"] });
  await http.post('{"id":1}', { "x-partner-PASS": "s3cret", "x-gitlab-token": "s3cret", "x-kept": "yes" });
  expect(JSON.stringify(http.store.rows[0]?.headers)).not.toContain("s3cret");
  expect(http.store.rows[0]?.headers).toMatchObject({ "x-kept": "yes" });
});

describe("the path of a source", () => {
  test("is matched exactly, whatever the query", async () => {
    await using http = await startHttp();
    expect((await http.post('{"id":1}', {}, "/inbox/orders?a=b")).status).toBe(202);
    for (const path of ["/inbox/Orders", "/inbox/orders/", "/inbox/orders/1", "/inbox", "/orders"]) {
      expect(await seen(await http.post('{"id":2}', {}, path))).toEqual({ status: 404, body: '{"error":"Not found"}' });
    }
  });

  test("is found in the absolute form of a request target too", async () => {
    await using http = await startHttp();
    using client = new RawClient(http.data.port);
    client.send(`${postHead(["Content-Length: 8"], "http://svc.example/inbox/orders?x")}{"id":1}`);
    await client.until("messageId");
  });
});
