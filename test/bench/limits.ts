import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { type Environment, type Program, receivedBy, until } from "./environment.ts";
import { fillOutbox, vacuum } from "./outbox.ts";
import { type Figure, perSecond, rate } from "./report.ts";

const REPLICAS = 3;
const PER_SECOND = 50;
const RATE_MS = 60_000;
const PAUSED_ROWS = 1_000_000;
const HEALTHY_ROWS = 150_000;
const HEALTHY_MS = 8000;
/** `BENCH_OUTAGE_MINUTES=10` for a night in short. */
const OUTAGE_MS = Number(process.env.BENCH_OUTAGE_MINUTES ?? 2) * 60_000;
const OUTAGE_ROWS = 200_000;
/** Recovery within 10 s of the return needs a probe well before. */
const BREAKER = { openMs: 2500, maxOpenMs: 5000 };
const SECOND_MS = 1000;

/** (w) What the limits of a destination promise: a rate limit, a pause, and a circuit breaker, each for three replicas. */
export async function limits(environment: Environment): Promise<readonly Figure[]> {
  return [...(await rateLimited(environment)), await besidePaused(environment), ...(await outage(environment))];
}

async function rateLimited(environment: Environment): Promise<readonly Figure[]> {
  const receiver = await startReceiver();
  await fillOutbox(environment, 2 * PER_SECOND * (RATE_MS / SECOND_MS), 500);
  const fleet = await startFleet(environment, { receiver: { ...receiver.at, rateLimit: { perSecond: PER_SECOND } } });
  await until(() => Promise.resolve(receiver.times.length > 0));
  await sleep(RATE_MS + SECOND_MS);
  await Promise.all(fleet.map((svc) => svc.stop()));
  await receiver.close();
  const [first = 0] = receiver.times;
  const mean = receiver.times.filter((at) => at < first + RATE_MS).length / (RATE_MS / SECOND_MS);
  const seconds = countsOfSeconds(receiver.times, first, RATE_MS / SECOND_MS);
  const [least, most] = [Math.min(...seconds), Math.max(...seconds)];
  const mostOfAny = mostInASecond(receiver.times);
  const slice = PER_SECOND / 5;
  return [
    {
      name: `(w) rate limit over ${REPLICAS} replicas, mean of a minute`,
      value: rate(mean),
      baseline: `${rate(PER_SECOND)} configured`,
      ratio: mean / PER_SECOND,
      target: "0.9 to 1, and a slice",
      met: mean >= 0.9 * PER_SECOND && mean <= PER_SECOND + slice / (RATE_MS / SECOND_MS),
    },
    {
      name: `(w) rate limit over ${REPLICAS} replicas, most in any second`,
      value: rate(mostOfAny),
      baseline: `${rate(PER_SECOND)} configured`,
      ratio: mostOfAny / PER_SECOND,
      target: "<= 1.2, a slice above",
      met: mostOfAny <= PER_SECOND + slice,
    },
    {
      name: `(w) rate limit over ${REPLICAS} replicas, seconds of a minute`,
      value: `${rate(least)} to ${rate(most)}`,
      baseline: `${rate(PER_SECOND)} configured`,
      ratio: least / PER_SECOND,
      target: "0.8 to 1.2, a slice around",
      met: least >= PER_SECOND - slice && most <= PER_SECOND + slice,
    },
  ];
}

/** The rate of a destination behind a million rows of one that is paused, against its rate alone. */
async function besidePaused(environment: Environment): Promise<Figure> {
  const { sql } = environment;
  const healthyRate = async (pausedRows: number): Promise<number> => {
    const receiver = await environment.program("receiver.js", []);
    await sql.query("TRUNCATE outbox");
    await sql.query(
      `INSERT INTO outbox_destination (name, paused_at, paused_by, pause_reason) VALUES ('paused', now(), 'bench', 'bench')
       ON CONFLICT (name) DO UPDATE SET paused_at = now()`,
    );
    const front = async () => {
      await sql.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 'paused.' || n, 'paused-' || n % 1000, '{}' FROM generate_series(1, $1::int) n",
        [pausedRows],
      );
    };
    await fillOutbox(environment, HEALTHY_ROWS, 500, { front });
    await vacuum(environment);
    const healthy = { baseUrl: `http://127.0.0.1:${receiver.port}` };
    const [svc] = await startFleet(environment, { receiver: healthy, paused: { baseUrl: "http://127.0.0.1:9" } }, 1);
    await until(async () => (await receivedBy(receiver)) > 0);
    const [before, startedAt] = [await receivedBy(receiver), performance.now()];
    await sleep(HEALTHY_MS);
    const rows = (await receivedBy(receiver)) - before;
    const ms = performance.now() - startedAt;
    await svc?.stop();
    await receiver.stop();
    if (before + rows >= HEALTHY_ROWS) throw new Error("the rows of the healthy destination did not last");
    return perSecond(rows, ms);
  };
  const alone = await healthyRate(0);
  const beside = await healthyRate(PAUSED_ROWS);
  return {
    name: "(w) beside 1,000,000 rows of a paused destination in front",
    value: rate(beside),
    baseline: `${rate(alone)} alone`,
    ratio: beside / alone,
    target: ">= 0.9",
    met: beside / alone >= 0.9,
  };
}

