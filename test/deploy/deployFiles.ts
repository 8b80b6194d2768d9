import { load } from "js-yaml";
import { read } from "../support/repository.ts";

export interface AlertRule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** The rules for every installation, and the rules that the chart adds. */
export const RULE_FILES = ["deploy/prometheus/alerts.yml", "helm/svc/files/alerts-kubernetes.yml"] as const;

interface RecordingRule {
  readonly record: string;
  readonly expr: string;
}

/** Every alert of the files, in their order. */
export function alertRules(files: readonly (typeof RULE_FILES)[number][] = RULE_FILES): readonly AlertRule[] {
  return rulesOf(files).flatMap((rule) => ("alert" in rule ? [rule] : []));
}

/** The expression of each recorded series. */
export function recordings(): ReadonlyMap<string, string> {
  return new Map(rulesOf(RULE_FILES).flatMap((rule) => ("record" in rule ? [[rule.record, rule.expr]] : [])));
}

function rulesOf(files: readonly (typeof RULE_FILES)[number][]): readonly (AlertRule | RecordingRule)[] {
  return files.flatMap((file) => {
    const { groups } = load(read(file)) as { groups: { rules: (AlertRule | RecordingRule)[] }[] };
    return groups.flatMap(({ rules }) => rules);
  });
}

export interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly gridPos: Readonly<Record<"x" | "y" | "w" | "h", number>>;
  readonly targets?: readonly { readonly expr: string; readonly refId: string }[];
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
}

export interface Dashboard {
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly query: string | { readonly query: string } }[];
  };
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
  readonly panels: readonly Panel[];
}

export function dashboard(): Dashboard {
  return JSON.parse(read("deploy/grafana/svc-dashboard.json")) as Dashboard;
}

/** Every expression of the dashboard, those of its variables left out. */
export function dashboardQueries({ panels, annotations }: Dashboard): readonly string[] {
  return [...panels.flatMap(({ targets = [] }) => targets), ...annotations.list].map(({ expr }) => expr);
}
