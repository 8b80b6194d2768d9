import { describe, expect, test } from "@jest/globals";
import { createAdmin, createGuard, type GuardOptions } from "../../../../src/http/admin/operation.ts";
import { testTransform } from "../../../../src/http/admin/operations/transformTest.ts";
import { TransformError, type TransformErrorCode } from "../../../../src/model/errors.ts";
import { Secret } from "../../../../src/model/secret.ts";
import type { Evaluation } from "../../../../src/ports/evaluator.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";
import { bodyLimits, seen, startHttp } from "../harness.ts";
import { adminOptions } from "./adminOptions.ts";

failOnLeaks();

const PATH = "/admin/transform/test";
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

interface Options {
  readonly admin?: GuardOptions["admin"];
  readonly maxBodyBytes?: number;
  readonly maxTimeoutMs?: number;
  /** What the evaluator does; the result `1` unless given. */
  readonly evaluate?: (evaluation: Evaluation) => Promise<string>;
}

/** The route over an evaluator that writes down what it was asked. */
async function start({ admin = { insecure: true }, maxBodyBytes = 1000, maxTimeoutMs = 500, evaluate }: Options = {}) {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const asked: Evaluation[] = [];
  const evaluator = {
    async evaluate(evaluation: Evaluation) {
      asked.push(evaluation);
      return evaluate === undefined ? "1" : evaluate(evaluation);
    },
  };
  const tools = createAdmin({
    ...adminOptions(log),
    admin: { ...admin, showPayloads: false, maxTransformTimeoutMs: maxTimeoutMs },
    limits: bodyLimits(maxBodyBytes),
    evaluator,
    clock,
  });
  const http = await startHttp({ routes: [testTransform(tools)] });
  const post = (body: string | Uint8Array | object, headers: Record<string, string> = {}) =>
    http.post(typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body), headers, PATH);
  return { ...http, asked, clock, lines, post };
}

