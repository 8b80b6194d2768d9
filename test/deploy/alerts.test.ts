import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "@jest/globals";
import { load } from "js-yaml";
import { describeWithTools, toolPath } from "../support/describeWithTools.ts";
import { anchors, headings } from "../support/markdown.ts";
import { pathOf, read } from "../support/repository.ts";
import { LIVE_ALERTS } from "./alertsLive/coverage.ts";
import { alertRules, dashboard, dashboardQueries, type Panel, RULE_FILES } from "./deployFiles.ts";

const RULES = alertRules();
const RUNBOOK = "docs/runbook.md";

const TEST_FILES = readdirSync(pathOf("deploy/prometheus"))
  .filter((name) => name.endsWith(".test.yml"))
  .map((name) => `deploy/prometheus/${name}`);

interface RuleTest {
  readonly alertname: string;
  readonly eval_time: string;
  readonly exp_alerts: readonly unknown[];
}

/** The expectations of every scenario in the test files. */
const SCENARIOS = TEST_FILES.flatMap(
  (file) => (load(read(file)) as { readonly tests: readonly { alert_rule_test: readonly RuleTest[] }[] }).tests,
).map(({ alert_rule_test }) => alert_rule_test);

/** Whether the alert is quiet before it fires in one scenario, and after it. */
function firesAndEnds(name: string, scenario: readonly RuleTest[]): boolean {
  const minute = ({ eval_time }: RuleTest) => Number.parseInt(eval_time, 10);
  const own = scenario.filter(({ alertname }) => alertname === name);
  const firing = own.filter(({ exp_alerts }) => exp_alerts.length > 0).map(minute);
  const quiet = own.filter(({ exp_alerts }) => exp_alerts.length === 0).map(minute);
  return (
    firing.length > 0 && quiet.some((at) => at < Math.min(...firing)) && quiet.some((at) => at > Math.max(...firing))
  );
}

/** @throws Error with what promtool says when it finds a fault */
const promtool = (...args: string[]) => promisify(execFile)(toolPath("promtool"), args);

describeWithTools(["promtool"], "promtool", () => {
  test("takes the rules", async () => {
    const { stdout } = await promtool("check", "rules", ...RULE_FILES.map(pathOf));
    const counts = [...stdout.matchAll(/SUCCESS: (\d+) rules found/g)].map(([, count]) => Number(count));

    expect(counts).toEqual(RULE_FILES.map((file) => read(file).match(/^ +- (alert|record): /gm)?.length));
  });

  test("takes the configuration, which names the rules", async () => {
    const { stdout } = await promtool("check", "config", pathOf("deploy/prometheus/prometheus.yml"));

    expect(stdout).toContain("SUCCESS: 1 rule files found");
  });

  test.each(TEST_FILES)("sees each alert of %s fire and stay quiet as it should", async (file) => {
    await expect(promtool("test", "rules", pathOf(file))).resolves.toBeDefined();
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
  test("says how bad it is, what is wrong, how much, and where to read on", () => {
    expect(labels).toEqual({ severity: expect.stringMatching(/^(critical|warning)$/) });
    expect(rule.for).toMatch(/^\d+m$/);
    expect(Object.keys(annotations)).toEqual(["summary", "description", "runbook_url"]);
    // What is absent has no value.
    if (name !== "SvcAbsent") expect(annotations.description).toContain("{{ $value ");
  });

  test("leads to its section of the runbook", () => {
    const [page, anchor] = annotations.runbook_url?.split("#") ?? [];

    expect(page).toBe(RUNBOOK);
    expect(anchors(read(RUNBOOK))).toContain(anchor);
    expect(anchor).toBe(name.toLowerCase());
  });

  test("is tested to fire with its cause and to end with it", () => {
    expect(SCENARIOS.some((scenario) => firesAndEnds(name, scenario))).toBe(true);
  });
});

test("every alert is caused by one block of alertsLive, over real processes and a real Prometheus", () => {
  expect(Object.values(LIVE_ALERTS).flat().sort()).toEqual(RULES.map(({ alert }) => alert).sort());
});

test("docs/runbook.md has a section for each alert with its severity and wait, and no other", () => {
  const sections = [...read(RUNBOOK).matchAll(/^### (Svc\w+)\n\n(\w+)(?:, (\d+m))?\. /gm)];
  const listed = sections.map(([, alert, severity = "", wait = ""]) => [alert, severity.toLowerCase(), wait]);

  expect(listed).toEqual(
    RULES.map(({ alert, labels, for: wait }) => [alert, labels.severity, wait === "0m" ? "" : wait]),
  );
});

describe("the dashboard", () => {
  const { panels } = dashboard();
  const figures = panels.filter(({ type }) => type !== "row");

  test("says of each panel what it shows, in which unit, and which section to read", () => {
    for (const { title, description = "", fieldConfig } of figures) {
      expect(`${title}: ${description}`).toMatch(/^.+: \w+ .+\.$/);
      expect(fieldConfig?.defaults.unit).toEqual(expect.any(String));
      const [, sections, page = ""] = /\bsee ([^.;:]+) in (docs\/\w+\.md)/i.exec(description) ?? [];
      for (const section of sections?.split(" and ") ?? []) expect(headings(read(page))).toContain(section);
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
