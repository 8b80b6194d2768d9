import { describe, expect, test } from "@jest/globals";
import { StoreError } from "../../../../src/model/errors.ts";
import { Secret } from "../../../../src/model/secret.ts";
import { eventually } from "../../../support/eventually.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { postHead, RawClient, seen } from "../harness.ts";
import { pulledRow, startPull, uuid } from "./harness.ts";

failOnLeaks();

const TOKEN = "11111111-0000-4000-8000-000000000001";

describe("POST claim", () => {
  test("answers with the claim token, the lease and the messages", async () => {
    await using http = await startPull();
    const row = pulledRow({ aggregateId: "a", correlationId: "c", headers: { "X-Tag": "t" }, payload: '{"n":1}' });
    http.store.available.push(row);

    const response = await http.post("claim");

    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json; charset=utf-8");
    expect(await response.json()).toEqual({
      claimToken: TOKEN,
      leaseMs: 30_000,
      messages: [
        {
          id: row.id,
          aggregateId: "a",
          eventType: "created",
          idempotencyKey: row.idempotencyKey,
          correlationId: "c",
          attempt: 1,
          createdAt: "2024-01-01T00:00:00.000Z",
          headers: { "X-Tag": "t" },
          payload: { n: 1 },
        },
      ],
    });
    expect(http.calls).toEqual(["claimRows(pull, 1)", "claimDuration(pull, 0)"]);
  });

  test("answers at once without messages when there are none and the client does not wait", async () => {
    await using http = await startPull();

    expect(await seen(await http.post("claim"))).toEqual({
      status: 200,
      body: '{"claimToken":null,"leaseMs":30000,"messages":[]}',
    });
    expect(http.calls).toEqual([]);
  });

  test.each([
    ["numbers that no double holds", '{"n":12345678901234567890,"m":1.0,"e":1e400}'],
    ["the order and repetition of keys", '{"b":1,"a":2,"b":3}'],
    ["white space and escapes", ' {"a" :\n "\\u0000\\ud800\\/é\u2028" }\n'],
    ["a document that is no object", "null"],
    ["nesting 10,000 deep", `${"[".repeat(10_000)}${"]".repeat(10_000)}`],
  ])("embeds the stored payload unchanged: %s", async (_, payload) => {
    await using http = await startPull();
    http.store.available.push(pulledRow({ payload }));

    const body = await (await http.post("claim")).text();

    expect(body.endsWith(`,"payload":${payload}}]}`)).toBe(true);
    expect(() => JSON.parse(body)).not.toThrow();
  });

  test.each(["", "<order/>", '{"half":', "\ufeff{}", "1}, {"])(
    "embeds what is no JSON document as a string: %j",
    async (payload) => {
      await using http = await startPull();
      http.store.available.push(pulledRow({ payload }));

      const { messages } = (await (await http.post("claim")).json()) as { messages: { payload: unknown }[] };

      expect(messages.map((message) => message.payload)).toEqual([payload]);
    },
  );

  test("takes nothing for a client that has ended its side, or broke off behind another request", async () => {
    const head = (body: string) => `${postHead([`Content-Length: ${body.length}`], "/pull/orders/claim")}${body}`;
    await using http = await startPull();
    using halfClosed = new RawClient(http.data.port);
    halfClosed.end(head('{"waitMs":60000}'));
    await halfClosed.closed;
    expect(halfClosed.received).toContain('"messages":[]');
    using brokenOff = new RawClient(http.data.port);
    const looks = http.store.claims.length;
    brokenOff.send(head('{"waitMs":60000}').repeat(2));
    await eventually(() => expect(http.store.claims.length).toBeGreaterThan(looks));
    await eventually(() => expect(http.data.inFlight).toBe(2));
    brokenOff.reset();
    await eventually(() => expect(http.data.inFlight).toBe(0));
    http.store.available.push(pulledRow());
    http.waiters.wake("orders");
    expect(await seen(await http.post("claim"))).toMatchObject({ body: expect.stringContaining('"payload"') });
  });
});

