import { readFileSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { METRICS } from "../../src/runtime/metricDefinitions.ts";

const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
const table = /<!-- metrics:.*?-->\n(.*)<!-- \/metrics -->/s.exec(readme)?.[1] ?? "";

describe("the README", () => {
  test("lists every metric with its type, labels and meaning, and no other", () => {
    const expected = Object.values(METRICS).map(({ name, type, labels, help }) => {
      const described = Object.entries(labels).map(([label, values]) =>
        values.length === 0 ? label : `${label}=${values.join("\\|")}`,
      );
      return `| \`${name}\` | ${type} | ${described.join(", ")} | ${help} |`;
    });

    expect(table.trim().split("\n").slice(2)).toEqual(expected);
  });

  test("names only metrics that exist", () => {
    const known = new Set(Object.values(METRICS).map((metric) => metric.name as string));
    const named = readme.match(/\bsvc_[a-z_]+/g) ?? [];

    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });

  test("links only to files that are there", () => {
    const links = [...readme.matchAll(/\]\(([^)#][^)]*)\)/g)].map((match) => match[1] ?? "");

    expect(links.length).toBeGreaterThan(2);
    for (const link of links) expect(() => readFileSync(new URL(`../../${link}`, import.meta.url))).not.toThrow();
  });
});
