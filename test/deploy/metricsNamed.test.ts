import { describe, expect, test } from "@jest/globals";
import { METRICS, type ServiceMetric } from "../../src/runtime/metricDefinitions.ts";
import { createMetrics } from "../../src/runtime/metrics.ts";
import { read } from "../support/repository.ts";
import { alertRules, dashboard, dashboardQueries, recordings } from "./deployFiles.ts";
import { type Matcher, type PromqlUsage, usageOf } from "./promql.ts";

/** Labels of a series, each with all the values it can have; no values if anything may stand. */
type Labels = Readonly<Record<string, readonly string[]>>;

/** What Prometheus adds to what it scrapes. */
const TARGET_LABELS: Labels = { job: [], instance: [], namespace: [] };
/** `svc_outbox` alone is the default name of publication and slot. */
const NO_METRICS = ["svc_outbox", "svc_migrations"];
/** What kube-state-metrics has of pods and Jobs, as far as rules read it. */
const KUBERNETES: ReadonlyMap<string, Labels> = new Map([
  [
    "kube_pod_status_phase",
    { namespace: [], pod: [], phase: ["Pending", "Running", "Succeeded", "Failed", "Unknown"] },
  ],
  ["kube_pod_container_status_waiting_reason", { namespace: [], pod: [], container: [], reason: [] }],
  ["kube_job_failed", { namespace: [], job_name: [], condition: ["true", "false", "unknown"] }],
  ["kube_job_status_start_time", { namespace: [], job_name: [] }],
  ["kube_job_status_completion_time", { namespace: [], job_name: [] }],
]);

/** What a process with every role shows, and `up`, which Prometheus makes. */
const text = await createMetrics({ version: "1.2.3" }).text();
const types = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => [name, type]));
const series = seriesOf(types);

function seriesOf(registered: ReadonlyMap<string, string>): ReadonlyMap<string, Labels> {
  const known = new Map<string, Labels>([["up", TARGET_LABELS], ...KUBERNETES]);
  for (const [name, type] of registered) {
    const labels = { ...labelsOf(name), ...TARGET_LABELS };
    if (type !== "histogram") known.set(name, labels);
    else {
      known.set(`${name}_bucket`, { ...labels, le: [] });
      known.set(`${name}_sum`, labels);
      known.set(`${name}_count`, labels);
    }
  }
  return known;
}

