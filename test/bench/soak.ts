import { setTimeout as sleep } from "node:timers/promises";
import { type Environment, residentMiB } from "./environment.ts";
import type { Figure } from "./report.ts";

const MINUTES = Number(process.env.BENCH_SOAK_MINUTES ?? 10);
/** The engine sizes its heap by what it sees in the first minutes. */
const WARM_UP_MINUTES = Math.min(2, MINUTES / 4);
const SAMPLE_MS = 2000;

/** (t) Resident memory of one process with every role under steady traffic: the slope of a line through it after the warm-up. */
export async function soak(environment: Environment): Promise<readonly Figure[]> {
  const receiver = await environment.program("receiver.js", []);
  const svc = await environment.svc([], {
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
    RETENTION_ENABLED: "true",
    RETENTION_OUTBOX_POLICY: "COUNT",
    RETENTION_OUTBOX_MAXCOUNT: 10_000,
    RETENTION_INBOX_POLICY: "AGE",
    RETENTION_INBOX_MAXAGE: "10s",
  });
  const sender = await environment.program("sender.js", [svc.port, "/inbox/bench", 8, 500]);
  const startedAt = performance.now();
  const minutes = () => (performance.now() - startedAt) / 60_000;
  const samples: { readonly x: number; readonly y: number }[] = [];
  sender.tell(String(MINUTES * 60_000));
  while (minutes() < MINUTES) {
    await sleep(SAMPLE_MS);
    const memory = residentMiB(svc.pid);
    if (memory !== undefined && minutes() > WARM_UP_MINUTES) samples.push({ x: minutes(), y: memory });
  }
  const [accepted = 0] = (await sender.line()).split(" ").map(Number);
  const perMinute = slope(samples);
  const values = samples.map(({ y }) => y);
  return [
    {
      name: `(t) resident memory over ${MINUTES} minutes of traffic`,
      value: `${perMinute >= 0 ? "+" : ""}${perMinute.toFixed(2)} MiB/min, ${Math.round(Math.min(...values))} to ${Math.round(Math.max(...values))} MiB`,
      baseline: `${accepted.toLocaleString("en-US")} messages`,
      ratio: undefined,
      target: "< 1 MiB/min",
      met: perMinute < 1,
    },
  ];
}

/** Of the line with the least squares. */
function slope(points: readonly { readonly x: number; readonly y: number }[]): number {
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [meanX, meanY] = [mean(points.map(({ x }) => x)), mean(points.map(({ y }) => y))];
  const covariance = points.reduce((sum, { x, y }) => sum + (x - meanX) * (y - meanY), 0);
  const variance = points.reduce((sum, { x }) => sum + (x - meanX) ** 2, 0);
  return covariance / variance;
}