describe("a transform test", () => {
  test("answers with the evaluator's text byte for byte and with what was bound", async () => {
    await using http = await start({ evaluate: async () => '{"b":12345678901234567890.10,"a":"é"}' });
    const response = await http.post({ expression: "$", payload: {}, mockTopic: "orders.created" });
    const { status, body } = await seen(response);
    expect(status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json; charset=utf-8");
    expect(body).toContain('{"success":true,"result":{"b":12345678901234567890.10,"a":"é"},"context":{');
    expect(JSON.parse(body).context).toEqual({
      messageId: expect.stringMatching(UUID),
      topic: "orders.created",
      attempt: 0,
      timestamp: "2024-01-01T00:00:00.000Z",
    });
  });

  test("binds what it says it has bound, and by default neither source nor headers", async () => {
    await using http = await start();
    const { context } = (await (await http.post({ expression: "e", payload: 1 })).json()) as { context: object };
    const limits = { timeoutMs: 100, maxDepth: 100 };
    expect(http.asked).toEqual([{ lane: "tests", expression: "e", input: "1", bindings: context, ...limits }]);
    expect(context).toMatchObject({ topic: "test.topic" });
    expect(Object.keys(context)).toEqual(["messageId", "topic", "attempt", "timestamp"]);
  });

  test("binds the source that the caller gives, and does not repeat it in the context", async () => {
    await using http = await start();
    const answer = (await (await http.post({ expression: "e", payload: 1, mockSource: "shop" })).json()) as object;
    expect(http.asked[0]?.bindings).toHaveProperty("source", "shop");
    expect(answer).not.toHaveProperty("context.source");
  });

  test("hands on the payload unchanged", async () => {
    await using http = await start();
    await http.post('{"payload" : {"n": 1.0, "big":12345678901234567890},"expression":"n"}');
    expect(http.asked[0]?.input).toBe('{"n": 1.0, "big":12345678901234567890}');
  });

  test("takes the smaller of the caller's time and the limit", async () => {
    await using http = await start({ maxTimeoutMs: 500 });
    for (const timeoutMs of [1, 499, 501, 1e300]) await http.post({ expression: "e", payload: 1, timeoutMs });
    expect(http.asked.map(({ timeoutMs }) => timeoutMs)).toEqual([1, 499, 500, 500]);
  });

  test("never asks for an evaluation without a limit", async () => {
    await using http = await start({ maxTimeoutMs: 0 });
    await http.post({ expression: "e", payload: 1 });
    expect(http.asked[0]?.timeoutMs).toBe(1);
  });

  test("ignores unknown fields and takes null in an optional one for absent", async () => {
    await using http = await start();
    const nothing = { mockTopic: null, mockSource: null, timeoutMs: null };
    const { status } = await http.post({ expression: "e", payload: null, ...nothing, maxDepth: "x", other: {} });
    expect(status).toBe(200);
    expect(http.asked[0]).toMatchObject({ input: "null", timeoutMs: 100, bindings: { topic: "test.topic" } });
    expect(http.asked[0]?.bindings).not.toHaveProperty("source");
  });
});

describe("a transform test answers 400", () => {
  test.each([
    ["", '"expression" is missing; a string is expected'],
    ["{", "the body is not a JSON document in UTF-8"],
    ["[]", 'the body is an array; a JSON object with "expression" and "payload" is expected'],
    ["null", 'the body is null; a JSON object with "expression" and "payload" is expected'],
    ['{"payload":1}', '"expression" is missing; a string is expected'],
    ['{"payload":1,"expression":["a"]}', '"expression" is an array; a string is expected'],
    ['{"expression":"a"}', '"payload" is missing; any JSON value is expected'],
    ['{"expression":"a","payload":1,"mockTopic":7}', '"mockTopic" is 7; a string is expected'],
    [
      '{"expression":"a","payload":1,"timeoutMs":"5"}',
      '"timeoutMs" is a string; a whole number of at least 1 is expected',
    ],
    ['{"expression":"a","payload":1,"timeoutMs":0}', '"timeoutMs" is 0; a whole number of at least 1 is expected'],
  ])("to the body %j", async (body, reason) => {
    await using http = await start();
    expect(await seen(await http.post(body))).toEqual({
      status: 400,
      body: JSON.stringify({ success: false, error: `Invalid request: ${reason}` }),
    });
    expect(http.asked).toEqual([]);
  });

  test("to a body that is not UTF-8", async () => {
    await using http = await start();
    const body = Buffer.concat([Buffer.from('{"expression":"'), Buffer.from([0xff]), Buffer.from('","payload":1}')]);
    expect((await http.post(body)).status).toBe(400);
    expect(http.asked).toEqual([]);
  });

  test.each<[TransformErrorCode, number, string]>([
    ["invalid_expression", 400, "Invalid expression: the reason"],
    ["failed", 400, "the reason"],
    ["no_result", 400, "the reason"],
    ["timeout", 400, "the reason"],
    ["too_deep", 400, "the reason"],
    ["too_large", 400, "the reason"],
    ["closed", 503, "Service is shutting down"],
  ])("with the reason when the evaluation ends with %s (%i)", async (code, status, error) => {
    await using http = await start({
      evaluate: async () => {
        throw new TransformError(code, "the reason");
      },
    });
    expect(await seen(await http.post({ expression: "e", payload: 1 }))).toEqual({
      status,
      body: JSON.stringify({ success: false, error }),
    });
  });
});

test("a fault of the evaluator is a 500 that says no more than that", async () => {
  await using http = await start({
    evaluate: async () => {
      throw new Error("a bug");
    },
  });
  expect(await seen(await http.post({ expression: "e", payload: 1 }))).toEqual({
    status: 500,
    body: '{"error":"Internal error"}',
  });
});

test("past sixteen unanswered tests a caller is asked to come again, and is let in when one is answered", async () => {
  const release: (() => void)[] = [];
  await using http = await start({ evaluate: () => new Promise((resolve) => release.push(() => resolve("1"))) });
  const waiting = Array.from({ length: 16 }, () => http.post({ expression: "e", payload: 1 }));
  while (release.length < 16) await new Promise(setImmediate);

  const refused = await http.post({ expression: "e", payload: 1 });
  expect(await seen(refused)).toEqual({
    status: 503,
    body: '{"success":false,"error":"Too many transform tests at once: 16 are unanswered"}',
  });
  expect(refused.headers.get("retry-after")).toBe("1");

  release[0]?.();
  await Promise.race(waiting);
  const late = http.post({ expression: "e", payload: 1 });
  while (release.length < 17) await new Promise(setImmediate);
  for (const end of release) end();
  for (const response of [...waiting, late]) expect((await response).status).toBe(200);
});

const BEARER = { insecure: false, auth: { kind: "bearer", token: new Secret("the-admin-token") } as const };
const VALID = { expression: "e", payload: 1 };

describe("the gate of the admin routes", () => {
  test.each([
    [{}, "missing Authorization header"],
    [{ authorization: "Basic the-admin-token" }, "the Authorization header has no Bearer token"],
    [{ authorization: "Bearer wrong" }, "the Bearer token is wrong"],
  ])(
    "refuses the headers %j, in the words of the route, and logs it without the credential",
    async (headers, error) => {
      await using http = await start({ admin: BEARER });
      const response = await http.post(VALID, headers as Record<string, string>);
      expect(await seen(response)).toEqual({ status: 401, body: JSON.stringify({ success: false, error }) });
      expect(response.headers.get("www-authenticate")).toBe("Bearer");
      expect(http.asked).toEqual([]);
      expect(http.lines).toEqual([
        { level: "warn", message: "an admin request was refused", fields: { path: PATH, reason: error } },
      ]);
    },
  );

  test("looks at the credentials before the request itself", async () => {
    await using http = await start({ admin: BEARER });
    expect((await http.post("no json")).status).toBe(401);
  });

  test("asks for no credentials when admin.insecure is set, even if some are configured", async () => {
    await using http = await start({ admin: { ...BEARER, insecure: true } });
    expect((await http.post(VALID)).status).toBe(200);
  });

  test("refuses a body above the cap before it asks for credentials", async () => {
    await using http = await start({ admin: BEARER, maxBodyBytes: 20 });
    expect(await seen(await http.post("x".repeat(21)))).toEqual({
      status: 413,
      body: '{"success":false,"error":"Request body exceeds 20 bytes"}',
    });
    expect((await http.post("x".repeat(20))).status).toBe(401);
  });

  test("is not made open by a missing auth block", () => {
    const { log } = recordingLog();
    const options = { admin: { insecure: false }, limits: bodyLimits(1), clock: new ManualClock(), log };
    expect(() => createGuard(options, "request")).toThrow("admin.auth is required");
  });
});
