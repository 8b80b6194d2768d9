import { beforeAll, describe, expect, test } from "@jest/globals";
import { Ajv2020 } from "ajv/dist/2020.js";
import type { OpenApiDocument } from "../../../src/http/openapi/types.ts";
import { readAck, readClaim, readExtend, readNack } from "../../../src/http/pull/requests.ts";
import type { Role } from "../../../src/model/roles.ts";
import { OPERATIONS } from "../../../src/model/routes.ts";
import { describedApi } from "../../support/describedApi.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { loadWith } from "../config/support.ts";
import { ALL_ROLES, documentOf, routesOf } from "./routesOf.ts";

failOnLeaks();

const EVERYTHING = `
server: { managementPort: 9090 }
inbox:
  basePath: /in
  maxBodyBytes: 5000
  pull: { enabled: true, basePath: /out, leaseMs: 4000, auth: { token: pull-secret } }
sources:
  open: { path: /open, idempotencyKeyPath: $.id, topic: t }
  bearer: { path: /bearer, idempotencyKeyPath: $.id, topic: t, auth: { token: bearer-secret } }
  key: { path: /key, idempotencyKeyPath: $.id, topic: t, auth: { key: key-secret, headerName: X-Key } }
  hmac:
    path: /hmac
    idempotencyKeyPath: $.id
    eventTypePath: $.type
    aggregateIdPath: $.customer
    topic: t
    auth: { secret: hmac-secret, algorithm: HmacSHA512, signaturePrefix: "", timestampHeader: X-Time }
    filter: { require: [{ header: X-Kind, exists: true }] }
    rateLimit: { requestsPerMinute: 7 }
    transform: { expression: $ }
  "fetched/by hand": { path: /fetched, idempotencyKeyPath: $.id, consumption: pull }
  queue: { connectionUrl: amqp://h, queueName: q, consumption: pull }
destinations: { d: { baseUrl: http://h } }
routes: [{ topicPattern: "**", destination: d }]
admin: { enabled: true, console: true, auth: { token: admin-secret }, maxPayloadBytes: 70, maxTransformTimeoutMs: 321 }
`;
const EVERY_PROCESS = [
  "GET /",
  "GET /health",
  "GET /health/live",
  "GET /health/ready",
  "GET /metrics",
  "GET /openapi.json",
];
const RECEIPTS = ["bearer", "fetched", "hmac", "key", "open"].map((path) => `POST /in/${path}`);
const PULLS = ["fetched%2Fby%20hand", "queue"].flatMap((source) =>
  ["claim", "ack", "nack", "extend"].map((operation) => `POST /out/${source}/${operation}`),
);
const ADMIN = [
  "GET /admin/config",
  "GET /admin/events",
  "GET /admin/audit",
  "GET /admin/blocked-keys",
  "GET /admin/destinations",
  "GET /admin/failures",
  "GET /admin/messages",
  "GET /admin/messages/{id}",
  "GET /admin/overview",
  "GET /admin/replays",
  "GET /admin/replays/{id}",
  "POST /admin/messages/{id}/discard",
  "POST /admin/messages/{id}/replay",
  "POST /admin/messages/{id}/retry",
  "POST /admin/replays",
  "POST /admin/replays/{id}/cancel",
  "POST /admin/replays/{id}/resume",
  "GET /admin/parked",
  "POST /admin/destinations/{name}/pause",
  "POST /admin/destinations/{name}/resume",
  "POST /admin/parked/discard",
  "POST /admin/parked/retry",
  "POST /admin/replay",
  "POST /admin/transform/test",
];
const CONSOLE = [
  "GET /console",
  "GET /console/assets/{file}",
  "GET /console/session",
  "POST /console/session",
  "POST /console/sign-out",
];

