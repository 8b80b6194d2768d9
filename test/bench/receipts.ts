import { acceptedIn } from "./accepted.ts";
import type { Environment } from "./environment.ts";
import { vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

/** (b) HTTP receipt, against the same server without a database. */
export async function receipt(environment: Environment): Promise<Figure[]> {
  // Short rounds: the machine's speed drifts, and each is held against its neighbour.
  const rounds = 9;
  const seconds = 1.5;
  const svc = await environment.svc(["ingest"], {});
  const bare = await environment.program("serverWithoutDatabase.js", []);
  const [svcSender, bareSender] = [
    await environment.program("sender.js", [svc.port, "/inbox/bench", 64, 500]),
    await environment.program("sender.js", [bare.port, "/inbox/bench", 64, 500]),
  ];
  const { value, baseline, ratio } = await inTurns(
    environment,
    rounds,
    async () => (await acceptedIn(svcSender, seconds * 1000)) / seconds,
    async () => (await acceptedIn(bareSender, seconds * 1000)) / seconds,
  );
  for (const program of [svcSender, bareSender, bare, svc]) await program.stop();
  return [
    {
      name: "(b) HTTP receipt, 64 connections, 1 kB",
      value: rate(value),
      baseline: `${rate(baseline)} without a database`,
      ratio,
      target: ">= 0.6",
      met: ratio >= 0.6,
    },
  ];
}

/** Messages of one request, and bytes of padding in each: together they fit into `inbox.maxBodyBytes` as it comes. */
const [BATCH, PADDING] = [10_000, 40];
/** That send batches. */
const CONNECTIONS = 4;

/** (z) HTTP receipt of requests with 10,000 lines over four connections, against the same messages alone over 64 connections. */
export async function receiptBatches(environment: Environment): Promise<Figure[]> {
  const svc = await environment.svc(["ingest"], {});
  const sender = await environment.program("sender.js", [svc.port, "/inbox/bench", 64, 500, PADDING]);
  const padding = "x".repeat(PADDING);
  let next = 0;
  const line = () => `{"id":"batch-${++next}","key":"key-${next % 500}","padding":"${padding}"}\n`;
  const inBatches = async (): Promise<number> => {
    const bodies = Array.from({ length: 16 }, () => Array.from({ length: BATCH }, line).join(""));
    const startedAt = performance.now();
    const waiting = bodies.values();
    const connection = async () => {
      for (const body of waiting) {
        const headers = { "content-type": "application/x-ndjson" };
        const answer = await fetch(`http://127.0.0.1:${svc.port}/inbox/bench`, { method: "POST", headers, body });
        const text = await answer.text();
        if (answer.status !== 202) throw new Error(`a batch got ${answer.status}: ${text.slice(0, 200)}`);
      }
    };
    await Promise.all(Array.from({ length: CONNECTIONS }, connection));
    return perSecond(bodies.length * BATCH, performance.now() - startedAt);
  };
  const single = async () => (await acceptedIn(sender, 1500)) / 1.5;
  const { value, baseline, ratio } = await inTurns(environment, 5, inBatches, single);
  await sender.stop();
  await svc.stop();
  return [
    {
      name: "(z) HTTP receipt, 10,000 lines of 100 bytes a request",
      value: rate(value),
      baseline: `${rate(baseline)} alone, 64 connections`,
      ratio,
      target: ">= 3",
      met: ratio >= 3,
    },
  ];
}

/** Measures both in turns, after a round to warm up, each on an empty inbox. @returns the medians of both rates and of their ratio */
async function inTurns(
  environment: Environment,
  rounds: number,
  measured: () => Promise<number>,
  baseline: () => Promise<number>,
): Promise<{ value: number; baseline: number; ratio: number }> {
  const pairs: { value: number; baseline: number }[] = [];
  for (let round = 0; round <= rounds; round += 1) {
    await environment.sql.query("TRUNCATE inbox");
    await vacuum(environment);
    const pair = { value: await measured(), baseline: await baseline() };
    if (round > 0) pairs.push(pair);
  }
  return {
    value: median(pairs.map((pair) => pair.value)),
    baseline: median(pairs.map((pair) => pair.baseline)),
    ratio: median(pairs.map((pair) => pair.value / pair.baseline)),
  };
}
