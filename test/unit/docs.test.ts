import { existsSync, readdirSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { DESTINATION_KINDS } from "../../src/adapters/kinds.ts";
import { METRICS } from "../../src/runtime/metricDefinitions.ts";
import { pathOf, read } from "../support/repository.ts";

const PAGES = [
  "README.md",
  ...readdirSync(pathOf("docs")).flatMap((file) => (file.endsWith(".md") ? [`docs/${file}`] : [])),
];
/** Default names of the publication and the slot, of the history of migrations, of the channel of wakes; a client's module. */
const OTHER_NAMES = new Set(["svc_outbox", "svc_migrations", "svc__outbox", "svc_client"]);

test("docs/metrics.md lists every metric with its labels and meaning, and no other", () => {
  const table = /<!-- metrics:.*?-->\n(.*)<!-- \/metrics -->/s.exec(read("docs/metrics.md"))?.[1] ?? "";
  const expected = Object.values(METRICS).map(({ name, labels, help }) => {
    const described = Object.entries(labels).map(([label, named]) => {
      const values = label === "destination_type" ? Object.keys(DESTINATION_KINDS) : named;
      return values.length === 0 ? label : `${label}=${values.join("\\|")}`;
    });
    return `| \`${name}\` | ${described.join(", ")}${described.length === 0 ? "" : " "}| ${help} |`;
  });

  expect(table.trim().split("\n").slice(2)).toEqual(expected);
});

test("the name of a metric tells its type, by the rule of docs/metrics.md", () => {
  const typeOf = (name: string) => {
    if (name.endsWith("_total")) return "counter";
    return /_(?:duration|latency)_seconds$|^svc_claim_rows$/.test(name) ? "histogram" : "gauge";
  };

  expect(Object.values(METRICS).filter(({ name, type }) => type !== typeOf(name))).toEqual([]);
});

test("every file that CONTRIBUTING.md names on the way of a message exists", () => {
  const rows = read("CONTRIBUTING.md").split("## A message in the code")[1]?.split("\n").slice(5) ?? [];
  const files = rows.flatMap((row) =>
    [...row.matchAll(/`([\w/]+\/)`: ((?:`\w+`(?:, )?)+)/g)].flatMap(([, folder, names]) =>
      [...(names ?? "").matchAll(/\w+/g)].map(([name]) => `${folder}${name}.ts`),
    ),
  );

  expect(files).toEqual(expect.arrayContaining(["roles/ingest.ts", "src/adapters/destinations/http/delivery.ts"]));
  expect(files.filter((file) => !existsSync(pathOf(file)))).toEqual([]);
});

test("the table of CONTRIBUTING.md has files of both databases", () => {
  const named = [...read("CONTRIBUTING.md").matchAll(/`src\/adapters\/stores\/postgres\/`: ((?:`\w+`(?:, )?)+)/g)];
  const names = new Set(named.flatMap(([, list]) => (list ?? "").match(/\w+/g) ?? []));
  const others = [...names].filter((name) => !existsSync(pathOf(`src/adapters/stores/sqlserver/${name}.ts`)));

  expect(names.size).toBeGreaterThan(3);
  expect(others).toEqual([]);
});

describe.each(PAGES)("%s", (page) => {
  const text = read(page);

  test("names only metrics that exist", () => {
    const known = new Set(Object.values(METRICS).map((metric) => metric.name as string));
    const named = (text.match(/\bsvc_[a-z_]+/g) ?? []).filter((name) => !OTHER_NAMES.has(name));

    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });
});
