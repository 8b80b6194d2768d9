import { load } from "js-yaml";

/** One value of a chart, as its `values.yaml` documents it. */
export interface DocumentedValue {
  /** Path with dots, such as `roles.ingest.enabled`. */
  readonly key: string;
  readonly defaultValue: unknown;
  readonly meaning: string;
}

const KEY = /^( *)([A-Za-z][\w-]*):( .)?/;
const MEANING = /^ *# -- (.*)$/;
const FURTHER = /^ *# ?(.*)$/;

/**
 * Reads the keys of a `values.yaml` below a comment that begins with `# -- ` and may have further lines. It applies to every key of the same level that follows
 * on the next lines, as long as each has its value on its line. Keys are indented by two spaces a level.
 */
export function documentedValues(yaml: string): readonly DocumentedValue[] {
  const values = load(yaml);
  const found: DocumentedValue[] = [];
  const path: string[] = [];
  let meaning: string[] | undefined;
  let above: { readonly level: number; readonly meaning: string[] } | undefined;
  for (const line of yaml.split("\n")) {
    const begins = MEANING.exec(line);
    const further = FURTHER.exec(line);
    const key = KEY.exec(line);
    if (begins !== null) meaning = [begins[1] ?? ""];
    else if (further !== null) meaning?.push(further[1] ?? "");
    else if (key !== null) {
      const level = (key[1]?.length ?? 0) / 2;
      path.length = level;
      path.push(key[2] ?? "");
      const hasValue = key[3] !== undefined;
      const own = meaning ?? (hasValue && above?.level === level ? above.meaning : undefined);
      if (own !== undefined) {
        found.push({ key: path.join("."), defaultValue: valueAt(values, path), meaning: own.join(" ") });
      }
      above = own !== undefined && hasValue ? { level, meaning: own } : undefined;
      meaning = undefined;
      continue;
    } else meaning = undefined;
    above = undefined;
  }
  return found;
}

/** The paths of all values that are no maps, and of empty maps. */
export function leavesOf(value: unknown, path: readonly string[] = []): string[] {
  const isMap = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isMap || Object.keys(value).length === 0) return [path.join(".")];
  return Object.entries(value).flatMap(([key, below]) => leavesOf(below, [...path, key]));
}

/** The values as a table in Markdown; neighbours with one meaning share a row, which names the keys after the first without their parent. */
export function valuesTable(yaml: string): string {
  const groups: DocumentedValue[][] = [];
  for (const value of documentedValues(yaml)) {
    const last = groups.at(-1);
    if (last?.[0]?.meaning === value.meaning && parentOf(last[0].key) === parentOf(value.key)) last.push(value);
    else groups.push([value]);
  }
  const rows = groups.map((group) => {
    const keys = group.map(({ key }, index) => `\`${index === 0 ? key : key.slice(parentOf(key).length)}\``);
    const defaults = group.map(({ defaultValue }) => `\`${JSON.stringify(defaultValue)}\``);
    const meaning = group[0]?.meaning.replaceAll("|", "\\|");
    return `| ${keys.join(", ")} | ${[...new Set(defaults)].length === 1 ? defaults[0] : defaults.join(", ")} | ${meaning} |`;
  });
  return ["| Key | Default | Meaning |", "| --- | --- | --- |", ...rows].join("\n");
}

/** The path of the map that holds a key, with its dot. */
const parentOf = (key: string): string => key.slice(0, key.lastIndexOf(".") + 1);

const BEGIN = "<!-- values: made from values.yaml -->";
const END = "<!-- /values -->";

/** A page whose table between the markers is the present one. @throws Error when the markers are missing */
export function withValuesTable(page: string, yaml: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`the page needs the lines ${BEGIN} and ${END}`);
  return `${page.slice(0, begin)}${BEGIN}\n${valuesTable(yaml)}\n${page.slice(end)}`;
}

function valueAt(value: unknown, path: readonly string[]): unknown {
  return path.reduce((below, key) => (below as Record<string, unknown> | null)?.[key], value);
}
