// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are placeholders of the configuration, not of JavaScript
import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import { Ajv } from "ajv";
import { CORE_SCHEMA, load as parse } from "js-yaml";
import { PACKAGED_DEFAULT } from "../../../src/config/file.ts";
import { jsonSchema } from "../../../src/config/jsonSchema.ts";
import { inspectConfig } from "../../../src/config/load.ts";
import { referencePage } from "../../../src/config/reference.ts";
import { rootSchema } from "../../../src/config/schema/index.ts";
import type { SchemaNode } from "../../../src/model/schema.ts";

const ROOT = path.resolve(import.meta.dirname, "../../..");
const EXAMPLE = readFileSync(path.join(ROOT, "deploy/svc.example.yml"), "utf8");

/** The example with its commented entries switched on. */
const FULL_EXAMPLE = EXAMPLE.replaceAll(/^( {2}| {4})# (?=\s*\w+:(?: |$))/gm, "$1");

test("the reference page is current", () => {
  const page = readFileSync(path.join(ROOT, "docs/configuration.md"), "utf8");
  expect(referencePage(page)).toBe(page);
});

describe("the JSON Schema for editors", () => {
  const ajv = new Ajv({ strict: true, strictRequired: false, allErrors: true, allowUnionTypes: true });
  const validate = ajv.compile(jsonSchema());
  const check = (yaml: string) => validate(parse(yaml, { schema: CORE_SCHEMA }));

  test.each([
    ["the example", EXAMPLE],
    ["the example with its brokers", FULL_EXAMPLE],
    ["the packaged default file", PACKAGED_DEFAULT],
    ["a placeholder for a number", "server: { httpPort: '${PORT:-8080}' }"],
    ["a source with a provider", "sources: { s: { path: /p, auth: { provider: github, secrets: ['${A}', '${B}'] } } }"],
    ["several tokens", "admin: { enabled: true, auth: { tokens: [a, b] } }"],
    ["a list of text in one value", "sources: { k: { bootstrapServers: b, topics: '${TOPICS}', groupId: g } }"],
  ])("accepts %s", (_what, yaml) => {
    check(yaml);
    expect(validate.errors ?? []).toEqual([]);
  });

  test.each([
    "serve: {}",
    "server: { httpPort: 0 }",
    "server: { httpPort: '8080' }",
    "outbox: { pollIntervalMs: 0 }",
    "outbox: { pollinterval: 5 }",
    "destinations: { d: { baseurl: http://h } }",
    "destinations: { d: { type: kafka, baseUrl: http://h } }",
    "routes: [{ destination: d }]",
    "sources: { s: { path: /p } }",
    "sources: { s: { path: /p, auth: { token: t } } }",
    "sources: { s: { path: /p, auth: { provider: gihub, secret: s } } }",
    "admin: { auth: { headerName: X } }",
    "retention: { outbox: { policy: age } }",
    "retention: { outbox: { maxAge: 30 days } }",
  ])("refuses %s", (yaml) => {
    expect(check(yaml)).toBe(false);
  });
});

describe("the example file", () => {
  const environment = { RABBITMQ_PASSWORD: "p" };
  const readFile = (yaml: string) => (file: string) => (file === "svc.yml" ? yaml : "secret");

  test.each([
    ["unchanged", EXAMPLE],
    ["with its brokers", FULL_EXAMPLE],
  ])("loads %s, strictly", (_how, yaml) => {
    const found = inspectConfig({ env: environment, file: "svc.yml", readFile: readFile(yaml), strict: true });
    expect(found.problems).toEqual([]);
  });

  test("with its brokers has every kind", () => {
    const { loaded } = inspectConfig({ env: environment, file: "svc.yml", readFile: readFile(FULL_EXAMPLE) });
    const kinds = (entries: object) => new Set(Object.values(entries).map((entry: { kind: string }) => entry.kind));
    for (const entries of [loaded?.config.sources, loaded?.config.destinations]) {
      expect(kinds(entries ?? {})).toEqual(new Set(["http", "rabbitmq", "kafka", "nats"]));
    }
  });

  test("names the JSON Schema for editors first", () => {
    expect(EXAMPLE).toMatch(/^# yaml-language-server: \$schema=\.\.\/dist\/config\.schema\.json\n/);
  });
});

describe("the reference page", () => {
  test("has every key of the schema with a description", () => {
    const page = readFileSync(path.join(ROOT, "docs/configuration.md"), "utf8");
    for (const [name, node] of leaves(rootSchema, "")) {
      expect([name, node.description ?? ""]).toEqual([name, expect.stringMatching(/\w.*\.$/s)]);
      expect(page).toContain(node.description);
      expect(page).toMatch(new RegExp(`\`[^\`]*${name.replaceAll(/[[\]]/g, "\\$&")}\``));
    }
  });
});

/** Every key that holds a value, by its last name. */
function leaves(node: SchemaNode, name: string): [string, SchemaNode][] {
  if (node.kinds !== undefined) return Object.values(node.kinds).flatMap((kind) => leaves(kind, name));
  if (node.properties !== undefined)
    return Object.entries(node.properties).flatMap(([key, child]) => leaves(child, key));
  const inside = node.items ?? node.additionalProperties;
  if (inside !== undefined && (inside.properties ?? inside.kinds) !== undefined) return leaves(inside, name);
  return [[name, node]];
}
