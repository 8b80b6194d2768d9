import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

interface Series {
  readonly name: string;
  /** Name of a custom property of the style sheet with its colour. */
  readonly color: string;
  /** Dashes tell it from the others where colours do not. */
  readonly dash?: number[];
  readonly values: readonly number[];
}

interface ChartProps {
  /** What it shows, in words: a screen reader gets nothing else. */
  readonly label: string;
  readonly times: readonly string[];
  readonly series: readonly Series[];
}

const HEIGHT = 96;

/** A line chart of a value a minute; it grows with its column. */
export function Chart({ label, times, series }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const shape = series.map(({ name }) => name).join();
  const data: uPlot.AlignedData = [
    times.map((at) => Date.parse(at) / 1000),
    ...series.map(({ values }) => [...values]),
  ];
  const newest = useRef(data);
  newest.current = data;

  // The series themselves are read when the chart is made; later ones of the same shape only bring new data.
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const make = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element, series), newest.current, element);
    };
    make();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    // Canvas does not follow the style sheet.
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data));
  return (
    <figure class="chart">
      <div ref={host} role="img" aria-label={label} />
      <figcaption>
        {series.map(({ name, color }) => (
          <span key={name} class="key">
            <span class={`line ${color.slice(2)}`} aria-hidden="true" /> {name}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

function options(element: HTMLElement, series: readonly Series[]): uPlot.Options {
  const style = getComputedStyle(element);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--quiet"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: Math.max(1, element.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [6, 18, 0, 0],
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [
      { ...axis, size: 22, space: 70, values: (_plot, times) => times.map(clock) },
      { ...axis, size: 40, space: 30, values: (_plot, values) => values.map(short) },
    ],
    series: [
      {},
      ...series.map(({ name, color: line, dash }) => ({
        label: name,
        stroke: color(line),
        width: 1.5,
        points: { show: false },
        ...(dash === undefined ? {} : { dash }),
      })),
    ],
  };
}

function clock(seconds: number): string {
  const at = new Date(seconds * 1000);
  return `${String(at.getUTCHours()).padStart(2, "0")}:${String(at.getUTCMinutes()).padStart(2, "0")}`;
}

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const short = (value: number): string => SHORT.format(value);
