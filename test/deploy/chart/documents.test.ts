import { realpathSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import { load } from "js-yaml";
import { documentedValues, leavesOf, withValuesTable } from "../../support/chart/valuesTable.ts";
import { pathOf, read } from "../../support/repository.ts";

/** The files of the chart that are copies, or are made from others. `UPDATE_DOCS=1 npm run jest -- test/deploy/chart/documents.test.ts` renews them. */

const VALUES = read("helm/svc/values.yaml");

/** Holds a file to what it should be, or makes it so if that is asked for. */
function expectFile(file: string, content: string): void {
  if (process.env.UPDATE_DOCS === "1") writeFileSync(pathOf(file), content);
  const stale = `${file} is out of date: UPDATE_DOCS=1 npm run jest -- test/deploy/chart/documents.test.ts renews it`;
  expect(read(file) === content ? "" : stale).toBe("");
}

describe("the chart's files", () => {
  test("the table of README.md is that of values.yaml", () => {
    expectFile("helm/svc/README.md", withValuesTable(read("helm/svc/README.md"), VALUES));
  });

  test("every value is documented, what roles have in common once", () => {
    const documented = documentedValues(VALUES).map(({ key }) => key);
    const isDocumented = (leaf: string) => {
      const ofAllRoles = leaf.replace(/^roles\.\w+\./, "roleDefaults.");
      return documented.some((key) => [leaf, ofAllRoles].some((each) => each === key || each.startsWith(`${key}.`)));
    };
    expect(documented.length).toBeGreaterThan(80);
    expect(leavesOf(load(VALUES)).filter((leaf) => !isDocumented(leaf))).toEqual([]);
  });

  test("alerts and dashboard are kept once, with the chart", () => {
    for (const file of ["prometheus/alerts.yml", "grafana/svc-dashboard.json"])
      expect(realpathSync(pathOf(`deploy/${file}`))).toBe(pathOf(`helm/svc/files/${path.basename(file)}`));
  });

  test("the image is that of the package's version", () => {
    const { version } = JSON.parse(read("package.json")) as { version: string };
    const chart = load(read("helm/svc/Chart.yaml")) as { version: string; appVersion: string };
    expect(chart.appVersion).toBe(version);
    expect(chart.version).toMatch(/^\d+\.\d+\.\d+$/);
  });
});
