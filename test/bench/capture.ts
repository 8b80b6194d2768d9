import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Arrivals, milliseconds as ms, p99, startArrivals } from "./arrivals.ts";
import { type Environment, until } from "./environment.ts";
import { type Figure, median } from "./report.ts";

/** Change capture: how soon after its commit a single insert is delivered. */

const SLOW_MS = 5000;
const INSERTS = 500;
/** At moments that have nothing to do with the poller's. */
const POLLED_INSERTS = 60;
const DEFAULT_POLL_MS = 100;

export async function captureLatency(environment: Environment): Promise<readonly Figure[]> {
  const { sql, svc } = environment;
  await sql.query("CREATE PUBLICATION svc_outbox FOR TABLE outbox (id) WITH (publish = 'insert')");
  const arrivals = await startArrivals();
  const destination = { DESTINATIONS_RECEIVER_BASEURL: arrivals.url };
  try {
    const fast = await svc(["poller"], { ...destination, OUTBOX_POLLINTERVALMS: DEFAULT_POLL_MS });
    const polledFast = await spread(environment, arrivals, DEFAULT_POLL_MS);
    await fast.stop();

    const slow = await svc(["poller"], { ...destination, OUTBOX_POLLINTERVALMS: SLOW_MS });
    const polledSlow = await spread(environment, arrivals, SLOW_MS);
    await slow.stop();

    const capturing = await svc(["capture", "poller"], {
      ...destination,
      OUTBOX_POLLINTERVALMS: SLOW_MS,
      ...captureSettings(environment, SLOW_MS),
    });
    await captureIsUp(capturing.port);
    const captured: number[] = [];
    for (let n = 0; n < INSERTS; n += 1) {
      captured.push(await (await insert(environment, arrivals)).delivered);
      await sleep(Math.random() * 20);
    }
    await capturing.stop();
    const baseline = (of: (values: readonly number[]) => number) =>
      `${ms(of(polledSlow))} polled every 5 s, ${ms(of(polledFast))} every 100 ms`;
    return [
      latency("insert to delivery by capture, median", median(captured), median(polledSlow), baseline(median), 50),
      latency("insert to delivery by capture, p99", p99(captured), p99(polledSlow), baseline(p99), 100),
    ];
  } finally {
    arrivals.close();
  }
}

function latency(name: string, value: number, polled: number, baseline: string, targetMs: number): Figure {
  return {
    name,
    value: ms(value),
    baseline,
    ratio: value / polled,
    target: `< ${targetMs} ms`,
    met: value < targetMs,
  };
}

function captureSettings({ directory }: Environment, reconciliationMs: number): Record<string, string | number> {
  return {
    OUTBOX_CAPTURE_ENABLED: "true",
    OUTBOX_CAPTURE_MODE: "postgres-logical",
    OUTBOX_CAPTURE_STATEDIRECTORY: path.join(directory, "capture"),
    OUTBOX_CAPTURE_RECONCILIATIONINTERVALMS: reconciliationMs,
  };
}

async function captureIsUp(port: number): Promise<void> {
  await until(async () => {
    const { components } = (await (await fetch(`http://127.0.0.1:${port}/health`)).json()) as {
      components: Record<string, { status: string }>;
    };
    return components["outbox-capture"]?.status === "up";
  });
}

let inserted = 0;

/** Inserts one row in a transaction of its own. `delivered` is the time from the insert's beginning to the arrival, in ms. */
async function insert({ sql }: Environment, arrivals: Arrivals) {
  inserted += 1;
  const payload = JSON.stringify({ inserted });
  const arrival = arrivals.of(payload);
  const startedAt = performance.now();
  await sql.query("INSERT INTO outbox (topic, payload) VALUES ('bench', $1)", [payload]);
  return { delivered: arrival.then((at) => at - startedAt) };
}

/** Latencies of inserts at random moments of some poll intervals. */
async function spread(environment: Environment, arrivals: Arrivals, intervalMs: number): Promise<readonly number[]> {
  const pauseMs = (4 * intervalMs) / POLLED_INSERTS;
  const delivered: Promise<number>[] = [];
  for (let n = 0; n < POLLED_INSERTS; n += 1) {
    delivered.push((await insert(environment, arrivals)).delivered);
    await sleep(Math.random() * 2 * pauseMs);
  }
  return await Promise.all(delivered);
}