/** A receiver that is down for minutes, behind a breaker: what it costs, and how soon everything is as before. */
async function outage(environment: Environment): Promise<readonly Figure[]> {
  const { sql } = environment;
  const receiver = await startReceiver();
  await sql.query("TRUNCATE outbox");
  await fillOutbox(environment, OUTAGE_ROWS, 500);
  await sql.query("UPDATE outbox SET headers = jsonb_build_object('x-key', key, 'x-sequence', sequence::text)");
  await vacuum(environment);
  const fleet = await startFleet(environment, { receiver: { ...receiver.at, circuitBreaker: BREAKER } });
  await until(() => Promise.resolve(receiver.times.length > 0));
  await sleep(5 * SECOND_MS);
  const full = perSecond(receiver.times.length, 5 * SECOND_MS);
  const lateBefore = receiver.order.late;

  receiver.isWell = false;
  const downAt = performance.now();
  const isOpen = async () => {
    const { rows } = await sql.query(
      "SELECT FROM outbox_destination WHERE name = 'receiver' AND breaker_state = 'open'",
    );
    return rows.length > 0;
  };
  await until(isOpen);
  await sleep(SECOND_MS);
  const openAt = performance.now();
  await sleep(downAt + OUTAGE_MS - openAt);
  const probes = receiver.refused.filter((at) => at > openAt);
  const gaps = probes.slice(1).map((at, n) => at - (probes[n] ?? at));
  const shortest = Math.min(...gaps);

  receiver.isWell = true;
  const backAt = performance.now();
  let recoveredMs = Number.POSITIVE_INFINITY;
  for (let second = 1; second <= 20 && recoveredMs === Number.POSITIVE_INFINITY; second += 1) {
    const before = receiver.times.length;
    await sleep(SECOND_MS);
    if (receiver.times.length - before >= 0.9 * full) recoveredMs = performance.now() - backAt;
  }
  await Promise.all(fleet.map((svc) => svc.stop()));
  await receiver.close();
  const { rows } = await sql.query<{ dead: string; attempt: number }>(
    "SELECT count(*) FILTER (WHERE state = 'dead') AS dead, max(attempt) AS attempt FROM outbox",
  );
  const dead = Number(rows[0]?.dead);
  const { late } = receiver.order;
  const name = `(w) receiver down for ${OUTAGE_MS / 60_000} minutes behind a breaker`;
  return [
    {
      name: `${name}, dead rows`,
      value: String(dead),
      baseline: `most attempts of a row ${rows[0]?.attempt}`,
      ratio: dead,
      target: "0",
      met: dead === 0,
    },
    {
      name: `${name}, rows behind a later one of their key`,
      value: String(late),
      baseline: `${lateBefore} before; ${receiver.times.length.toLocaleString("en-US")} rows taken`,
      ratio: late,
      target: "0",
      met: late === 0,
    },
    {
      name: `${name}, shortest time between two probes of the fleet`,
      value: `${Math.round(shortest)} ms`,
      baseline: `${BREAKER.openMs} ms openMs, ${probes.length} probes`,
      ratio: shortest / BREAKER.openMs,
      target: ">= 1",
      met: shortest >= 0.99 * BREAKER.openMs,
    },
    {
      name: `${name}, from its return to 0.9 of the full rate`,
      value: `${(recoveredMs / SECOND_MS).toFixed(1)} s`,
      baseline: `${rate(full)} before`,
      ratio: recoveredMs / SECOND_MS,
      target: "<= 10",
      met: recoveredMs <= 10 * SECOND_MS,
    },
  ];
}

/** Three pollers with these destinations; topics are routed by their first part, and all others to `receiver`. */
function startFleet(
  environment: Environment,
  destinations: Readonly<Record<string, object>>,
  count = REPLICAS,
): Promise<readonly Program[]> {
  const routes = [
    ...Object.keys(destinations).map((name) => ({ topicPattern: `${name}.**`, destination: name })),
    { topicPattern: "**", destination: "receiver" },
  ];
  return Promise.all(Array.from({ length: count }, () => environment.svc(["poller"], {}, { destinations, routes })));
}

/** In this process, so that each arrival has its time. */
async function startReceiver() {
  const state = { isWell: true, times: [] as number[], refused: [] as number[], order: new KeyOrder() };
  const server = createServer((request, response) => {
    request.resume();
    request.once("end", () => {
      (state.isWell ? state.times : state.refused).push(performance.now());
      state.order.came(request.headers, state.isWell);
      response.writeHead(state.isWell ? 204 : 503).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(state, {
    at: { baseUrl: `http://127.0.0.1:${port}` },
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}

/** Whether the rows of each key come in their order, by their headers `x-key` and `x-sequence`. */
class KeyOrder {
  /** Rows that came behind a later one of their key, or before an earlier one that was refused and has not come back. */
  late = 0;
  readonly #taken = new Map<string, number>();
  readonly #refused = new Map<string, number>();

  came({ "x-key": key, "x-sequence": text }: IncomingHttpHeaders, isTaken: boolean): void {
    if (typeof key !== "string") return;
    const sequence = Number(text);
    const isFirst = sequence <= (this.#refused.get(key) ?? Number.POSITIVE_INFINITY);
    if (!isFirst || sequence <= (this.#taken.get(key) ?? 0)) this.late += 1;
    if (isTaken) {
      this.#taken.set(key, sequence);
      this.#refused.delete(key);
    } else this.#refused.set(key, sequence);
  }
}

/** How many came in each of so many seconds. */
function countsOfSeconds(times: readonly number[], from: number, seconds: number): readonly number[] {
  const counts = Array.from({ length: seconds }, () => 0);
  for (const at of times) {
    const second = Math.floor((at - from) / SECOND_MS);
    if (second >= 0 && second < seconds) counts[second] = (counts[second] ?? 0) + 1;
  }
  return counts;
}

function mostInASecond(times: readonly number[]): number {
  let from = 0;
  let most = 0;
  for (const [n, at] of times.entries()) {
    while ((times[from] ?? at) <= at - SECOND_MS) from += 1;
    most = Math.max(most, n - from + 1);
  }
  return most;
}
