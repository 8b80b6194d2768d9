/** One line of the table. */
export interface Figure {
  readonly name: string;
  readonly value: string;
  readonly baseline: string;
  /** value / baseline, or undefined for an absolute figure. */
  readonly ratio: number | undefined;
  readonly target: string;
  readonly met: boolean;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

export function perSecond(count: number, ms: number): number {
  return (count / ms) * 1000;
}

export const rate = (perSecondValue: number): string => `${Math.round(perSecondValue).toLocaleString("en-US")}/s`;

export function printTable(figures: readonly Figure[]): void {
  const rows = figures.map(({ name, value, baseline, ratio, target, met }) => [
    name,
    value,
    baseline,
    ratio === undefined ? "" : ratio.toFixed(2),
    target,
    met ? "met" : "MISSED",
  ]);
  const all = [["benchmark", "value", "baseline in the same run", "ratio", "target", ""], ...rows];
  const widths = (all[0] ?? []).map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  for (const row of all) {
    process.stdout.write(
      `${row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd()}\n`,
    );
  }
}
