/** The OpenMetrics form of the Prometheus text format (https://prometheus.io/docs/specs/om/open_metrics_spec/). */
export const OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/** The last trace of each bucket of a histogram, by its line in the text. */
export class Exemplars {
  readonly #name: string;
  readonly #buckets: readonly number[];
  readonly #latest = new Map<string, string>();

  /** @param buckets upper bounds, ascending */
  constructor(name: string, buckets: readonly number[]) {
    this.#name = name;
    this.#buckets = buckets;
  }

  /** @param labels in the order of the text, without `le` @param now ms since 1970 */
  add(labels: Readonly<Record<string, string>>, value: number, traceId: string, now: number): void {
    const bound = this.#buckets.find((bucket) => value <= bucket) ?? "+Inf";
    const others = Object.entries(labels).map(([name, text]) => `,${name}="${text.replace(/[\\"\n]/g, escaped)}"`);
    const line = `${this.#name}_bucket{le="${bound}"${others.join("")}}`;
    this.#latest.set(line, ` # {trace_id="${traceId}"} ${value} ${now / 1000}`);
  }

  /** @param series the part of a line before its value */
  of(series: string): string {
    return this.#latest.get(series) ?? "";
  }
}

const escaped = (character: string): string => (character === "\n" ? "\\n" : `\\${character}`);

/** @param text all metrics in the Prometheus text format */
export function openMetricsText(text: string, exemplars: Exemplars): string {
  const lines = text.split("\n").filter((line) => line !== "");
  const counters = new Set(lines.flatMap((line) => /^# TYPE (\S+)_total counter$/.exec(line)?.[1] ?? []));
  const written = lines.map((line) => {
    const [, keyword, name, rest] = /^# (HELP|TYPE) (\S+)_total (.*)$/.exec(line) ?? [];
    if (name !== undefined && counters.has(name)) return `# ${keyword} ${name} ${rest}`;
    return line.startsWith("#") ? line : line + exemplars.of(line.slice(0, line.lastIndexOf(" ")));
  });
  return `${written.join("\n")}\n# EOF\n`;
}

/** Whether a client asks for OpenMetrics (its `Accept` header), as Prometheus does by default. */
export function wantsOpenMetrics(accept: string | undefined): boolean {
  return accept?.includes("application/openmetrics-text") === true;
}
