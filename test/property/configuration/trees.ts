import fc, { type Arbitrary } from "fast-check";
import { rootSchema } from "../../../src/config/schema/index.ts";
import type { SchemaNode, Syntax } from "../../../src/model/schema.ts";
import { anyText } from "../text.ts";

/** Part of every secret that is generated: nothing that is printed may hold it. */
export const MARKER = "Z5MARKER";

/** Text for each syntax that passes its check. */
const SYNTAX_TEXTS: Readonly<Record<Syntax, readonly string[]>> = {
  notBlank: ["a", "a b", "ä: #1"],
  identifier: ["outbox_2", "_a"],
  bindAddress: ["127.0.0.1", "[::1]", "fe80::1%eth0", "localhost"],
  captureName: ["svc_2"],
  headerName: ["X-Key", "x!y"],
  traceUrl: ["https://traces.example.com/{{ traceId }}", "http://h/t?id={{traceId}}"],
  httpUrl: ["https://h.example:8443/a", "http://[::1]"],
  proxy: ["http://u:p@proxy.example:3128", "none"],
  urlPath: ["/a/b", "/", "a"],
  pathTemplate: ["/a/b", "/", "a", "/o/{{ key }}"],
  jsonPath: ["$.id", "$['a b'][0]", "$"],
  listPath: ["$[*]", "$.a['b c'][*]"],
  topicPattern: ["orders.*", "**", "a"],
  topicTemplate: ["orders", "{{ source }}.x"],
  address: ["{{ topic }}", "name", "{{payload.a}}"],
  routingKey: ["{{ anything }}", ""],
  expression: ["$", '{"a": b}'],
};
/** Texts that YAML, placeholders or masking could take for something else. */
const ODD_TEXTS = [
  "",
  " ",
  "no",
  "null",
  "~",
  "0123",
  "1e3",
  "- a",
  "a: b",
  "#",
  "'",
  '"',
  "*a",
  "&a",
  "!a",
  "\u{1F600}",
  "a\nb",
  "\u0085",
  ...["{X}", "{X:-y}"].map((placeholder) => `$$${placeholder}`),
];
const ENTRY_NAMES = ["a", "b-2", "Ü", "a.b", "1", "no", "constructor"];
const HEADER_NAMES = ["X-Plain", "Authorization", "x-api-key", "toString"];

export interface TreeOptions {
  /** One node in so many is something else than the schema says; 0 for none. */
  readonly strayOneIn: number;
  /** Keys that are left out, by their path without list indexes and names of entries. */
  readonly without: ReadonlySet<string>;
  /** Keys that always stand there. */
  readonly always: ReadonlySet<string>;
}

/** Configuration trees as they stand in a file; a key with `undefined` does not stand there. */
export function trees(options: TreeOptions): Arbitrary<Readonly<Record<string, unknown>>> {
  return nodeValues(rootSchema, "", options) as Arbitrary<Readonly<Record<string, unknown>>>;
}

function nodeValues(node: SchemaNode, path: string, options: TreeOptions): Arbitrary<unknown> {
  const right = rightValues(node, path, options);
  if (options.strayOneIn === 0 || path === "") return right;
  return fc.oneof({ weight: options.strayOneIn - 1, arbitrary: right }, { weight: 1, arbitrary: strays(node) });
}

/** Any value but the expected one; a secret stays secret also in a wrong place. */
function strays(node: SchemaNode): Arbitrary<unknown> {
  const text = node.secret === true ? MARKER : "stray";
  return fc.oneof(
    fc.constantFrom<unknown>(
      null,
      "",
      true,
      -1,
      1.5,
      1e21,
      [],
      {},
      [null],
      [text],
      { [text === MARKER ? "a" : text]: text },
      [[text]],
    ),
    node.secret === true ? fc.constant(MARKER) : anyText(),
  );
}

