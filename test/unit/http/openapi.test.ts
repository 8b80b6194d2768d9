import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "@jest/globals";
import { OPERATIONS } from "../../../src/model/httpOperations.ts";
import type { Role } from "../../../src/model/roles.ts";
import { describedApi } from "../../support/describedApi.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { loadWith } from "../config/support.ts";
import { documentOf, EVERYTHING, routesOf } from "./routesOf.ts";

failOnLeaks();

/** Without what may change freely: descriptions, examples and the order of alternatives. */
function contractOf(value: unknown, key = ""): unknown {
  if (Array.isArray(value)) {
    const items = value.map((item) => contractOf(item));
    return key === "anyOf" ? items.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)) : items;
  }
  if (typeof value !== "object" || value === null) return value;
  const members = Object.entries(value).filter(([name, member]) => {
    if (name === "examples" || name === "parameters") return name === "parameters" && member.length > 0;
    return typeof member !== "string" || (name !== "description" && name !== "summary");
  });
  return Object.fromEntries(members.sort().map(([name, member]) => [name, contractOf(member, name)]));
}

/** A line for each operation, schema and security scheme: its name and its JSON. */
const FILE = fileURLToPath(new URL("openApiContract.txt", import.meta.url));

/** Clients are generated from the document: a change of its contract is made on purpose, with `UPDATE_DOCS=1`. */
test("the OpenAPI document keeps its contract", async () => {
  const { paths, components, ...rest } = await documentOf(loadWith(EVERYTHING));
  const operations = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const),
  );
  const { schemas, securitySchemes } = components;
  const parts = [["document", rest], ...operations, ...Object.entries({ ...schemas, ...securitySchemes })] as const;
  const lines = parts.map(([name, part]) => `${name} ${JSON.stringify(contractOf(part))}\n`);
  if (process.env.UPDATE_DOCS === "1") writeFileSync(FILE, lines.join(""));
  const read = (text: string) =>
    Object.fromEntries(
      Array.from(text.matchAll(/^(.+?) (\{.*)$/gm), ([, name, json = ""]) => [name, JSON.parse(json)]),
    );
  expect(read(lines.join(""))).toEqual(read(readFileSync(FILE, "utf8")));
});

describe("the OpenAPI document", () => {
  test("has schemas that compile, and examples that fit them", async () => {
    const api = describedApi(JSON.stringify(await documentOf(loadWith(EVERYTHING))));
    expect(api.wrongExamples()).toEqual([]);
  });

  test.each<[string, readonly Role[], RegExp]>([
    ["", ["ingest", "relay", "poller"], /^\/($|health|metrics|openapi)/],
    [EVERYTHING, ["ingest"], /^\/($|health|metrics|openapi|in\/|out\/)/],
    [EVERYTHING, ["relay", "poller"], /^\/($|health|metrics|openapi)/],
    [EVERYTHING, ["admin"], /^\/($|health|metrics|openapi|admin\/|console)/],
  ])("has the routes of the process: %#", async (yaml, roles, own) => {
    const pathsOf = async (...parameters: Parameters<typeof documentOf>) =>
      Object.keys((await documentOf(...parameters)).paths).sort();
    const all = await pathsOf(loadWith(EVERYTHING));
    expect(await pathsOf(loadWith(yaml), roles)).toEqual(all.filter((path) => own.test(path)));
  });

  test("has an entry for every operation of the route table", async () => {
    const served = (await routesOf(loadWith(EVERYTHING))).map(({ operationId }) => operationId);
    const missing = Object.keys(OPERATIONS).filter(
      (id) => !served.some((known) => known === id || known.startsWith(`${id}_`)),
    );
    expect(missing).toEqual([]);
  });

  test("names every path of a list", async () => {
    const lists = "idempotencyKeyPath: [$.id, $.event.id], eventTypePath: [$.type, $.event.type], consumption: pull";
    const { paths } = await documentOf(loadWith(`sources: { s: { path: /s, ${lists} } }`));
    const { description } = paths["/inbox/s"]?.post ?? {};
    expect(description).toContain("The idempotency key is the value at `$.id`, else the value at `$.event.id`:");
    expect(description).toContain("The event type is the value at `$.type`, else the value at `$.event.type`.");
  });

  test("does not require in a header what a source may compute, and has the answer while it cannot", async () => {
    const computed =
      "idempotencyKeyHeader: X-Id, idempotencyKeyExpression: a, eventTypePath: $.type, eventTypeExpression: b, consumption: pull";
    const { paths } = await documentOf(loadWith(`sources: { s: { path: /s, ${computed} } }`));
    const { description, parameters = [], responses } = paths["/inbox/s"]?.post ?? {};
    expect(description).toContain("is the header `X-Id`, else what the source computes from body and headers:");
    expect(parameters).toContainEqual(expect.objectContaining({ name: "X-Id", required: false }));
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

  test("says what a signature signs", async () => {
    const { securitySchemes } = (await documentOf(loadWith(EVERYTHING))).components;
    expect(securitySchemes["source.hmac"]?.description).toBe(
      "HMAC with the secret of the source hmac: the hexadecimal HmacSHA512 of `{{ timestamp }}.{{ body }}`.",
    );
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
});
