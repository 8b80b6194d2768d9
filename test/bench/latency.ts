import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Environment } from "./environment.ts";
import { type Figure, median } from "./report.ts";

const MESSAGES = 500;
/** So long that only a wake can be the cause of a delivery. */
const SLOW_MS = 5000;

/**
 * (m) Single messages over HTTP, from the answer that says they are committed to their arrival at the receiver: with relay and poller in the process
 * that took them, and each in a process of its own, woken by `NOTIFY`.
 */
export async function latency(environment: Environment): Promise<readonly Figure[]> {
  const arrivals = await startArrivals();
  const settings = {
    OUTBOX_POLLINTERVALMS: SLOW_MS,
    DESTINATIONS_RECEIVER_BASEURL: arrivals.url,
  };
  try {
    const whole = await environment.svc([], settings);
    const inProcess = await measureLatencies(whole.port, arrivals);
    await whole.stop();

    const taking = await environment.svc(["ingest", "relay"], settings);
    const delivering = await environment.svc(["poller"], settings);
    const notified = await measureLatencies(taking.port, arrivals);
    await taking.stop();
    await delivering.stop();
    return [
      figure("(m) commit to delivery, woken in the process", inProcess, 20, 50),
      figure("(m) commit to delivery, woken by NOTIFY", notified, 100, 200),
    ];
  } finally {
    arrivals.close();
  }
}

function figure(name: string, values: readonly number[], medianMs: number, p99Ms: number): Figure {
  return {
    name,
    value: `${milliseconds(median(values))} median, ${milliseconds(p99(values))} p99`,
    baseline: "",
    ratio: undefined,
    target: `< ${medianMs} and ${p99Ms} ms`,
    met: median(values) < medianMs && p99(values) < p99Ms,
  };
}

/**
 * Posts single messages.
 *
 * @param port of the service
 * @returns for each message the ms from the answer that says it is committed to its arrival
 */
async function measureLatencies(port: number, arrivals: Arrivals): Promise<readonly number[]> {
  const latencies: number[] = [];
  for (let n = 0; n < MESSAGES; n += 1) {
    const body = JSON.stringify({ id: `${port}-${n}`, key: `key-${n % 50}` });
    const arrival = arrivals.of(body);
    const answer = await fetch(`http://127.0.0.1:${port}/inbox/bench`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    });
    const committedAt = performance.now();
    await answer.arrayBuffer();
    if (answer.status !== 202) throw new Error(`a message was answered with ${answer.status}`);
    // A delivery that was faster than the answer took no time.
    latencies.push(Math.max(0, (await arrival) - committedAt));
    // The announcements of the relay are at most one in 50 ms: single messages are further apart.
    await sleep(60 + Math.random() * 20);
  }
  return latencies;
}

interface Arrivals {
  readonly url: string;
  /** Resolves with the time at which the payload came. */
  of(payload: string): Promise<number>;
  close(): void;
}

/** A receiver in this very process, so that one clock measures both ends. */
async function startArrivals(): Promise<Arrivals> {
  const waiting = new Map<string, (at: number) => void>();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      waiting.get(body)?.(performance.now());
      waiting.delete(body);
      response.writeHead(204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    of: (payload) => new Promise((resolve) => waiting.set(payload, resolve)),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function p99(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Number.NaN;
}

/** For the table. */
function milliseconds(value: number): string {
  return `${value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en-US")} ms`;
}