function labelsOf(metric: string): Labels {
  const own = Object.values<ServiceMetric>(METRICS).find(({ name }) => name === metric);
  if (own === METRICS.componentUp) return { component: healthComponents() };
  if (own !== undefined) return own.labels;
  const samples = text.split("\n").filter((line) => line.startsWith(`${metric}{`));
  return Object.fromEntries(
    samples.flatMap((line) => [...line.matchAll(/(\w+)="/g)].map(([, label = ""]) => [label, []])),
  );
}

/** The first column of the table in docs/operations.md, "Health", with some source in the place of `<source>`. */
function healthComponents(): readonly string[] {
  const table = /^## Health\n(.*?)^## /ms.exec(read("docs/operations.md"))?.[1] ?? "";
  const cells = [...table.matchAll(/^\| (`.*?) \|/gm)].map(([, cell = ""]) => cell);
  return cells.flatMap((cell) =>
    cell.split(", ").map((name) => name.replaceAll("`", "").replace("<source>", "orders")),
  );
}

/** What in an expression no process shows. */
function unknownIn({ selectors, grouping, made }: PromqlUsage): string[] {
  const wrong = selectors.flatMap(({ metric, matchers }) => {
    const labels = series.get(metric);
    if (labels === undefined) return [metric];
    return matchers
      .filter((matcher) => !canMatch(matcher, labels))
      .map(({ label, operator, value }) => `${metric}{${label}${operator}"${value}"}`);
  });
  const labels = new Set([...made, ...selectors.flatMap(({ metric }) => Object.keys(series.get(metric) ?? {}))]);
  return [...wrong, ...grouping.filter((label) => !labels.has(label)).map((label) => `by (${label})`)];
}

/** Whether the metric has the label, and the label can have the value, or each part of `a|b`. */
function canMatch({ label, operator, value }: Matcher, labels: Labels): boolean {
  const values = labels[label];
  if (values === undefined || values.length === 0) return values !== undefined;
  if (operator === "=" || operator === "!=") return values.includes(value);
  const parts = /^[\w|]+$/.test(value) ? value.split("|") : [value];
  return parts.every((part) => values.some((each) => new RegExp(`^(?:${part})$`).test(each)));
}

test("the test tells what no process shows from what one does", () => {
  const wrong = [
    "svc_outbox_message_total",
    "svc_delivery_latency_seconds",
    'svc_outbox_messages_total{state="dead"}',
    'svc_outbox_messages_total{status=~"dead|gone"}',
    'svc_component_up{component="poller"}',
    "sum by (destination) (svc_blocked_keys)",
    "rate(svc_outbox_messages_total[5m]) / on (jop) svc_info",
  ];
  const right = [
    "histogram_quantile(0.9, sum by (le, job) (rate(svc_delivery_latency_seconds_bucket[$__rate_interval])))",
    'svc_component_up{component=~"(rabbitmq|kafka|nats)[.].+", job="svc"} == 0 unless svc_info offset 1d',
    'max(nodejs_eventloop_lag_max_seconds{instance=~"$instance"} and on (job) up) or vector(0)',
    'nodejs_heap_space_size_used_bytes{space="old"}',
  ];

  expect(wrong.filter((expression) => unknownIn(usageOf(expression)).length === 0)).toEqual([]);
  expect(right.flatMap((expression) => unknownIn(usageOf(expression)))).toEqual([]);
  expect(() => usageOf('{job="svc"}')).toThrow("without the name of a metric");
});

test("every registered metric of the service is a known one, and the process metrics stand beside them", () => {
  const own = [...types.keys()].filter((name) => name.startsWith("svc_")).sort();

  expect(own).toEqual(
    Object.values(METRICS)
      .map(({ name }) => name as string)
      .sort(),
  );
  expect([...types.keys()]).toEqual(
    expect.arrayContaining(["process_start_time_seconds", "nodejs_gc_duration_seconds"]),
  );
});

test.each(alertRules().map(({ alert, expr }) => [alert, expr]))("%s names what a process shows", (_, expr = "") => {
  const usage = usageOf(expr.replace(/svc:[\w:]+/g, (series) => recordings().get(series) ?? series));

  expect(usage.selectors).not.toEqual([]);
  expect(unknownIn(usage)).toEqual([]);
});

describe("the dashboard", () => {
  const { panels, templating, annotations } = dashboard();
  const queried = panels.filter(({ type }) => type !== "row").map((panel) => [panel.title, panel] as const);

  test.each(queried)("panel %s: its queries are there and name what a process shows", (_, panel) => {
    const expressions = (panel.targets ?? []).map(({ expr }) => expr);

    expect(expressions).not.toEqual([]);
    for (const expression of expressions) {
      const usage = usageOf(expression);
      expect(usage.selectors).not.toEqual([]);
      expect(unknownIn(usage)).toEqual([]);
    }
  });

  test("its annotations do, too", () => {
    expect(annotations.list.flatMap(({ expr }) => unknownIn(usageOf(expr)))).toEqual([]);
  });

  test("its variables take their values from labels that are there", () => {
    const queries = templating.list.flatMap(({ query }) => (typeof query === "string" ? [] : [query.query]));
    for (const query of queries) {
      const [, selector = "", label = ""] = /^label_values\((.+), (\w+)\)$/.exec(query) ?? [];
      const { selectors } = usageOf(selector);
      expect(selectors).toHaveLength(1);
      expect(unknownIn({ selectors, grouping: [label], made: [] })).toEqual([]);
    }

    expect(templating.list.map(({ name }) => name)).toEqual([
      "datasource",
      "namespace",
      "job",
      "instance",
      "destination",
    ]);
  });

  test("each of its queries is bounded by namespace, job and instance", () => {
    const selectors = dashboardQueries(dashboard()).flatMap((expr) => expr.match(/\w+\{[^}]*\}/g) ?? []);
    const own = dashboardQueries(dashboard()).flatMap((expr) => usageOf(expr).selectors);
    const bounds = 'namespace=~"$namespace", job=~"$job", instance=~"$instance"';

    expect(selectors).toHaveLength(own.length);
    expect(selectors.filter((selector) => !selector.includes(bounds))).toEqual([]);
  });

  test("its queries use variables that are there", () => {
    const own = templating.list.map(({ name }) => `$${name}`);
    const grafana = ["$__rate_interval", "$__range"];
    const used = dashboardQueries(dashboard()).flatMap((expr) => expr.match(/\$\w+/g) ?? []);

    expect(used.filter((name) => ![...own, ...grafana].includes(name))).toEqual([]);
    expect(used).toEqual(expect.arrayContaining(["$job", "$instance", "$destination"]));
  });
});

describe.each(["README.md", "docs/operations.md", "docs/runbook.md", "docs/metrics.md"])("%s", (page) => {
  test("names metrics and labels that a process shows", () => {
    const names = [...read(page).matchAll(/\b((?:svc|process|nodejs)_[a-z0-9_]+)(?:\{([^}`\n]*)\})?/g)];
    const wrong = names.flatMap(([, name = "", matchers = ""]) => {
      if (NO_METRICS.includes(name) || types.get(name) === "histogram") return [];
      // A page may name a label alone, as in `svc_claims_lost_total{component}`.
      const complete = matchers.replace(/(^|,\s*)(\w+)(?=$|,)/g, '$1$2=~".*"');
      return unknownIn(usageOf(matchers === "" ? name : `${name}{${complete}}`));
    });

    expect(wrong).toEqual([]);
  });
});