describe("POST ack, nack and extend", () => {
  test("answer with the ids they met, and with the lost ones", async () => {
    await using http = await startPull();
    const rows = [pulledRow(), pulledRow(), pulledRow()];
    http.store.available.push(...rows);
    await http.post("claim");
    const [first, second, third] = rows.map((row) => row.id);
    const lost = uuid(999_999);

    expect(await seen(await http.post("extend", { claimToken: TOKEN, ids: [first, lost], leaseMs: 1000 }))).toEqual({
      status: 200,
      body: JSON.stringify({ extended: [first], lost: [lost] }),
    });
    expect(await seen(await http.post("ack", { claimToken: TOKEN.toUpperCase(), ids: [first, first] }))).toEqual({
      status: 200,
      body: JSON.stringify({ acknowledged: [first], lost: [] }),
    });
    expect(await seen(await http.post("nack", { claimToken: TOKEN, ids: [first, second?.toUpperCase()] }))).toEqual({
      status: 200,
      body: JSON.stringify({ retried: [second], dead: [], released: [], lost: [first] }),
    });
    expect(await seen(await http.post("ack", { claimToken: TOKEN }))).toEqual({
      status: 200,
      body: JSON.stringify({ acknowledged: [third], lost: [] }),
    });
    expect(http.store.extensions).toEqual([1000]);
    expect(http.calls.filter((call) => call.startsWith("claimsLost"))).toEqual([
      "claimsLost(pull, 1)",
      "claimsLost(pull, 1)",
    ]);
  });

  test.each([
    ["ack", { acknowledged: [] }],
    ["nack", { retried: [], dead: [], released: [] }],
    ["extend", { extended: [] }],
  ])("%s answers 409 when nothing of the claim is held any more", async (operation, lists) => {
    await using http = await startPull();
    const ids = [uuid(1), uuid(2)];

    const all = await http.post(operation, { claimToken: TOKEN });
    expect([all.status, await all.json()]).toEqual([
      409,
      { error: expect.stringMatching(/^No message is held under this claim token: .*lease/), ...lists, lost: [] },
    ]);
    const named = await http.post(operation, { claimToken: TOKEN, ids });
    expect([named.status, await named.json()]).toEqual([
      409,
      { error: expect.stringMatching(/^None of these messages is held under/), ...lists, lost: ids },
    ]);
  });

  test("nack stores what the client says on one line, without secrets and cut", async () => {
    await using http = await startPull();

    await http.post("nack", {
      claimToken: TOKEN,
      delayMs: 86_400_000,
      error: "status 500\nAuthorization: s3cret-value",
    });
    await http.post("nack", { claimToken: TOKEN, error: "x".repeat(5000) });
    await http.post("nack", { claimToken: TOKEN, error: " \u0000 " });
    await http.post("nack", { claimToken: TOKEN });

    const [first, second, blank, none] = http.store.rejections;
    expect(first).toMatchObject({ delayMs: 86_400_000, maxAttempts: 5 });
    expect(first?.reason).toMatch(/^status 500 Authorization: \*\*\*/);
    expect(second?.reason).toHaveLength(100);
    expect(blank?.reason).toBeNull();
    expect(none).toMatchObject({ delayMs: 0, reason: null });
  });

  test.each(["ack", "nack"])("%s wakes a client that waits: what was held back may be free", async (operation) => {
    await using http = await startPull();
    http.store.available.push(pulledRow());
    await http.post("claim");
    const waiting = http.post("claim", { waitMs: 60_000 });
    await eventually(() => expect(http.store.claims.length).toBeGreaterThan(1));
    const next = pulledRow();
    http.store.available.push(next);

    await http.post(operation, { claimToken: TOKEN });

    const { messages } = (await (await waiting).json()) as { messages: { id: string }[] };
    expect(messages.map((message) => message.id)).toEqual([next.id]);
  });
});

