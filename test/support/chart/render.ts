import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { load, loadAll } from "js-yaml";
import { toolPath } from "../describeWithTools.ts";
import type { Manifest } from "./manifests.ts";

/** The chart's folder. */
export const CHART = fileURLToPath(new URL("../../../helm/svc", import.meta.url));

/** The value sets of `ci/`, by the names of their files without `-values.yaml`. */
export const VALUE_SETS: readonly string[] = readdirSync(path.join(CHART, "ci"))
  .filter((file) => file.endsWith("-values.yaml"))
  .map((file) => file.slice(0, -"-values.yaml".length))
  .sort();

/** The release that the tests render. */
export const RELEASE = { name: "shop", namespace: "messaging", fullname: "shop-svc" } as const;

/** What helm takes a cluster for: a helm that was built from its source knows no version. */
export const KUBERNETES = ["--kube-version", "1.34.0"];

export interface RenderOptions {
  /** Names of {@link VALUE_SETS}, or paths of files; later ones win. */
  readonly values: readonly string[];
  /** Values over those, by their path; a map replaces the whole map below it. */
  readonly set?: Readonly<Record<string, unknown>>;
  /** URL of an API server: renders what an upgrade of a release there would, with its objects for `lookup`. */
  readonly upgradeOf?: string;
}

const run = promisify(execFile);

/** Runs helm, which needs no cluster for what the tests ask. @throws Error with what it wrote when it fails */
export async function helm(args: readonly string[]): Promise<string> {
  // Plug-ins and repositories of the developer's own have no part in it.
  // A process of a tenth of a second spends half of it on collecting garbage.
  const env = { PATH: process.env.PATH, HOME: "/nonexistent", HELM_PLUGINS: "/nonexistent", GOGC: "off" };
  const { stdout } = await run(toolPath("helm"), [...args], { env, maxBuffer: 64 * 1024 * 1024 });
  return stdout;
}

/** The objects that the chart makes of values. @throws Error with helm's message when it refuses them */
export async function render(options: RenderOptions): Promise<readonly Manifest[]> {
  return objectsOf(await template(CHART, options));
}

function objectsOf(text: string): Manifest[] {
  return loadAll(text).filter((document) => document !== null && document !== undefined) as Manifest[];
}

/** Why the chart refuses values: helm's message. @throws Error when it takes them */
export async function refusal(options: RenderOptions): Promise<string> {
  try {
    await render(options);
  } catch (error) {
    return (error as { readonly stderr?: string }).stderr ?? String(error);
  }
  throw new Error(`the chart takes ${JSON.stringify(options)}`);
}

/** `helm lint --strict` of a value set. @throws Error with what it found */
export async function lint(options: RenderOptions): Promise<string> {
  return await helm([
    "lint",
    "--strict",
    CHART,
    ...KUBERNETES,
    "--namespace",
    RELEASE.namespace,
    ...valueArguments(options),
  ]);
}

function valueArguments({ values, set = {} }: RenderOptions): string[] {
  const files = values.map((name) => (path.isAbsolute(name) ? name : path.join(CHART, "ci", `${name}-values.yaml`)));
  const single = Object.entries(set).flatMap(([key, value]) => ["--set-json", `${key}=${JSON.stringify(value)}`]);
  return [...files.flatMap((file) => ["--values", file]), ...single];
}

/** Runs a task for each item, two at a time. */
export async function forEach<T>(items: readonly T[], task: (item: T) => Promise<void>): Promise<void> {
  const waiting = [...items];
  const worker = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await task(item);
  };
  await Promise.all([worker(), worker()]);
}

/** The text of NOTES.txt. Without a cluster helm does not show it: it is rendered as an object of a copy of the chart. */
export async function renderNotes(options: RenderOptions): Promise<string> {
  const folder = mkdtempSync(path.join(tmpdir(), "svc-test-chart-"));
  try {
    const templates = path.join(folder, "templates");
    cpSync(CHART, folder, { recursive: true });
    const notes = readFileSync(path.join(templates, "NOTES.txt"), "utf8");
    writeFileSync(path.join(templates, "_notes.tpl"), `{{- define "notes" -}}\n${notes}\n{{- end -}}`);
    writeFileSync(path.join(templates, "notes.yaml"), `notes: {{ include "notes" . | toJson }}\n`);
    rmSync(path.join(templates, "NOTES.txt"));
    const [document] = loadAll(await template(folder, options, ["--show-only", "templates/notes.yaml"]));
    return (document as { readonly notes: string }).notes;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The objects of a chart that has this one as a dependency with the condition `svc.enabled`, and names the values below `svc`. */
export async function renderUmbrella(enabled: boolean, sets: readonly string[]): Promise<readonly Manifest[]> {
  const folder = mkdtempSync(path.join(tmpdir(), "svc-test-umbrella-"));
  try {
    const { version } = load(readFileSync(path.join(CHART, "Chart.yaml"), "utf8")) as { readonly version: string };
    cpSync(CHART, path.join(folder, "charts", "svc"), { recursive: true });
    const dependencies = [{ name: "svc", version, repository: "", condition: "svc.enabled" }];
    const chart = { apiVersion: "v2", name: "umbrella", version: "1.0.0", dependencies };
    writeFileSync(path.join(folder, "Chart.yaml"), JSON.stringify(chart));
    const values = sets.map((set, index) => {
      const file = path.join(folder, `${index}.json`);
      const svc = load(readFileSync(path.join(CHART, "ci", `${set}-values.yaml`), "utf8")) as object;
      writeFileSync(file, JSON.stringify({ global: { region: "north" }, svc: { ...svc, enabled } }));
      return file;
    });
    return objectsOf(await template(folder, { values }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function template(chart: string, options: RenderOptions, more: readonly string[] = []): Promise<string> {
  const to = ["--namespace", RELEASE.namespace];
  if (options.upgradeOf !== undefined) {
    to.push("--is-upgrade", "--dry-run=server", "--kube-apiserver", options.upgradeOf);
  }
  return await helm(["template", RELEASE.name, chart, ...KUBERNETES, ...to, ...valueArguments(options), ...more]);
}
