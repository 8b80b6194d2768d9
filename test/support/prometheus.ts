import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { toolPath } from "./describeWithTools.ts";
import { eventually } from "./eventually.ts";
import { freePort } from "./ports.ts";

/** A process to scrape. */
export interface Target {
  readonly port: number;
  /** Labels of its series; `job` and `instance` among them. */
  readonly labels: Readonly<Record<string, string>>;
}

export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  /** Time in seconds, and the value. */
  readonly value: readonly [number, string];
}

export interface ActiveAlert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly state: "pending" | "firing";
}

/** A Prometheus server of the test's own, on 127.0.0.1. */
export interface Prometheus {
  /** Scrapes these and no others. */
  scrape(targets: readonly Target[]): void;
  /** The result of an instant query. @throws Error with what the server says of an expression that it cannot evaluate */
  query(expression: string): Promise<readonly Sample[]>;
  /** Alerts that are pending or firing. */
  alerts(): Promise<readonly ActiveAlert[]>;
  close(): Promise<void>;
}

/** Between two scrapes if nothing else is asked for: three fit into the second that five minutes of a rule take. */
const SCRAPE_MS = 300;
/** Between two evaluations of the rules. */
export const EVALUATION_MS = 500;

export interface PrometheusOptions {
  /** Text of a rule file. */
  readonly rules: string;
  /** Between two scrapes, and the longest time that one may take (default 300). */
  readonly scrapeMs?: number;
}

/** Starts a server and waits until it answers. */
export async function startPrometheus({ rules, scrapeMs = SCRAPE_MS }: PrometheusOptions): Promise<Prometheus> {
  const folder = mkdtempSync(path.join(tmpdir(), "svc-prometheus-"));
  const file = (name: string) => path.join(folder, name);
  const scrape = (targets: readonly Target[]) => {
    const groups = targets.map(({ port, labels }) => ({ targets: [`127.0.0.1:${port}`], labels }));
    // Renamed into its place: the server must never read half of it.
    writeFileSync(file("targets.new"), JSON.stringify(groups));
    renameSync(file("targets.new"), file("targets.json"));
  };
  scrape([]);
  writeFileSync(file("rules.yml"), rules);
  writeFileSync(file("prometheus.yml"), JSON.stringify(configuration(folder, scrapeMs)));

  const port = await freePort();
  const child = spawn(
    toolPath("prometheus"),
    [
      `--config.file=${file("prometheus.yml")}`,
      `--storage.tsdb.path=${file("data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
      "--log.level=error",
    ],
    // It lives for a minute: without this it collects garbage all the time.
    { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, GOGC: "400" } },
  );
  const errors: string[] = [];
  child.stderr.on("data", (chunk: Buffer) => errors.push(chunk.toString("utf8")));
  const ended = once(child, "close");
  const close = async () => {
    child.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };

  const get = async <T>(route: string): Promise<T> => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/${route}`, { headers: { connection: "close" } });
    const answer = (await response.json()) as { readonly status: string; readonly data: T; readonly error?: string };
    if (answer.status !== "success") throw new Error(`Prometheus: ${answer.error}`);
    return answer.data;
  };
  try {
    await eventually(() => get("status/buildinfo"), { timeoutMs: 30_000, label: "an answer of Prometheus" });
  } catch (error) {
    await close();
    throw new Error(`Prometheus does not start: ${errors.join("")}`, { cause: error });
  }
  return {
    scrape,
    close,
    query: async (expression) => {
      const { result } = await get<{ result: readonly Sample[] }>(`query?query=${encodeURIComponent(expression)}`);
      return result;
    },
    alerts: async () => (await get<{ alerts: readonly ActiveAlert[] }>("alerts")).alerts,
  };
}

function configuration(folder: string, scrapeMs: number): unknown {
  const every = `${scrapeMs}ms`;
  return {
    global: { scrape_interval: every, scrape_timeout: every, evaluation_interval: `${EVALUATION_MS}ms` },
    rule_files: [path.join(folder, "rules.yml")],
    scrape_configs: [
      {
        job_name: "targets",
        // What a process shows and what the scrape knows of it must not share a label.
        honor_labels: false,
        file_sd_configs: [{ files: [path.join(folder, "targets.json")], refresh_interval: "1s" }],
      },
    ],
  };
}

const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/**
 * Divides every duration of a rule file: waits, ranges and offsets. Thresholds stay.
 *
 * @param rules text of the file
 */
export function shortened(rules: string, factor: number): string {
  const divide = (_: string, count: string, unit: keyof typeof UNIT_MS) =>
    `${Math.ceil((Number(count) * UNIT_MS[unit]) / factor)}ms`;
  return rules.replace(/(?<=\[|offset )(\d+)([mhd])\b/g, divide).replace(/(?<=^ *for: )(\d+)([mhd])$/gm, divide);
}

/** A bound of a rule that no test reaches in its time, and the bound that replaces it. */
export interface Threshold {
  readonly alert: string;
  /** As in the rule's expression. */
  readonly text: string;
  readonly with: string;
}

/**
 * Replaces bounds in a rule file.
 *
 * @throws Error unless each text occurs exactly once in the expression of its alert
 */
export function withThresholds(rules: string, thresholds: readonly Threshold[]): string {
  return thresholds.reduce((text, threshold) => {
    const [, head = "", expression = "", tail = ""] =
      new RegExp(`^(.*\\n *- alert: ${threshold.alert}\\n)(.*?)(\\n *for: .*)$`, "s").exec(text) ?? [];
    const count = expression.split(threshold.text).length - 1;
    if (count !== 1) {
      throw new Error(`the expression of ${threshold.alert} has "${threshold.text}" ${count} times; expected is once`);
    }
    return `${head}${expression.replace(threshold.text, () => threshold.with)}${tail}`;
  }, rules);
}
