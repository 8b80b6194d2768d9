import { existsSync, readdirSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { METRICS } from "../../src/runtime/metricDefinitions.ts";
import { codeSpans } from "../support/markdown.ts";
import { pathOf, read } from "../support/repository.ts";

/** What the user documentation says of the service in quotes is what the code says. */

const PAGES = ["getting-started", "concepts", "guarantees", "security", "troubleshooting"].map(
  (name) => `docs/${name}.md`,
);

/** The whole code as one text, with the literals that stand on several lines put together. */
const CODE = ["src", "roles"]
  .flatMap((top) =>
    readdirSync(pathOf(top), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts"))
      .map((name) => read(`${top}/${name}`)),
  )
  .join("\n")
  .replaceAll(/["`] \+\s+["`]/g, "");

/** The parts of a quoted text that are in the code as they stand there: without `<name>` and what is left out. */
const fixedParts = (text: string) =>
  text
    .split(/<[^>]+>|\.{3}|…/)
    .map((part) => part.trim())
    .filter((part) => part.length > 3);
const missing = (text: string) => fixedParts(text).filter((part) => !CODE.includes(part));

describe.each(PAGES)("%s", (page) => {
  const spans = codeSpans(read(page));

  test("quotes log messages that the code writes", () => {
    const messages = spans.flatMap((span) => /^"msg":"(.*)"$/.exec(span)?.[1] ?? []);

    expect(messages.flatMap((message) => (CODE.includes(`"${message}"`) ? [] : [message]))).toEqual([]);
  });

  test("names keys of the configuration that there are", () => {
    const reference = read("docs/configuration.md");
    const keys = spans
      .map(
        (span) => /^((?:server|database|outbox|inbox|http|admin|retention)(?:\.[a-zA-Z]+)+)(?:: .*)?$/.exec(span)?.[1],
      )
      .filter((key) => key !== undefined);

    expect(keys.filter((key) => !new RegExp(`\`${key.replaceAll(".", "\\.")}[.\`]`).test(reference))).toEqual([]);
  });

  test("names labels of metrics with values that they can have", () => {
    const definitions = Object.values(METRICS);
    const named = spans.flatMap((span) => [...span.matchAll(/\b(svc_[a-z_]+)\{(\w+)="([^"]+)"\}/g)]);
    const wrong = named.filter(([, name, label = "", value = ""]) => {
      const definition = definitions.find((metric) => metric.name === name);
      const values = (definition?.labels as Record<string, readonly string[]> | undefined)?.[label];
      return values === undefined || !(values.length === 0 ? CODE.includes(`"${value}"`) : values.includes(value));
    });

    expect(wrong.map(([text]) => text)).toEqual([]);
  });
});

describe("docs/troubleshooting.md", () => {
  const page = read("docs/troubleshooting.md");

  test("quotes at least ten log messages", () => {
    expect(new Set(page.match(/"msg":"[^"]+"/g)).size).toBeGreaterThanOrEqual(10);
  });

  /** Said by PostgreSQL, or by the library that runs the migrations. */
  const FOREIGN = [
    "permission denied for schema",
    "must be owner of table",
    "already exists",
    "MD5 checksum failed",
    "permission denied for table",
  ];
  /** Commands, statements, settings and JSON are no quotations. */
  const isQuotation = (span: string) =>
    / /.test(span) &&
    !/^(?:[A-Z]{2,}\b|svc [a-z]|node |docker |curl |now\(\)|\{)|"msg"|^[\w.]+(?:: | = )/.test(span) &&
    !FOREIGN.includes(span);

  test("quotes answers and errors that the code gives", () => {
    const quotations = codeSpans(page).filter(isQuotation);

    expect(quotations.length).toBeGreaterThanOrEqual(25);
    expect(quotations.filter((text) => missing(text).length > 0)).toEqual([]);
  });

  test("a quotation that nothing in the code says is found", () => {
    expect(missing("no database answered within <n> ms")).toEqual([]);
    expect(missing("no database ever answered within <n> ms")).toEqual(["no database ever answered within"]);
  });
});

test("test/guarantees.md names files that there are, by the numbers of docs/guarantees.md", () => {
  const rows = [...read("test/guarantees.md").matchAll(/^\| (\d+) \| (`.*`) \|$/gm)];
  const files = rows.flatMap(([, , text = ""]) => codeSpans(text));
  expect(files.filter((file) => !existsSync(pathOf(file)))).toEqual([]);
  const cited = [...read("docs/guarantees.md").matchAll(/\[(\d+(?:, \d+)*)\]/g)].flatMap(([, numbers = ""]) =>
    numbers.split(", "),
  );
  expect([...new Set(cited)].sort((a, b) => Number(a) - Number(b))).toEqual(rows.map(([, number]) => number));
});
