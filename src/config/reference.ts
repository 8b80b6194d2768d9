import { inboundAuthSchema } from "../adapters/sources/http/schema.ts";
import type { SchemaNode, Syntax } from "../model/schema.ts";
import { attributeHeadersSchema, filterSchema, transformSchema } from "./schema/blocks.ts";
import { rootSchema } from "./schema/index.ts";

/** Blocks that stand in several places and are described once, with their heading. */
const SHARED: readonly { readonly title: string; readonly node: SchemaNode }[] = [
  { title: "Transform block", node: transformSchema },
  { title: "Header filter", node: filterSchema },
  { title: "Attribute headers", node: attributeHeadersSchema },
  { title: "Inbound auth", node: inboundAuthSchema },
];

const SYNTAX_TYPES: Readonly<Partial<Record<Syntax, string>>> = {
  identifier: "SQL identifier",
  captureName: "name (lower-case letters, digits, `_`)",
  headerName: "header name",
  httpUrl: "URL",
  urlPath: "path",
  jsonPath: "JSONPath",
  listPath: "JSONPath",
  topicPattern: "topic glob",
  topicTemplate: "template",
  address: "name or template",
  routingKey: "template",
  expression: "expression",
};

/** Separates the hand-written beginning of the page from the tables. */
const MARKER = `<!-- From here on generated from the schema by "npm run generate": change the schema.ts of src/config and src/adapters. -->`;

/** The reference page, with the tables of the schema. @param present the page so far, which keeps its beginning */
export function referencePage(present = ""): string {
  const [beginning = ""] = present.split(MARKER, 1);
  const sections = Object.entries(rootSchema.properties ?? {}).map(([name, node]) => section(name, node));
  const shared = SHARED.map(({ title, node }) => `## ${title}\n\n${blockTables("", node, "###")}`);
  const parts = [beginning, MARKER, ...sections, ...shared].map((part) => part.trim());
  return `${parts.join("\n\n").trim()}\n`;
}

function section(name: string, node: SchemaNode): string {
  const heading = `## ${name}\n\n${node.description}`;
  const entry = node.additionalProperties ?? node.items;
  const body = blockTables(entry === undefined ? `${name}.` : "", entry ?? node, "###");
  return `${heading}\n\n${body}`;
}

/** A table of a block's keys; or a heading and a table for each kind, below the keys that several kinds share. */
function blockTables(prefix: string, node: SchemaNode, heading: string): string {
  const keysTable = (block: SchemaNode) => table(["Key", "Type", "Default", "Meaning"], keyRows(prefix, block));
  if (node.kinds === undefined) return keysTable(node);
  const kinds = Object.entries(node.kinds);
  const shared = sharedKeys(node.kinds);
  const tables = [...shared].map(([names, properties]) => {
    const title = names.length === kinds.length ? "Every kind" : names.join(", ");
    return `${heading} ${title}\n\n${keysTable({ properties })}`;
  });
  for (const [kind, schema] of kinds) {
    const isShared = (key: string) => [...shared].some(([names, keys]) => names.includes(kind) && key in keys);
    const rest = Object.entries(schema.properties ?? {}).filter(([key]) => !isShared(key));
    const isRepeated = ([key, property]: [string, SchemaNode]) =>
      schema.required?.includes(key) !== true && isOfDestination(kind, node, property);
    const own = rest.filter((entry) => !isRepeated(entry));
    const repeated = rest.filter(isRepeated).map(([key]) => code(key));
    const text = keysTable({ ...schema, properties: Object.fromEntries(own) });
    tables.push(`${heading} ${kind}\n\n${schema.description ?? ""}\n\n${text}`);
    if (repeated.length > 0) tables.push(`As for the [destination](#${kind}): ${repeated.join(", ")}.`);
  }
  return tables.join("\n\n");
}

/** Whether the destination of its kind has a key of a source, too, such as the credentials of a broker. */
function isOfDestination(kind: string, node: SchemaNode, property: SchemaNode): boolean {
  const destinations = rootSchema.properties?.destinations?.additionalProperties;
  const { properties = {} } = destinations?.kinds?.[kind] ?? {};
  return node !== destinations && Object.values(properties).includes(property);
}

/**
 * The optional keys that several kinds share with one meaning, by the names of those kinds; those of most kinds first.
 */
function sharedKeys(kinds: Readonly<Record<string, SchemaNode>>): ReadonlyMap<readonly string[], Properties> {
  const byKinds = new Map<string, [names: readonly string[], keys: Record<string, SchemaNode>]>();
  const keyOf = new Map<SchemaNode, string>();
  for (const { properties } of Object.values(kinds))
    for (const [key, node] of Object.entries(properties ?? {})) keyOf.set(node, key);
  for (const [node, key] of keyOf) {
    const names = Object.keys(kinds).filter((name) => kinds[name]?.properties?.[key] === node);
    if (names.length < 2) continue;
    const entry = byKinds.get(names.join()) ?? [names, {}];
    entry[1][key] = node;
    byKinds.set(names.join(), entry);
  }
  return new Map([...byKinds.values()].sort(([one], [other]) => other.length - one.length));
}

type Properties = NonNullable<SchemaNode["properties"]>;

