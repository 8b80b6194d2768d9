import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "@jest/globals";
import { load } from "js-yaml";
import { describeWithTools, toolPath } from "../support/describeWithTools.ts";
import { anchors, headings } from "../support/markdown.ts";
import { pathOf, read } from "../support/repository.ts";
import { alertRules, dashboard, dashboardQueries, type Panel } from "./deployFiles.ts";

const RULES = alertRules();
const RUNBOOK = "docs/operations.md";

interface RuleTest {
  readonly alertname: string;
  readonly exp_alerts: readonly unknown[];
}

/** Every expectation of deploy/prometheus/alerts.test.yml. */
const RULE_TESTS = (
  load(read("deploy/prometheus/alerts.test.yml")) as { readonly tests: readonly { alert_rule_test: RuleTest[] }[] }
).tests.flatMap(({ alert_rule_test }) => alert_rule_test);

/** @throws Error with what promtool says when it finds a fault */
const promtool = (...args: string[]) => promisify(execFile)(toolPath("promtool"), args);

describeWithTools(["promtool"], "promtool", () => {
  test("takes the rules", async () => {
    const { stdout } = await promtool("check", "rules", pathOf("deploy/prometheus/alerts.yml"));

    expect(stdout).toContain(`SUCCESS: ${RULES.length} rules found`);
  });

  test("takes the configuration, which names the rules", async () => {
    const { stdout } = await promtool("check", "config", pathOf("deploy/prometheus/prometheus.yml"));

    expect(stdout).toContain("SUCCESS: 1 rule files found");
  });

  test("sees each alert fire and stay quiet as it should", async () => {
    await expect(promtool("test", "rules", pathOf("deploy/prometheus/alerts.test.yml"))).resolves.toBeDefined();
  });

  test("takes the queries of the dashboard", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "svc-dashboard-"));
    try {
      const rules = dashboardQueries(dashboard()).map((expr, index) => ({
        record: `query:${index}`,
        expr: expr.replace(/\[\$\w+\]/g, "[5m]"),
      }));
      const file = path.join(folder, "queries.yml");
      await writeFile(file, JSON.stringify({ groups: [{ name: "dashboard", rules }] }));

      const { stdout } = await promtool("check", "rules", file);

      expect(stdout).toContain(`SUCCESS: ${rules.length} rules found`);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe.each(RULES.map((rule) => [rule.alert, rule] as const))("%s", (name, { annotations, labels, ...rule }) => {
  const tests = RULE_TESTS.filter(({ alertname }) => alertname === name);

  test("says how bad it is, what is wrong, how much, and where to read on", () => {
    expect(labels).toEqual({ severity: expect.stringMatching(/^(critical|warning)$/) });
    expect(rule.for).toMatch(/^\d+m$/);
    expect(Object.keys(annotations)).toEqual(["summary", "description", "runbook_url"]);
    // What is absent has no value.
    if (!rule.expr.startsWith("absent(")) expect(annotations.description).toContain("{{ $value ");
  });

  test("leads to its section of the runbook", () => {
    const [page, anchor] = annotations.runbook_url?.split("#") ?? [];

    expect(page).toBe(RUNBOOK);
    expect(anchors(read(RUNBOOK))).toContain(anchor);
    expect(anchor).toBe(name.toLowerCase());
  });

  test("is tested to fire and to be quiet", () => {
    expect(tests.some(({ exp_alerts }) => exp_alerts.length > 0)).toBe(true);
    expect(tests.some(({ exp_alerts }) => exp_alerts.length === 0)).toBe(true);
  });
});

test("docs/operations.md lists the alerts with their severity and wait, and no other", () => {
  const rows = [...read(RUNBOOK).matchAll(/^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \| (\w*) \| .+ \|$/gm)];
  const listed = rows.map(([, alert, anchor, severity, wait]) => [alert, anchor, severity, wait]);

  expect(listed).toEqual(
    RULES.map(({ alert, labels, for: wait }) => [
      alert,
      alert.toLowerCase(),
      labels.severity,
      wait === "0m" ? "" : wait,
    ]),
  );
});

describe("the dashboard", () => {
  const { panels } = dashboard();
  const figures = panels.filter(({ type }) => type !== "row");

  test("says of each panel what it shows, in which unit, and which section to read", () => {
    const known = headings(read(RUNBOOK));
    for (const { title, description = "", fieldConfig } of figures) {
      expect(`${title}: ${description}`).toMatch(/^.+: \w+ .+\.$/);
      expect(fieldConfig?.defaults.unit).toEqual(expect.any(String));
      const [, sections] = /\bsee ([^.;:]+) in docs\/operations\.md/i.exec(description) ?? [];
      for (const section of sections?.split(" and ") ?? []) expect(known).toContain(section);
    }
  });

  test("places its panels beside each other", () => {
    const overlaps = panels.flatMap((one, index) =>
      panels.slice(index + 1).flatMap((other) => (overlap(one, other) ? [`${one.title}, ${other.title}`] : [])),
    );

    expect(overlaps).toEqual([]);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(panels.filter(({ gridPos: { x, w } }) => x + w > 24)).toEqual([]);
  });
});

function overlap({ gridPos: one }: Panel, { gridPos: other }: Panel): boolean {
  const meet = (a: number, length: number, b: number, otherLength: number) => a < b + otherLength && b < a + length;
  return meet(one.x, one.w, other.x, other.w) && meet(one.y, one.h, other.y, other.h);
}
