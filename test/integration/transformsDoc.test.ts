import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { type TestEvaluator, testEvaluator } from "../support/evaluator.ts";
import { failOnLeaks } from "../support/leaks.ts";

interface Example {
  readonly heading: string;
  readonly expression: string;
  readonly input: string;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly output: string;
}

const PAGE = readFileSync(new URL("../../docs/transforms.md", import.meta.url), "utf8");

/** An expression with the blocks that follow it, up to the next expression. */
function examples(page: string): Example[] {
  const heading = (index: number) =>
    page
      .slice(0, index)
      .match(/^### .*$/gm)
      ?.at(-1) ?? "";
  const blocks = [...page.matchAll(/^```(jsonata|json (?:input|variables|output))\n(.*?)^```$/gms)];
  const starts = blocks.flatMap(([, kind], index) => (kind === "jsonata" ? [index] : []));
  return starts.map((start, n) => {
    const own = blocks.slice(start, starts[n + 1]);
    const text = (kind: string) => own.find((block) => block[1] === kind)?.[2];
    return {
      heading: heading(own[0]?.index ?? 0).replace("### ", ""),
      expression: text("jsonata") ?? "",
      input: text("json input") ?? "",
      variables: JSON.parse(text("json variables") ?? "{}") as Record<string, unknown>,
      output: text("json output") ?? "",
    };
  });
}

describe("docs/transforms.md", () => {
  let evaluator: TestEvaluator;
  beforeAll(async () => {
    evaluator = testEvaluator();
    await evaluator.start();
  });
  afterAll(() => evaluator.close());
  failOnLeaks();

  const all = examples(PAGE);
  const evaluate = (expression: string, input: string, bindings = {}) =>
    evaluator.evaluate({ lane: "docs", expression, input, bindings, timeoutMs: 10_000, maxDepth: 100 });

  test("holds examples", () => {
    expect(all.length).toBeGreaterThanOrEqual(3);
  });

  test.each(all)("gives the output it shows: $heading", async ({ expression, input, variables, output }) => {
    // As texts, so that the order of fields holds too.
    expect(await evaluate(expression, input, variables)).toBe(JSON.stringify(JSON.parse(output)));
  });

  test("shows expressions in YAML and commands that compile", async () => {
    const inYaml = [...PAGE.matchAll(/expression: '([^'\n]*)'/gi)].map((match) => match[1] ?? "");
    const inCommands = [...PAGE.matchAll(/--expression '([^'\n]*)'/g)].map((match) => match[1] ?? "");
    expect(inYaml.length + inCommands.length).toBeGreaterThan(3);
    for (const expression of [...inYaml, ...inCommands]) {
      await expect(evaluate(expression, '{"id":1,"lines":[{"price":2}]}')).resolves.toBeDefined();
    }
  });

  test("says the truth about numbers", async () => {
    expect(await evaluate("$", "[12345678901234567890, 1.0]")).toBe("[12345678901234567000,1]");
    expect(await evaluate("0.1 + 0.2", "{}")).toBe("0.30000000000000004");
    expect(await evaluate("$", "9007199254740991")).toBe("9007199254740991");
  });

  test("says the truth about regular expressions", async () => {
    const matches = async (text: string, pattern: string) =>
      evaluate(`$contains(text, ${pattern})`, JSON.stringify({ text }));
    expect(await matches("\u00a0", "/\\s/")).toBe("false");
    expect(await matches("a\rb", "/a.b/")).toBe("true");
    expect(await matches("a\nb", "/a.b/")).toBe("false");
    expect(await matches("😀", "/^.$/")).toBe("true");
    expect(await matches("é", "/^\\p{L}$/")).toBe("true");
    expect(await matches("a.c", "/\\Aa\\Q.\\Ec\\z/")).toBe("true");
    expect(await evaluate("$match(text, /b/)[0].index", '{"text":"😀b"}')).toBe("2");
    for (const refused of ["/(?=a)/", "/(?!a)/", "/(?<=a)/", "/(?<!a)/", "/(a)\\1/", "/(?<n>a)\\k<n>/", "/x{1001}/"]) {
      await expect(matches("a", refused)).rejects.toMatchObject({ code: "invalid_expression" });
    }
  });

  test("says the truth about missing values", async () => {
    await expect(evaluate("missing", "{}")).rejects.toMatchObject({ code: "no_result" });
    expect(await evaluate('{"a": missing, "b": [1, missing]}', "{}")).toBe('{"b":[1]}');
    expect(await evaluate("lines[].sku", '{"lines":[{"sku":"pen"}]}')).toBe('["pen"]');
    expect(await evaluate("lines.sku", '{"lines":[{"sku":"pen"}]}')).toBe('"pen"');
    expect(await evaluate("$exists($source)", "{}")).toBe("false");
  });
});