function keyRows(prefix: string, node: SchemaNode): string[][] {
  return Object.entries(node.properties ?? {}).flatMap(([key, property]) => {
    // The first of several alternatives is the usual one; the others say what they replace.
    const required = node.required?.includes(key) === true || node.requiredAny?.[0] === key;
    const shared = SHARED.find(({ node: block }) => isSame(block, property));
    const row = [code(prefix + key), typeText(property), defaultText(property, required), property.description ?? ""];
    if (shared !== undefined) {
      row[2] = property.default === undefined ? "none" : "see there";
      row[1] = `[${shared.title.toLowerCase()}](#${shared.title.toLowerCase().replaceAll(" ", "-")})`;
      return [row];
    }
    if (property.kinds !== undefined) {
      const kinds = Object.entries(property.kinds).flatMap(([kind, schema]) =>
        keyRows(`${prefix}${key}.`, schema).map(([name = "", type = "", preset = "", text = ""]) => [
          name,
          type,
          preset,
          `(${kind}) ${text}`,
        ]),
      );
      return [row, ...kinds];
    }
    if (property.properties !== undefined && describedAlike(property)) return [alikeRow(`${prefix}${key}`, property)];
    if (property.properties !== undefined) {
      const inside = keyRows(`${prefix}${key}.`, property);
      // A block that may be left out has a meaning of its own: its presence.
      return property.default === undefined ? [row, ...inside] : inside;
    }
    if (property.items?.properties !== undefined && isListedAbove(key, node)) return [row];
    if (property.items?.properties !== undefined) return [row, ...keyRows(`${prefix}${key}[].`, property.items)];
    return [row];
  });
}

/** Whether a list holds the same blocks as one before it: the keys of those are not repeated. */
function isListedAbove(key: string, { properties = {} }: SchemaNode): boolean {
  const before = Object.entries(properties).slice(0, Object.keys(properties).indexOf(key));
  return before.some(([, { items }]) => items?.properties !== undefined && items === properties[key]?.items);
}

/** Whether all keys of a block mean the same, as the columns of a table do. */
function describedAlike({ properties = {} }: SchemaNode): boolean {
  const nodes = Object.values(properties);
  return nodes.length > 1 && new Set(nodes.map(({ description }) => description)).size === 1;
}

/** One row that lists all keys of such a block; brackets hold a default other than the key in snake case. */
function alikeRow(path: string, { properties = {} }: SchemaNode): string[] {
  const [first] = Object.values(properties);
  const inSnakeCase = (key: string) => key.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const keys = Object.entries(properties).map(([key, node]) =>
    node.default === inSnakeCase(key) ? code(key) : `${code(key)} (${defaultText(node, false)})`,
  );
  return [
    code(`${path}.<key>`),
    first === undefined ? "" : typeText(first),
    "the key in snake case",
    `${first?.description} Keys: ${keys.join(", ")}.`,
  ];
}

/** Uses of a shared block differ in their descriptions only. */
function isSame(block: SchemaNode, use: SchemaNode): boolean {
  return block.kinds === undefined ? block.properties === use.properties : block.kinds === use.kinds;
}

function typeText(node: SchemaNode): string {
  if (node.kinds !== undefined) return `block: ${Object.keys(node.kinds).join(", ")}`;
  if (node.secret === true) return "secret";
  if (node.duration === true) return "duration";
  if (node.enum !== undefined) return node.enum.map(code).join(", ");
  if (node.unit === "ms") return `ms${range(node)}`;
  if (node.type === "integer") return `integer${range(node)}`;
  if (node.type === "number") return `number${numberRange(node)}`;
  if (node.items?.whole === true) return `${typeText(node.items)} or list of them`;
  if (node.orCount !== undefined) return `integer 1..${node.orCount} or list of ${itemsText(node.items ?? {})}`;
  if (node.type === "array") return `list of ${itemsText(node.items ?? {})}`;
  if (node.orKey !== undefined) return `${typeText(node.properties?.[node.orKey] ?? {})} or block`;
  if (node.type === "object") return node.properties === undefined ? "map of text to text" : "block";
  if (node.type === "boolean") return "boolean";
  return (node.syntax && SYNTAX_TYPES[node.syntax]) ?? "text";
}

function itemsText(items: SchemaNode): string {
  if (items.duration === true) return "durations";
  if (items.orKey !== undefined) return `${items.orKey}s or blocks`;
  if (items.secret === true) return "secrets";
  if (items.type === "integer") return `integers${range(items)}`;
  return items.type === "string" ? "text" : "blocks";
}

function range(node: SchemaNode): string {
  if (node.maximum !== undefined) return ` ${node.minimum}..${node.maximum}`;
  if (node.exclusiveMinimum !== undefined) return ` > ${node.exclusiveMinimum}`;
  if (node.minimum === undefined || node.minimum === 0) return "";
  return node.minimum === 1 ? " > 0" : ` >= ${node.minimum}`;
}

function numberRange(node: SchemaNode): string {
  const above = node.exclusiveMinimum === undefined ? "" : ` > ${node.exclusiveMinimum}`;
  const from = node.minimum === undefined ? "" : ` >= ${node.minimum}`;
  return `${above}${from}${node.maximum === undefined ? "" : `, <= ${node.maximum}`}`;
}

function defaultText(node: SchemaNode, required: boolean): string {
  if (required) return "**required**";
  if (node.default === undefined) return node.defaultText ?? "none";
  if (node.items?.whole === true) return (node.default as readonly string[]).map(code).join(", ");
  if (node.default === "" || (typeof node.default === "object" && node.default !== null)) return "empty";
  return code(String(node.default));
}

function code(text: string): string {
  return `\`${text}\``;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
