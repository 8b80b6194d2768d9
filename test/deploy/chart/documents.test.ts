import { writeFileSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { load } from "js-yaml";
import { documentedValues, leavesOf, withValuesTable } from "../../support/chart/valuesTable.ts";
import { pathOf, read } from "../../support/repository.ts";

/** The files of the chart that are copies, or are made from others. `UPDATE_DOCS=1 npm run jest -- test/deploy/chart/documents.test.ts` renews them. */

const VALUES = read("helm/svc/values.yaml");

/** Holds a file to what it should be, or makes it so where that is asked for. */
function expectFile(file: string, content: string): void {
  if (process.env.UPDATE_DOCS === "1") writeFileSync(pathOf(file), content);
  const stale = `${file} is out of date: UPDATE_DOCS=1 npm run jest -- test/deploy/chart/documents.test.ts renews it`;
  expect(read(file) === content ? "" : stale).toBe("");
}

describe("the chart's files", () => {
  test("the table of README.md is that of values.yaml", () => {
    expectFile("helm/svc/README.md", withValuesTable(read("helm/svc/README.md"), VALUES));
  });

  test("every value is documented", () => {
    const documented = documentedValues(VALUES).map(({ key }) => key);
    const isDocumented = (leaf: string) => documented.some((key) => leaf === key || leaf.startsWith(`${key}.`));
    expect(documented.length).toBeGreaterThan(80);
    expect(leavesOf(load(VALUES)).filter((leaf) => !isDocumented(leaf))).toEqual([]);
  });

  test("files/svc-dashboard.json is deploy/grafana/svc-dashboard.json", () => {
    expectFile("helm/svc/files/svc-dashboard.json", read("deploy/grafana/svc-dashboard.json"));
  });

  test("files/alerts.yml is deploy/prometheus/alerts.yml, which a chart cannot read", () => {
    expectFile("helm/svc/files/alerts.yml", read("deploy/prometheus/alerts.yml"));
  });

  test("the image is that of the package's version", () => {
    const { version } = JSON.parse(read("package.json")) as { version: string };
    const chart = load(read("helm/svc/Chart.yaml")) as { version: string; appVersion: string };
    expect(chart.appVersion).toBe(version);
    expect(chart.version).toMatch(/^\d+\.\d+\.\d+$/);
  });
});
