import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "@jest/globals";
import { loadWith } from "../config/support.ts";
import { documentOf } from "./routesOf.ts";

/** Every route, with each kind of credentials and of source. */
const CONFIG = `
server: { managementPort: 9090 }
inbox:
  basePath: /in
  maxBodyBytes: 5000
  pull: { enabled: true, basePath: /out, leaseMs: 4000, auth: { key: x } }
sources:
  open: { path: /open, idempotencyKeyPath: $.id, topic: t }
  bearer: { path: /bearer, idempotencyKeyPath: "$.a['b c'][1]", aggregateIdPath: $.a.d, topic: t, auth: { token: x } }
  key: { path: /key, idempotencyKeyPath: "$[-1]", topic: t, auth: { key: x, headerName: X-Key } }
  hmac:
    path: /hmac
    idempotencyKeyPath: $.id
    eventTypePath: $.type
    aggregateIdPath: $.customer
    topic: t
    auth: { secret: x, algorithm: HmacSHA512, signaturePrefix: "", timestampHeader: X-Time }
    filter: { require: [{ header: X-Kind, exists: true }] }
    rateLimit: { requestsPerMinute: 7 }
    transform: { expression: $ }
  github: { path: /github, auth: { provider: github, secrets: [x, y] } }
  mailgun: { path: /mailgun, auth: { provider: mailgun, secret: x }, idempotencyKeyPath: $.event-data.id }
  "fetched/by hand": { path: /fetched, idempotencyKeyPath: $.id, consumption: pull }
destinations: { d: { baseUrl: http://h } }
routes: [{ topicPattern: "**", destination: d }]
admin: { enabled: true, console: true, auth: { token: x }, maxPayloadBytes: 70, maxTransformTimeoutMs: 321 }
`;

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

/** Clients are generated from the document: whoever changes its contract does so on purpose, with `UPDATE_DOCS=1`. */
test("the OpenAPI document keeps its contract", async () => {
  const { paths, components, ...rest } = await documentOf(loadWith(CONFIG));
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