describe("a pull request", () => {
  test.each<[string, string, string | object, string]>([
    ["claim", "no JSON", "{", "the body is not a JSON document in UTF-8"],
    ["claim", "a list", "[]", "the body is an array; a JSON object is expected"],
    ["claim", "no message", { max: 0 }, '"max" is not valid; a whole number from 1 to 1000 is expected'],
    ["ack", "an empty body", "", '"claimToken" is missing; the UUID of the claim is expected'],
    [
      "ack",
      "ids that are no list",
      { claimToken: TOKEN, ids: TOKEN },
      '"ids" is a string; an array of strings is expected',
    ],
    [
      "ack",
      "an empty list",
      { claimToken: TOKEN, ids: [] },
      '"ids" is empty; leave it out to name all messages of the claim',
    ],
    [
      "nack",
      "an error that is no text",
      { claimToken: TOKEN, error: {} },
      '"error" is an object; a string is expected',
    ],
  ])("to %s with %s is answered 400 with the reason", async (operation, _, body, reason) => {
    await using http = await startPull();

    expect(await seen(await http.post(operation, body))).toEqual({
      status: 400,
      body: JSON.stringify({ error: `Invalid request: ${reason}` }),
    });
    expect(http.store.claims).toEqual([]);
  });

  test("is checked in the order body size, credentials, body", async () => {
    await using http = await startPull({
      maxBodyBytes: 100,
      auth: { kind: "bearer", token: new Secret("s3cret-token") },
    });
    const authorized = { Authorization: "Bearer s3cret-token" };

    expect(await seen(await http.post("claim", "x".repeat(101)))).toEqual({
      status: 413,
      body: '{"error":"Request body exceeds 100 bytes"}',
    });
    const refused = await http.post("claim", "no JSON", { Authorization: "Bearer wr0ng" });
    expect(refused.headers.get("www-authenticate")).toBe("Bearer");
    expect(await seen(refused)).toEqual({ status: 401, body: '{"error":"the Bearer token is wrong"}' });
    for (const operation of ["ack", "nack", "extend"]) expect((await http.post(operation, "{}")).status).toBe(401);
    expect((await http.post("claim", "no JSON", authorized)).status).toBe(400);
    expect((await http.post("claim", "", authorized)).status).toBe(200);
    expect(http.store.claims).toHaveLength(1);
  });

  test.each([
    ["claim", {}],
    ["ack", { claimToken: TOKEN }],
    ["nack", { claimToken: TOKEN, error: "ERROR-TEXT" }],
    ["extend", { claimToken: TOKEN }],
  ])("to %s is answered 500 when the database fails, and the log says why", async (operation, body) => {
    await using http = await startPull();
    http.store.fault = new StoreError("unavailable", `pull.${operation}: connection lost`);

    expect(await seen(await http.post(operation, body))).toEqual({ status: 500, body: '{"error":"Storage failed"}' });

    const errors = http.lines.filter(({ level }) => level === "error");
    expect(errors.map(({ fields }) => fields)).toEqual([
      { source: "orders", code: "unavailable", reason: `pull.${operation}: connection lost` },
    ]);
    expect(JSON.stringify(http.lines)).not.toContain("ERROR-TEXT");
  });

  test("finds a source by its encoded name, and answers 404 to any other path, 405 to another method", async () => {
    await using http = await startPull({ sources: ["web shop/é", "orders"] });

    expect((await http.post("web%20shop%2F%C3%A9/claim")).status).toBe(200);
    expect(http.store.claims.map(({ source }) => source)).toEqual(["web shop/é"]);
    for (const path of ["payments/claim", "orders/peek", "orders/claim/", "orders/Claim", "orders"]) {
      expect((await http.post(path.includes("/") ? path : "/orders")).status).toBe(404);
    }
    expect((await fetch(`http://127.0.0.1:${http.data.port}/pull/orders/claim`)).status).toBe(405);
  });
});
