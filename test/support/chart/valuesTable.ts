import { load } from "js-yaml";

/** One value of a chart, as its `values.yaml` documents it. */
export interface DocumentedValue {
  /** Path with dots, such as `roles.ingest.enabled`. */
  readonly key: string;
  readonly defaultValue: unknown;
  readonly meaning: string;
}

const KEY = /^( *)([A-Za-z][\w-]*):/;
const MEANING = /^ *# -- (.*)$/;
const FURTHER = /^ *# ?(.*)$/;

/**
 * Reads the keys of a `values.yaml` that a comment beginning with `# -- ` stands directly above. The comment may go on over further lines. Keys are indented by
 * two spaces a level.
 */
export function documentedValues(yaml: string): readonly DocumentedValue[] {
  const values = load(yaml);
  const found: DocumentedValue[] = [];
  const path: string[] = [];
  let meaning: string[] | undefined;
  for (const line of yaml.split("\n")) {
    const begins = MEANING.exec(line);
    const further = FURTHER.exec(line);
    const key = KEY.exec(line);
    if (begins !== null) meaning = [begins[1] ?? ""];
    else if (further !== null) meaning?.push(further[1] ?? "");
    else if (key !== null) {
      path.length = (key[1]?.length ?? 0) / 2;
      path.push(key[2] ?? "");
      if (meaning !== undefined) {
        found.push({ key: path.join("."), defaultValue: valueAt(values, path), meaning: meaning.join(" ") });
      }
      meaning = undefined;
    } else meaning = undefined;
  }
  return found;
}

/** The paths of all values that are no maps, and of empty maps. */
export function leavesOf(value: unknown, path: readonly string[] = []): string[] {
  const isMap = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isMap || Object.keys(value).length === 0) return [path.join(".")];
  return Object.entries(value).flatMap(([key, below]) => leavesOf(below, [...path, key]));
}

/** The values as a table in Markdown. */
export function valuesTable(yaml: string): string {
  const rows = documentedValues(yaml).map(
    ({ key, defaultValue, meaning }) =>
      `| \`${key}\` | \`${JSON.stringify(defaultValue)}\` | ${meaning.replaceAll("|", "\\|")} |`,
  );
  return ["| Key | Default | Meaning |", "| --- | --- | --- |", ...rows].join("\n");
}

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
