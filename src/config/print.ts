import type { SchemaNode } from "../model/schema.ts";
import { formatDuration } from "../model/text.ts";
import { describeOrigin, formatKeyPath, type KeyPath, type Origins, originAt } from "./keyPath.ts";
import type { LoadedConfig } from "./load.ts";
import { masked } from "./mask.ts";
import { rootSchema } from "./schema/index.ts";

type Printable = string | number | boolean | Printable[] | { readonly [key: string]: Printable };

/** The effective configuration as a file's plain data: secrets masked, durations and kinds as written. */
export function effectiveConfig(loaded: Pick<LoadedConfig, "config">): Readonly<Record<string, Printable>> {
  return printable(rootSchema, loaded.config, undefined) as Record<string, Printable>;
}

function printable(node: SchemaNode, value: unknown, name: string | undefined): Printable | undefined {
  if (value === undefined || value === null) return undefined;
  if (node.duration === true && typeof value === "number") return formatDuration(value);
  if (node.items?.whole === true && Array.isArray(value) && value.length === 1)
    return printable(node.items, value[0], name);
  if (Array.isArray(value)) return value.map((item) => printable(node.items ?? {}, item, undefined) ?? "");
  const plain = masked(node, name, value);
  if (typeof plain === "string" || typeof plain === "number" || typeof plain === "boolean") return plain;
  const kind = node.kinds === undefined ? undefined : (value as { readonly kind: string }).kind;
  const schema = kind === undefined ? node : (node.kinds?.[kind] ?? {});
  const result: Record<string, Printable> = kind === undefined ? {} : { type: kind };
  for (const key of keysOf(schema, value)) {
    const child = schema.properties?.[key] ?? schema.additionalProperties ?? {};
    const shown = printable(child, (value as Record<string, unknown>)[key], key);
    if (shown !== undefined) result[key] = shown;
  }
  return result;
}

/** The keys in the order of the schema; derived data such as `database.target` is none of the file's. */
function keysOf(schema: SchemaNode, value: object): string[] {
  const keys = Object.keys(schema.properties ?? value);
  return keys.filter((key) => Object.hasOwn(value, key));
}

/** Writes the effective configuration as YAML, with the origin of each value as a comment. */
export function printConfig(loaded: LoadedConfig): string {
  const lines = blockLines(effectiveConfig(loaded), [], "", loaded.origins);
  const width = Math.min(56, Math.max(...lines.map((line) => (line.comment === "" ? 0 : line.text.length))));
  const text = lines.map((line) => (line.comment === "" ? line.text : `${line.text.padEnd(width)}  # ${line.comment}`));
  return `# Configuration in effect (${loaded.source}); secrets are masked.\n${text.join("\n")}\n`;
}

interface Line {
  readonly text: string;
  readonly comment: string;
}

function blockLines(
  block: Readonly<Record<string, Printable>>,
  path: KeyPath,
  indent: string,
  origins: Origins,
): Line[] {
  return Object.entries(block).flatMap(([key, value]) =>
    valueLines(`${indent}${yamlText(key)}:`, value, [...path, key], indent, origins),
  );
}

function valueLines(head: string, value: Printable, path: KeyPath, indent: string, origins: Origins): Line[] {
  if (Array.isArray(value)) {
    if (value.length === 0) return [{ text: `${head} []`, comment: comment(origins, path) }];
    return [
      { text: head, comment: "" },
      ...value.flatMap((item, index) => itemLines(item, [...path, index], indent, origins)),
    ];
  }
  if (typeof value !== "object") {
    const text = typeof value === "string" ? yamlText(value.replaceAll(PLACEHOLDER, "$$$&")) : String(value);
    return [{ text: `${head} ${text}`, comment: comment(origins, path) }];
  }
  if (Object.keys(value).length === 0) return [{ text: `${head} {}`, comment: comment(origins, path) }];
  return [{ text: head, comment: "" }, ...blockLines(value as Record<string, Printable>, path, `${indent}  `, origins)];
}

function itemLines(item: Printable, path: KeyPath, indent: string, origins: Origins): Line[] {
  const start = `${indent}  -`;
  if (typeof item !== "object" || Array.isArray(item)) return valueLines(start, item, path, `${indent}    `, origins);
  const [first, ...rest] = blockLines(item as Record<string, Printable>, path, `${indent}    `, origins);
  if (first === undefined) return [{ text: `${start} {}`, comment: comment(origins, path) }];
  return [{ ...first, text: `${start} ${first.text.trimStart()}` }, ...rest];
}

/** The origin of a value. A block's line is not the origin of the defaults in it. */
function comment(origins: Origins, path: KeyPath): string {
  const own = origins.get(formatKeyPath(path));
  const origin = own ?? (typeof path.at(-1) === "number" ? originAt(origins, path) : undefined);
  return describeOrigin(origin ?? { kind: "default" });
}

/** Would be filled in when the printed text is loaded, and so is escaped. */
const PLACEHOLDER = /\$\{(?=[A-Za-z_][\w.]*(?:\}|:-))/g;

/** A text as YAML: plain if possible, else as JSON, which YAML includes. */
function yamlText(text: string): string {
  const plain =
    /^[A-Za-z/$][\w./$@*()-]*(?:[:=][\w./$@*()-]+)*$/.test(text) &&
    !/^(?:true|false|null|yes|no|on|off|y|n)$/i.test(text);
  return plain ? text : JSON.stringify(text);
}
