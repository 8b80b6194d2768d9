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
  identifier: "identifier",
  captureName: "name",
  httpUrl: "URL",
  urlPath: "path",
  jsonPath: "JSONPath",
  listPath: "JSONPath",
  topicPattern: "topic glob",
  topicTemplate: "template",
  address: "template",
  routingKey: "template",
  expression: "expression",
};

/** Longer lists of values are on a page of their own, to which the description links. */
const MOST_VALUES = 10;

/** Separates the hand-written beginning of the page from the generated lists. */
const MARKER = `<!-- From here on generated from the schema by "npm run generate": change the schema.ts of src/config and src/adapters. -->`;

/** The reference page, with the keys of the schema. @param present the page so far, which keeps its beginning */
export function referencePage(present = ""): string {
  const [beginning = ""] = present.split(MARKER, 1);
  const sections = Object.entries(rootSchema.properties ?? {}).map(([name, node]) => section(name, node));
  const shared = SHARED.map(({ title, node }) => `## ${title}\n\n${blockLists("", node, "###")}`);
  const parts = [beginning, MARKER, ...sections, ...shared].map((part) => part.trim());
  return `${parts.join("\n\n").trim()}\n`;
}

function section(name: string, node: SchemaNode): string {
  const heading = `## ${name}\n\n${node.description}`;
  const entry = node.additionalProperties ?? node.items;
  const body = blockLists(entry === undefined ? `${name}.` : "", entry ?? node, "###");
  return `${heading}\n\n${body}`;
}

/** A list of a block's keys; or a heading and a list for each kind, below the keys that several kinds share. */
function blockLists(prefix: string, node: SchemaNode, heading: string): string {
  const keysList = (block: SchemaNode) => listOf(keyRows(prefix, block));
  if (node.kinds === undefined) return keysList(node);
  const kinds = Object.entries(node.kinds);
  const shared = sharedKeys(node.kinds);
  const lists = [...shared].map(([names, properties]) => {
    const title = names.length === kinds.length ? "Every kind" : names.join(", ");
    return `${heading} ${title}\n\n${keysList({ properties })}`;
  });
  for (const [kind, schema] of kinds) {
    const isShared = (key: string) => [...shared].some(([names, keys]) => names.includes(kind) && key in keys);
    const rest = Object.entries(schema.properties ?? {}).filter(([key]) => !isShared(key));
    const isRepeated = ([key, property]: [string, SchemaNode]) =>
      schema.required?.includes(key) !== true && isOfDestination(kind, node, property);
    const own = rest.filter((entry) => !isRepeated(entry));
    const repeated = rest.filter(isRepeated).map(([key]) => code(key));
    const text = keysList({ ...schema, properties: Object.fromEntries(own) });
    lists.push(`${heading} ${kind}\n\n${schema.description ?? ""}\n\n${text}`);
    if (repeated.length > 0) lists.push(`As for the [destination](#${kind}): ${repeated.join(", ")}.`);
  }
  return lists.join("\n\n");
}

/** Whether the destination of its kind has a key of a source, too, such as the credentials of a broker. */
function isOfDestination(kind: string, node: SchemaNode, property: SchemaNode): boolean {
  const destinations = rootSchema.properties?.destinations?.additionalProperties;
  const { properties = {} } = destinations?.kinds?.[kind] ?? {};
  return node !== destinations && Object.values(properties).includes(property);
}

/** Optional keys that several kinds share with one meaning, two at least, by the names of these kinds; of most first. */
function sharedKeys(kinds: Readonly<Record<string, SchemaNode>>): ReadonlyMap<readonly string[], Properties> {
  const byKinds = new Map<string, [names: readonly string[], keys: Record<string, SchemaNode>]>();
  const meanings = new Map<string, readonly [key: string, node: SchemaNode, names: string[]]>();
  for (const [name, { properties = {}, required }] of Object.entries(kinds)) {
    for (const [key, node] of Object.entries(properties)) {
      if (required?.includes(key) === true) continue;
      const meaning = listOf(keyRows("", { properties: { [key]: node } }));
      const [, , names] = meanings.get(meaning) ?? [key, node, []];
      meanings.set(meaning, [key, node, [...names, name]]);
    }
  }
  for (const [key, node, names] of meanings.values()) {
    if (names.length < 2) continue;
    const entry = byKinds.get(names.join()) ?? [names, {}];
    entry[1][key] = node;
    byKinds.set(names.join(), entry);
  }
  const groups = [...byKinds.values()].filter(([, keys]) => Object.keys(keys).length > 1);
  return new Map(groups.sort(([one], [other]) => other.length - one.length));
}

type Properties = NonNullable<SchemaNode["properties"]>;