describe("the OpenAPI document", () => {
  test("is OpenAPI 3.1, every schema of it compiles, and its examples fit their schemas", async () => {
    const api = describedApi(JSON.stringify(await documentOf(loadWith(EVERYTHING))));
    expect(api.wrongExamples()).toEqual([]);
  });

  test.each<[string, string, readonly Role[], readonly string[]]>([
    ["everything", EVERYTHING, ALL_ROLES, [...RECEIPTS, ...PULLS, ...ADMIN, ...CONSOLE]],
    ["only receipts", EVERYTHING, ["ingest"], [...RECEIPTS, ...PULLS]],
    ["only deliveries", EVERYTHING, ["relay", "poller"], []],
    ["only the admin routes", EVERYTHING, ["admin"], [...ADMIN, ...CONSOLE]],
    ["a configuration without sources, pull and admin", "", ["ingest", "relay", "poller"], []],
  ])("has the routes of the process: %s", async (_what, yaml, roles, ofRoles) => {
    const { operations } = describedApi(JSON.stringify(await documentOf(loadWith(yaml), roles)));
    expect([...operations].sort()).toEqual([...EVERY_PROCESS, ...ofRoles].sort());
  });

  test("has an entry for every operation of the route table", async () => {
    const served = (await routesOf(loadWith(EVERYTHING))).map(({ operationId }) => operationId);
    const missing = Object.keys(OPERATIONS).filter(
      (id) => !served.some((known) => known === id || known.startsWith(`${id}_`)),
    );
    expect(missing).toEqual([]);
  });

  test("says which fields a request needs", async () => {
    const { paths, components } = await documentOf(loadWith(EVERYTHING));
    const bodyOf = (path: string) => paths[path]?.post?.requestBody?.content["application/json"]?.schema;
    expect(bodyOf("/in/hmac")).toMatchObject({
      type: "object",
      required: ["id"],
      properties: { id: { type: ["string", "number", "boolean"] }, type: {}, customer: {} },
    });
    const nested = await documentOf(
      loadWith("sources: { s: { path: /s, idempotencyKeyPath: \"$.a['b c'][1]\", aggregateIdPath: $.a.d, topic: t } }"),
    );
    expect(nested.paths["/inbox/s"]?.post?.requestBody?.content["application/json"]?.schema).toMatchObject({
      required: ["a"],
      properties: {
        a: {
          type: "object",
          required: ["b c"],
          properties: { "b c": { type: "array", minItems: 2 }, d: { maxLength: 1024 } },
        },
      },
    });
    expect(components.schemas.AckRequest?.required).toEqual(["claimToken"]);
    expect(components.schemas.ReplayRequest).toHaveProperty("anyOf");
  });

  test("names every path of a list: a body needs a key at one of them", async () => {
    const lists = "idempotencyKeyPath: [$.id, $.event.id], eventTypePath: [$.type, $.event.type], consumption: pull";
    const { paths } = await documentOf(loadWith(`sources: { s: { path: /s, ${lists} } }`));
    const { description, requestBody } = paths["/inbox/s"]?.post ?? {};
    expect(description).toContain("The idempotency key is the value at `$.id`, else the value at `$.event.id`:");
    expect(description).toContain("The event type is the value at `$.type`, else the value at `$.event.type`.");
    const schema = requestBody?.content["application/json"]?.schema as object;
    const validate = new Ajv2020({ strict: false }).compile(schema);
    expect([{ id: 1 }, { event: { id: 1 } }, { id: null, event: { id: 1 } }].map((body) => validate(body))).toEqual([
      true,
      true,
      true,
    ]);
    expect([{}, { id: "" }, { event: {} }].map((body) => validate(body))).toEqual([false, false, false]);
  });

  test("does not require in header or body what a source may compute, and has the answer while it cannot", async () => {
    const computed =
      "idempotencyKeyHeader: X-Id, idempotencyKeyExpression: a, eventTypePath: $.type, eventTypeExpression: b, consumption: pull";
    const { paths } = await documentOf(loadWith(`sources: { s: { path: /s, ${computed} } }`));
    const { description, parameters = [], requestBody, responses } = paths["/inbox/s"]?.post ?? {};
    expect(description).toContain("is the header `X-Id`, else what the source computes from body and headers:");
    expect(parameters).toContainEqual(expect.objectContaining({ name: "X-Id", required: false }));
    const schema = requestBody?.content["application/json"]?.schema as object;
    expect(new Ajv2020({ strict: false }).validate(schema, { type: "t".repeat(2000) })).toBe(true);
    expect(Object.keys(responses ?? {})).toContain("503");
    expect(Object.keys(responses ?? {})).not.toContain("422");
  });

  test("gives every operation an id of its own that is an identifier in any language", async () => {
    const auth = "idempotencyKeyPath: $.id, topic: t, consumption: pull";
    const yaml = `sources: { "a/b": { path: /1, ${auth} }, "a b": { path: /2, ${auth} } }\ninbox: { pull: { enabled: true } }`;
    for (const config of [loadWith(EVERYTHING), loadWith(yaml)]) {
      const items = Object.values((await documentOf(config)).paths).flatMap(({ get, post }) => [get, post]);
      const ids = items.flatMap((operation) => operation?.operationId ?? []);
      expect(new Set(ids).size).toBe(ids.length);
      for (const id of ids) expect(id).toMatch(/^[a-z][A-Za-z0-9_]*$/);
    }
  });

  test("holds no secret", async () => {
    const text = JSON.stringify(await documentOf(loadWith(EVERYTHING)));
    expect(text).not.toMatch(/-secret|s3cret|Secret\(/);
  });

  test("names for each source only the answers that it can give", async () => {
    const { paths } = await documentOf(loadWith(EVERYTHING));
    expect(Object.keys(paths["/in/open"]?.post?.responses ?? {})).toEqual([
      "200",
      "202",
      "207",
      "400",
      "413",
      "415",
      "500",
      "503",
    ]);
    expect(Object.keys(paths["/in/hmac"]?.post?.responses ?? {})).toEqual([
      "200",
      "202",
      "400",
      "401",
      "413",
      "415",
      "422",
      "429",
      "500",
      "503",
    ]);
  });

  test("says how each kind of credentials is sent", async () => {
    const { paths, components } = await documentOf(loadWith(EVERYTHING));
    expect(paths["/in/open"]?.post?.security).toEqual([]);
    expect(paths["/in/key"]?.post?.security).toEqual([{ "source.key": [] }]);
    expect(paths["/admin/replay"]?.post?.security).toEqual([{ admin: [] }]);
    expect(paths["/out/queue/claim"]?.post?.security).toEqual([{ pull: [] }]);
    expect(components.securitySchemes).toEqual({
      "source.bearer": { type: "http", scheme: "bearer", description: "The token of the source bearer." },
      "source.key": { type: "apiKey", in: "header", name: "X-Key", description: "The key of the source key." },
      "source.hmac": {
        type: "apiKey",
        in: "header",
        name: "X-Signature",
        description:
          "HMAC with the secret of the source hmac: the hexadecimal HmacSHA512 of `{{ timestamp }}.{{ body }}`.",
      },
      admin: { type: "http", scheme: "bearer", description: "The token of the admin routes." },
      pull: { type: "http", scheme: "bearer", description: "The token of the pull routes." },
    });
    expect(paths["/in/hmac"]?.post?.parameters?.map(({ name, required }) => [name, required])).toEqual([
      ["X-Time", true],
      ["X-Correlation-Id", false],
    ]);
  });

  test("asks for no admin credentials when admin.insecure lets everybody in", async () => {
    const config = loadWith("admin: { enabled: true, insecure: true, auth: { token: t } }");
    const { paths } = await documentOf(config);
    expect(paths["/admin/replay"]?.post?.security).toEqual([]);
    expect(paths["/admin/replay"]?.post?.responses).not.toHaveProperty("401");
  });

  test("gives every source a scheme of its own, whatever characters its name has", async () => {
    const auth = "auth: { token: t }, idempotencyKeyPath: $.id, topic: t";
    const config = loadWith(`sources: { "a/b": { path: /1, ${auth} }, "a b": { path: /2, ${auth} } }`);
    const api = await documentOf(config);
    expect(Object.keys(api.components.securitySchemes)).toEqual(["source.a_b", "source.a_b_"]);
    expect(api.paths["/inbox/2"]?.post?.security).toEqual([{ "source.a_b_": [] }]);
    expect(() => describedApi(JSON.stringify(api))).not.toThrow();
  });

  test("says where the data port is when it is not the port of the document", async () => {
    const apart = await documentOf(loadWith(EVERYTHING));
    expect(apart.paths["/in/open"]?.post?.servers?.[0]).toMatchObject({
      url: "http://{host}:{port}",
      variables: { port: { default: "8080" } },
    });
    expect(apart.paths["/health"]?.get).not.toHaveProperty("servers");
    const together = await documentOf(loadWith(""));
    expect(together.paths["/"]?.get).not.toHaveProperty("servers");
  });

  test("names the caps of the bodies: on the data port the smaller one counts for the admin routes", async () => {
    const caps = async (yaml: string) =>
      JSON.stringify((await documentOf(loadWith(yaml))).paths["/admin/replay"]?.post?.responses["413"]?.content).match(
        /\d+ bytes/g,
      );
    const admin = "admin: { enabled: true, insecure: true, maxPayloadBytes: 70 }";
    expect(new Set(await caps(`${admin}\nserver: { managementPort: 9090 }`))).toEqual(new Set(["70 bytes"]));
    expect(new Set(await caps(admin))).toEqual(new Set(["70 bytes", "1048576 bytes"]));
    expect(new Set(await caps(`${admin}\ninbox: { maxBodyBytes: 50 }`))).toEqual(new Set(["50 bytes"]));
  });

  test("knows the limits of the pull requests as the routes know them", async () => {
    const token = { claimToken: "0d0b9a6e-54b5-4c27-9a3b-7d8f6f0f2b11" };
    const read = {
      claim: (body: Buffer) => readClaim(body, 4000),
      ack: readAck,
      nack: readNack,
      extend: (body: Buffer) => readExtend(body, 4000),
    };
    const { paths, components } = await documentOf(loadWith(EVERYTHING));
    for (const [name, parse] of Object.entries(read)) {
      const body = paths[`/out/queue/${name}`]?.post?.requestBody?.content["application/json"]?.schema;
      const [, shared] = /^#\/components\/schemas\/(.*)$/.exec(String(body?.$ref)) ?? [];
      const schema = shared === undefined ? body : components.schemas[shared];
      const properties = schema?.properties as Record<string, { minimum?: number; maximum?: number; default?: number }>;
      for (const [field, { minimum, maximum, default: fallback }] of Object.entries(properties)) {
        if (minimum === undefined || maximum === undefined) continue;
        const parsed = (value?: number) => parse(Buffer.from(JSON.stringify({ ...token, [field]: value })));
        for (const value of [minimum, maximum]) expect(parsed(value)).toHaveProperty(field, value);
        for (const value of [minimum - 1, maximum + 1]) expect(() => parsed(value)).toThrow(field);
        expect(parsed()).toHaveProperty(field, fallback);
      }
    }
  });
});

describe("the check of the document", () => {
  let document: OpenApiDocument;
  beforeAll(async () => {
    document = await documentOf(loadWith(""), ["ingest"]);
  });
  const changed = (change: (copy: { paths: Record<string, { get: Record<string, unknown> }> }) => void): string => {
    const copy = JSON.parse(JSON.stringify(document)) as Parameters<typeof change>[0];
    change(copy);
    return JSON.stringify(copy);
  };
  const health = (copy: Parameters<Parameters<typeof changed>[0]>[0]) => copy.paths["/health"]?.get ?? {};

  test("refuses what is no OpenAPI, and schemas that do not compile", async () => {
    expect(() => describedApi("{}")).toThrow(/no OpenAPI 3.1 document/);
    const misspelt = changed((copy) => Object.assign(health(copy), { sumary: "x" }));
    expect(() => describedApi(misspelt)).toThrow(/additional properties/);
    const noSchema = { "200": { description: "x", content: { "application/json": { schema: { type: "text" } } } } };
    expect(() => describedApi(changed((copy) => Object.assign(health(copy), { responses: noSchema })))).toThrow();
    const lost = {
      "200": { description: "x", content: { "a/b": { schema: { $ref: "#/components/schemas/Nobody" } } } },
    };
    expect(() => describedApi(changed((copy) => Object.assign(health(copy), { responses: lost })))).toThrow(/Nobody/);
  });

  test("refuses answers that the document does not have", async () => {
    const api = describedApi(JSON.stringify(document));
    const json = { "content-type": "application/json; charset=utf-8" };
    const live =
      (status: number, text: string, headers = json) =>
      () =>
        api.check("GET", "/health/live", { status, text, headers });
    const body = '{"status":"healthy","components":{"process":{"status":"up"}}}';
    expect(live(200, body)).not.toThrow();
    expect(live(201, body)).toThrow(/201 is not in the document/);
    expect(live(200, body.replace("up", "down"))).toThrow(/does not fit its schema/);
    expect(live(200, body, { "content-type": "text/html" })).toThrow(/has the content type text\/html/);
    expect([...api.seen]).toEqual(["GET /health/live 200"]);
  });
});
