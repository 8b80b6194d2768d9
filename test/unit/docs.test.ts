import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { METRICS } from "../../src/runtime/metricDefinitions.ts";

const ROOT = new URL("../../", import.meta.url);
const read = (file: string): string => readFileSync(new URL(file, ROOT), "utf8");
const PAGES = [
  "README.md",
  ...readdirSync(new URL("docs/", ROOT)).flatMap((file) => (file.endsWith(".md") ? [`docs/${file}`] : [])),
];

test("docs/operations.md lists every metric with its type, labels and meaning, and no other", () => {
  const table = /<!-- metrics:.*?-->\n(.*)<!-- \/metrics -->/s.exec(read("docs/operations.md"))?.[1] ?? "";
  const expected = Object.values(METRICS).map(({ name, type, labels, help }) => {
    const described = Object.entries(labels).map(([label, values]) =>
      values.length === 0 ? label : `${label}=${values.join("\\|")}`,
    );
    return `| \`${name}\` | ${type} | ${described.join(", ")} | ${help} |`;
  });

  expect(table.trim().split("\n").slice(2)).toEqual(expected);
});

describe.each(PAGES)("%s", (page) => {
  const text = read(page);

  test("names only metrics that exist", () => {
    const known = new Set(Object.values(METRICS).map((metric) => metric.name as string));
    // `svc_outbox` alone is the default name of the publication and the slot.
    const named = (text.match(/\bsvc_[a-z_]+/g) ?? []).filter(
      (name) => name !== "svc_outbox" && name !== "svc_migrations",
    );

    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });

  test("links only to files and headings that are there", () => {
    const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] ?? "");
    for (const link of links.filter((target) => !/^[a-z]+:/.test(target))) {
      const [file = "", heading] = link.split("#");
      const target = file === "" ? text : readFileSync(new URL(file, new URL(page, ROOT)), "utf8");
      if (heading !== undefined) expect(headings(target)).toContain(heading);
    }
  });
});

/** Anchors as the common renderers make them. */
function headings(text: string): string[] {
  return [...text.matchAll(/^#+ (.*)$/gm)].map((match) =>
    (match[1] ?? "")
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
}