/** An entry of a list. Details are type and default, as far as they say something. */
interface Row {
  readonly keys: readonly string[];
  readonly details: readonly string[];
  readonly text: string;
}

function keyRows(prefix: string, node: SchemaNode): Row[] {
  return Object.entries(node.properties ?? {}).flatMap(([key, property]) => {
    // The first of several alternatives is the usual one; the others say what they replace.
    const required = node.required?.includes(key) === true || node.requiredAny?.[0] === key;
    const shared = SHARED.find(({ node: block }) => isSame(block, property));
    const path = prefix + key;
    const type = isEvident(key, property) ? "" : typeText(property);
    const row = rowOf(path, [type, defaultText(property, required)], property.description);
    if (shared !== undefined) return [{ ...row, details: [link(shared.title)] }];
    if (property.kinds !== undefined) {
      const kinds = Object.entries(property.kinds).flatMap(([kind, schema]) =>
        keyRows(`${path}.`, schema).map((inner) => ({ ...inner, details: [kind, ...inner.details] })),
      );
      return [row, ...kinds];
    }
    if (property.properties !== undefined && describedAlike(property)) return [alikeRow(path, property)];
    if (property.properties !== undefined) {
      const inside = insideRows(`${path}.`, property);
      // A block that may be left out has a meaning of its own: its presence.
      return property.default === undefined ? [row, ...inside] : inside;
    }
    if (property.items?.properties !== undefined && isListedAbove(key, node)) return [row];
    if (property.items?.properties !== undefined) return [row, ...insideRows(`${path}[].`, property.items)];
    return [row];
  });
}

function rowOf(path: string, details: readonly string[], text = ""): Row {
  return { keys: [path], details: details.filter((detail) => detail !== ""), text };
}

/** The keys of an inner block; the ones of a shared block in one entry. */
function insideRows(prefix: string, node: SchemaNode): Row[] {
  const { properties = {}, required } = node;
  for (const { title, node: block } of SHARED) {
    const same = Object.keys(properties).filter((key) => properties[key] === block.properties?.[key]);
    if (same.length < 2 || same.length === Object.keys(properties).length) continue;
    const rest = Object.entries(properties).filter(([key]) => !same.includes(key));
    const keys = same.map((key) => prefix + key);
    return [
      { keys, details: [], text: `As in a ${link(title)}.` },
      ...keyRows(prefix, { properties: Object.fromEntries(rest), ...(required && { required }) }),
    ];
  }
  return keyRows(prefix, node);
}

/** Rows in which the keys of a block that mean the same as keys of an earlier block have one entry. */
function folded(rows: readonly Row[]): Row[] {
  const first = new Map<string, string>();
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const [key = ""] = row.keys;
    const meaning = [nameOf(key), ...row.details, row.text].join("\n");
    const block = blockOf(key);
    const above = first.get(meaning) ?? block;
    first.set(meaning, above);
    const group = `${block}\n${above}`;
    if (above !== block) groups.set(group, [...(groups.get(group) ?? []), row]);
  }
  const entries = new Map<Row, Row | undefined>();
  for (const [group, [row, ...others]] of groups) {
    if (row === undefined || others.length === 0) continue;
    const [, above = ""] = group.split("\n");
    const keys = [row, ...others].flatMap((each) => each.keys);
    for (const other of others) entries.set(other, undefined);
    entries.set(row, { keys, details: [], text: above === "" ? "As above." : `As in ${code(above)}.` });
  }
  return rows.flatMap((row) => (entries.has(row) ? (entries.get(row) ?? []) : row));
}

/** Rows in which neighbours that say the same have one entry. */
function joined(rows: readonly Row[]): Row[] {
  const entries: Row[] = [];
  const meaning = ({ details, text }: Row) => [...details, text].join("\n");
  for (const row of rows) {
    const last = entries.at(-1);
    if (last === undefined || meaning(last) !== meaning(row)) entries.push(row);
    else entries.splice(-1, 1, { ...last, keys: [...last.keys, ...row.keys] });
  }
  return entries;
}

const nameOf = (key: string) => key.split(".").at(-1) ?? key;
const blockOf = (key: string) => key.split(".").slice(0, -1).join(".");

/** Whether a list holds the same blocks as one before it: the keys of those are not repeated. */
function isListedAbove(key: string, { properties = {} }: SchemaNode): boolean {
  const before = Object.entries(properties).slice(0, Object.keys(properties).indexOf(key));
  return before.some(([, { items }]) => items?.properties !== undefined && items === properties[key]?.items);
}

/** Whether all keys of a block mean the same, as the column names of a table. */
function describedAlike({ properties = {} }: SchemaNode): boolean {
  const nodes = Object.values(properties);
  return nodes.length > 1 && new Set(nodes.map(({ description }) => description)).size === 1;
}

