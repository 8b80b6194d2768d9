import { inboundAuthSchema } from "../adapters/sources/http/schema.ts";
import type { SchemaNode, Syntax } from "../model/schema.ts";
import { attributeHeadersSchema, filterSchema, transformSchema } from "./schema/blocks.ts";
import { rootSchema } from "./schema/index.ts";

/** Blocks of several places, described once under their heading. */
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
  topicPattern: "topic glob",
  topicTemplate: "template",
  address: "name or template",
  routingKey: "template",
  expression: "expression",
};

/** The reference page of the configuration in Markdown, made from the schema. */
export function referencePage(): string {
  const sections = Object.entries(rootSchema.properties ?? {}).map(([name, node]) => section(name, node));
  const shared = SHARED.map(({ title, node }) => `## ${title}\n\n${blockTables("", node, "###")}`);
  return [REFERENCE_INTRODUCTION, kindsTable(), ...sections, ...shared]
    .map((part) => part.trim())
    .join("\n\n")
    .concat("\n");
}

function kindsTable(): string {
  const places: readonly (readonly [string, SchemaNode | undefined])[] = [
    ["destinations.<name>", rootSchema.properties?.destinations?.additionalProperties],
    ["sources.<name>", rootSchema.properties?.sources?.additionalProperties],
    [
      "destinations.<name>.auth",
      rootSchema.properties?.destinations?.additionalProperties?.kinds?.http?.properties?.auth,
    ],
    ["sources.<name>.auth, admin.auth, inbox.pull.auth", inboundAuthSchema],
  ];
  const rows = places.flatMap(([place, node]) =>
    Object.entries(node?.kinds ?? {}).map(([kind, schema]) => [
      place.split(", ").map(code).join(", "),
      kind,
      (schema.required ?? []).map(code).join(", "),
    ]),
  );
  return `## Kinds\n\nThe kind of an entry follows from the required keys that are present, never from \`type\`. When the keys of several\nkinds are there, the first in this table counts.\n\n${table(["Block", "Kind", "Required keys"], rows)}`;
}

function section(name: string, node: SchemaNode): string {
  const heading = `## ${name}\n\n${node.description}`;
  const entry = node.additionalProperties ?? node.items;
  const body = blockTables(entry === undefined ? `${name}.` : "", entry ?? node, "###");
  return `${heading}\n\n${body}`;
}

/**
 * One table of a block's keys; or a heading and a table for each of its kinds, with the keys that several have on top.
 */
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
    const own = Object.entries(schema.properties ?? {}).filter(([key]) => !isShared(key));
    const text = keysTable({ ...schema, properties: Object.fromEntries(own) });
    tables.push(`${heading} ${kind}\n\n${schema.description ?? ""}\n\n${text}`);
  }
  return tables.join("\n\n");
}