function rightValues(node: SchemaNode, path: string, options: TreeOptions): Arbitrary<unknown> {
  if (node.kinds !== undefined) {
    return fc.oneof(...Object.values(node.kinds).map((kind) => rightValues(kind, path, options)));
  }
  if (node.properties !== undefined) return records(node, path, options);
  if (node.additionalProperties !== undefined) return maps(node.additionalProperties, path, options);
  if (path === "database.url")
    return fc.constantFrom("jdbc:postgresql://h:5432/d?ssl=true", "jdbc:postgresql://h1,h2:1/d");
  if (node.items !== undefined) {
    return fc.array(nodeValues(node.items, path, options), { minLength: node.minItems ?? 0, maxLength: 3 });
  }
  return leaves(node, path.slice(path.lastIndexOf(".") + 1));
}

function records(node: SchemaNode, path: string, options: TreeOptions): Arbitrary<unknown> {
  const properties = Object.entries(node.properties ?? {}).flatMap(([key, child]): [string, Arbitrary<unknown>][] => {
    const own = path === "" ? key : `${path}.${key}`;
    if (options.without.has(own)) return [];
    const value = nodeValues(child, own, options);
    const required = node.required?.includes(key) === true || path === "" || options.always.has(own);
    return [[key, required ? value : seldom(value, undefined)]];
  });
  const strange = seldom(fc.constantFrom<object>({ pasword: MARKER }, { "": 1 }, { "a b": [] }), {});
  const record = fc.record(Object.fromEntries(properties));
  if (options.strayOneIn === 0) return record;
  return fc.tuple(record, strange).map(([known, unknown]) => ({ ...known, ...unknown }));
}

/** Few keys stand in a file, so that few of them contradict each other. */
function seldom<T, U>(value: Arbitrary<T>, otherwise: U): Arbitrary<T | U> {
  return fc.oneof({ weight: 4, arbitrary: fc.constant(otherwise) }, { weight: 1, arbitrary: value });
}

function maps(value: SchemaNode, path: string, options: TreeOptions): Arbitrary<unknown> {
  if (value.kinds !== undefined)
    return fc.dictionary(fc.constantFrom(...ENTRY_NAMES), nodeValues(value, path, options), { maxKeys: 3 });
  const text = fc.constantFrom(...ODD_TEXTS);
  return fc
    .dictionary(fc.constantFrom(...HEADER_NAMES), text, { maxKeys: 3 })
    .map((map) =>
      Object.fromEntries(Object.entries(map).map(([name, item]) => [name, /auth|key/i.test(name) ? MARKER : item])),
    );
}

function leaves(node: SchemaNode, key: string): Arbitrary<unknown> {
  if (node.secret === true) return fc.constantFrom(MARKER, `${MARKER} "'#\\`, `Bearer ${MARKER}`);
  if (node.enum !== undefined) return fc.constantFrom(...node.enum);
  if (node.type === "boolean") return fc.constantFrom<unknown>(true, false, "true");
  if (node.type === "integer") {
    const min = node.minimum ?? (node.exclusiveMinimum ?? 0) + 1;
    return fc.integer({ min, max: Math.max(min, Math.min(node.maximum ?? 100_000, 100_000)) });
  }
  if (node.duration === true) return fc.constantFrom("1s", "90m", "24h", "7d");
  const texts = TEXTS_BY_KEY[key];
  if (texts !== undefined) return fc.constantFrom(...texts);
  if (node.syntax !== undefined) return fc.constantFrom(...SYNTAX_TEXTS[node.syntax]);
  return fc.constantFrom("text", ...ODD_TEXTS);
}

/** Lists of servers, and URLs that may hold a password. */
const TEXTS_BY_KEY: Readonly<Record<string, readonly string[] | undefined>> = {
  url: [`amqp://u:${MARKER}@h:5672/v`, "amqp://h"],
  connectionUrl: [`amqp://u:${MARKER}@h:5672/v`, "amqps://h/%2F"],
  servers: ["nats://h:4222,tls://h2", "h:4222"],
  bootstrapServers: ["h:9092", "h1:9092, h2:9093"],
};