/** One row that lists all keys of such a block; brackets hold a default other than the key in snake case. */
function alikeRow(path: string, { properties = {} }: SchemaNode): Row {
  const [first = {}] = Object.values(properties);
  const inSnakeCase = (key: string) => key.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const keys = Object.entries(properties).map(([key, node]) =>
    node.default === inSnakeCase(key) ? code(key) : `${code(key)} (${code(String(node.default))})`,
  );
  const text = `${first.description} Keys: ${keys.join(", ")}.`;
  return rowOf(`${path}.<key>`, [typeText(first), "default the key in snake case"], text);
}

/** Uses of a shared block differ in their descriptions only. */
function isSame(block: SchemaNode, use: SchemaNode): boolean {
  return block.kinds === undefined ? block.properties === use.properties : block.kinds === use.kinds;
}

function typeText(node: SchemaNode): string {
  if (node.kinds !== undefined) return `${Object.keys(node.kinds).join(", ")}`;
  if (node.secret === true) return "secret";
  if (node.duration === true) return "duration";
  if (node.enum !== undefined) return node.enum.map(code).join(", ");
  if (node.unit === "ms") return `ms${range(node)}`;
  if (node.type === "integer") return `integer${range(node)}`;
  if (node.type === "number") return `number${numberRange(node)}`;
  if (node.items?.whole === true) return `${typeText(node.items)} or list`;
  if (node.orCount !== undefined) return `integer 1..${node.orCount} or list`;
  if (node.type === "array") return `list of ${itemsText(node.items ?? {})}`;
  if (node.orKey !== undefined) return `${typeText(node.properties?.[node.orKey] ?? {})} or block`;
  if (node.type === "object") return node.properties === undefined ? "map" : "";
  if (node.type === "boolean") return "boolean";
  return (node.syntax && SYNTAX_TYPES[node.syntax]) ?? "";
}

/** Whether the default, the name or the description of a key shows its type. */
function isEvident(key: string, node: SchemaNode): boolean {
  const type = typeText(node);
  if (node.enum !== undefined)
    return node.enum.length > MOST_VALUES || node.enum.every((value) => node.description?.includes(code(value)));
  return type === "ms" ? key.endsWith("Ms") : node.default !== undefined && ["boolean", "integer"].includes(type);
}

function itemsText(items: SchemaNode): string {
  if (items.duration === true) return "durations";
  if (items.orKey !== undefined) return `${items.orKey}s or blocks`;
  if (items.secret === true) return "secrets";
  if (items.type === "integer") return `integers${range(items)}`;
  if (items.type === "number") return `numbers${numberRange(items)}`;
  return items.type === "string" ? "text" : "blocks";
}

function range(node: SchemaNode): string {
  if (node.maximum !== undefined) return ` ${node.minimum}..${node.maximum}`;
  if (node.exclusiveMinimum !== undefined) return ` > ${node.exclusiveMinimum}`;
  if (node.minimum === undefined) return "";
  // Beside a time, a number of nothing is rare.
  const usual = node.unit === "ms" ? 0 : 1;
  return node.minimum === usual ? "" : ` >= ${node.minimum}`;
}

function numberRange(node: SchemaNode): string {
  const above = node.exclusiveMinimum === undefined ? "" : ` > ${node.exclusiveMinimum}`;
  const from = node.minimum === undefined ? "" : ` >= ${node.minimum}`;
  return `${above}${from}${node.maximum === undefined ? "" : `, <= ${node.maximum}`}`;
}

function defaultText(node: SchemaNode, required: boolean): string {
  if (required) return "**required**";
  const preset = node.default;
  if (preset === undefined) return node.defaultText === undefined ? "" : `default ${node.defaultText}`;
  if (preset === "") return "default empty";
  if (Array.isArray(preset))
    return preset.length === 0 ? "" : `default ${preset.map((item) => code(String(item))).join(", ")}`;
  return typeof preset === "object" ? "" : `default ${code(String(preset))}`;
}

function code(text: string): string {
  return `\`${text}\``;
}

/** A link to a block that is described once. */
function link(title: string): string {
  return `[${title.toLowerCase()}](#${title.toLowerCase().replaceAll(" ", "-")})`;
}

function listOf(rows: readonly Row[]): string {
  return joined(folded(rows))
    .map(({ keys, details, text }) => {
      const separator = details.some((detail) => detail.includes(",")) ? "; " : ", ";
      const inBrackets = details.length === 0 ? "" : ` (${details.join(separator)})`;
      return `- ${keys.map(code).join(", ")}${inBrackets}: ${text}`;
    })
    .join("\n");
}