/**
 * The optional keys that two or more kinds have with the same meaning, by the names of those kinds; those of most kinds
 * first.
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
    const required = node.required?.includes(key) === true;
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
    if (property.properties !== undefined) {
      const inside = keyRows(`${prefix}${key}.`, property);
      // A block that may be left out has a meaning of its own: its presence.
      return property.default === undefined ? [row, ...inside] : inside;
    }
    if (property.items?.properties !== undefined) return [row, ...keyRows(`${prefix}${key}[].`, property.items)];
    return [row];
  });
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
  if (node.type === "array" && node.items?.duration === true) return "list of durations";
  if (node.type === "array") return node.items?.type === "string" ? "list of text" : "list of blocks";
  if (node.type === "object") return node.properties === undefined ? "map of text to text" : "block";
  if (node.type === "boolean") return "boolean";
  return (node.syntax && SYNTAX_TYPES[node.syntax]) ?? "text";
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

/** The text before the tables of the reference page. */
const REFERENCE_INTRODUCTION = `# Configuration

<!-- Generated from the configuration schema by "npm run generate". Change the schema under src/config/schema and
     src/adapters/*/*/schema.ts, not this page. -->

## Where values come from

For each key the first holder counts:

1. an environment variable that begins with \`SVC_\`;
2. the YAML file: the one named by \`--config\`, else by \`SVC_CONFIG_FILE\`, else \`/etc/svc/svc.yml\` if it exists;
3. the default in the tables below.

A file that \`--config\` or \`SVC_CONFIG_FILE\` names must exist. Without any file and without any \`SVC_\` variable the packaged
default file is read: a local PostgreSQL, no sources, no destinations. A change needs a restart.

\`svc config check\` lists everything that is wrong at once, \`svc config print\` shows the configuration in effect and where each value
came from, and \`svc config schema\` prints the JSON Schema for editors.

Unknown keys and unknown \`SVC_\` variables are warnings that name the nearest known one; \`svc config check --strict\` makes every
warning an error.

## Environment variables

The name is \`SVC_\`, then the key path in upper case with one underscore between levels and none inside a key:
\`SVC_OUTBOX_POLLINTERVALMS\` sets \`outbox.pollIntervalMs\`. \`SVC_OUTBOX_POLL_INTERVAL_MS\` sets nothing.

- Maps: \`SVC_DESTINATIONS_ORDERS_BASEURL\` meets the entry \`orders\` in any letter case; without such an entry it makes \`orders\`. A
  dash or a dot in an entry's name is an underscore in the variable's: \`SVC_SOURCES_WEB_SHOP_TOPIC\` meets \`sources.web-shop\`. A
  new entry's name has no underscore.
- Lists: \`SVC_ROUTES_0_DESTINATION\` sets the first route's \`destination\`. Items are counted from 0 without a gap.
- Lists of text also take one value with commas: \`SVC_SOURCES_EVENTS_TOPICS=orders,invoices\`.
- An empty variable sets a text to empty, and is ignored for every other type.
- Placeholders are not replaced in variables.

## Formats

| Format | Rule |
| --- | --- |
| ms | Whole number of milliseconds, at most 2147483647 (24.8 days). |
| number | Decimal number such as \`0.25\`, without an exponent. |
| duration | Whole number and one suffix \`s\`, \`m\`, \`h\` or \`d\`, such as \`30d\`. |
| secret | Text, or \`file:<path>\`: the file is read once at start and one line break at its end is removed. Shown as \`Secret(***)\`, or \`Secret(empty)\`. |
| text | Taken as it is written: \`0123\` keeps its zero. Passwords inside URLs are masked wherever a URL is shown. |
| enumeration | Exact letter case. |
| JSONPath | A definite path such as \`$.order.id\` or \`$.items[0].sku\`. |

\`file:\` works on secrets only. In \`database.url\`, \`url\` and \`connectionUrl\` it is taken literally: use a placeholder there.

Placeholders in text values of the file: \`\${NAME}\` is replaced by the environment variable \`NAME\`, which must be set;
\`\${NAME:-fallback}\` takes the fallback when the variable is not set or empty, and the fallback may hold placeholders. They work for every
type (\`httpPort: \${PORT:-8080}\`). \`$\${NAME}\` gives the literal text \`\${NAME}\`. A \`\${\` that begins no placeholder stays as it is.

## JDBC URLs

\`jdbc:postgresql://host1:5432,host2:5432/name?sslmode=verify-full\`: hosts are tried in order at each new connection, and of several those that
take no writes (standbys) are skipped; \`targetServerType=primary\` refuses a single one too. An IPv6 address stands in brackets; the port defaults to 5432. Parameters: \`sslmode\`, \`ssl\`, \`sslrootcert\`, \`sslcert\`, \`sslkey\`, \`targetServerType\` (\`any\`, \`primary\`),
\`ApplicationName\`, \`currentSchema\` (one schema). Write special characters percent-encoded.

\`jdbc:sqlserver://host\\instance:1433;databaseName=name;encrypt=true\`: the port defaults to 1433 unless an instance is named. Properties, in any
letter case: \`databaseName\`, \`serverName\`, \`instanceName\`, \`portNumber\`, \`encrypt\`, \`trustServerCertificate\`, \`hostNameInCertificate\`,
\`loginTimeout\`, \`applicationName\`. A value may stand in braces, with \`}}\` for a brace.

User name and password are refused in the URL: they have keys of their own. Any other parameter is a warning and has no effect.`;
