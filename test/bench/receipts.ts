import { acceptedIn } from "./accepted.ts";
import { inboxRow } from "./endToEnd.ts";
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

/**
 * (b) HTTP receipt where a commit waits 5 ms for its disk or its standby: `commit_delay` lets it wait as long, and as there one wait serves all
 * who commit meanwhile. Against one insert after the other, of half of the connections each.
 */
export async function receiptSlowCommits(environment: Environment): Promise<Figure[]> {
  const { sql, store } = environment;
  const [commitMs, connections, seconds, rounds] = [5, 64, 2, 5];
  await sql.query(`ALTER DATABASE postgres SET commit_delay = ${commitMs * 1000}`);
  await sql.query("ALTER DATABASE postgres SET commit_siblings = 0");
  const svc = await environment.svc(["ingest"], {});
  const sender = await environment.program("sender.js", [svc.port, "/inbox/bench", connections, 500]);
  // The environment's own pool is older than the settings.
  await sql.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'svc-bench'");
  let next = 0;
  const rows = () => Array.from({ length: connections / 2 }, () => inboxRow(next++));
  const oneByOne = async (): Promise<number> => {
    const endsAt = performance.now() + seconds * 1000;
    let stored = 0;
    while (performance.now() < endsAt) stored += (await store.inbox.insert(rows())).length;
    return stored / seconds;
  };
  const received = async () => (await acceptedIn(sender, seconds * 1000)) / seconds;
  const { value, baseline, ratio } = await inTurns(environment, rounds, received, oneByOne);
  await sender.stop();
  await svc.stop();
  return [
    {
      name: `(b) HTTP receipt, ${connections} connections, 1 kB, commits of ${commitMs} ms`,
      value: rate(value),
      baseline: `${rate(baseline)} one insert of ${connections / 2} after the other`,
      ratio,
      target: ">= 1",
      met: ratio >= 1,
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
