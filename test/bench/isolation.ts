import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../src/dev/embeddedPostgres.ts";
import { startBlackHole } from "../support/blackHole.ts";
import { FAULTY_ANSWERS, type FaultyAnswer } from "../support/faultyReceiver.ts";
import { milliseconds, p99, startArrivals } from "./arrivals.ts";
import { type Environment, type Program, receivedBy } from "./environment.ts";
import { measureLatencies } from "./latency.ts";
import { fillOutbox, vacuum } from "./outbox.ts";
import { type Figure, perSecond, rate } from "./report.ts";

/** The backlog of all bad destinations together. */
const BAD_ROWS = 50_000;
/** More than the healthy destination takes in the time of a case. */
const HEALTHY_ROWS = 120_000;
const CASE_MS = 8000;
/** By then the share of places has been found. */
const SETTLED_MS = 5000;
const LATENCY_MESSAGES = 150;
/** A message that takes longer counts as never delivered. */
const LOST_MS = 20_000;

/** Some destinations of one kind, by name, as the configuration has them. */
interface Bad {
  readonly destinations: Readonly<Record<string, object>>;
  stop(): Promise<void>;
}

interface Kind {
  readonly name: string;
  readonly start: (environment: Environment, count: number) => Promise<Bad>;
}

/** Destinations with one receiver that has a process of its own. */
const answering = (answer: FaultyAnswer): Kind => ({
  name: answer,
  start: async (environment, count) => {
    const receiver = await environment.program("faultyReceiver.js", [answer]);
    return { destinations: named(count, httpAt(receiver.port)), stop: () => receiver.stop() };
  },
});
const HANGING = answering("never answers");

const KINDS: readonly Kind[] = [
  ...FAULTY_ANSWERS.map(answering),
  { name: "refuses the connection", start: async (_, count) => atFreePort(count, httpAt) },
  { name: "NATS that is away", start: async (_, count) => atFreePort(count, natsAt) },
  {
    name: "NATS that says nothing",
    start: async (_, count) => {
      const silent = await startBlackHole();
      return { destinations: named(count, natsAt(silent.port)), stop: () => silent.close() };
    },
  },
];

/**
 * (u) The rate of a healthy destination beside one bad one, and beside three, that have a backlog in front of it, and the latency of
 * single messages to it; against what it has alone, before and after. At default settings; that of hanging neighbours with 64 places too.
 */
export async function isolation(environment: Environment): Promise<readonly Figure[]> {
  const figures: Figure[] = [];
  const wanted = process.env.BENCH_ISOLATION?.split(",");
  const kinds = KINDS.filter(({ name }) => wanted === undefined || wanted.includes(name));
  let before = await healthyRates(environment, none, {});
  for (const kind of kinds) {
    const measured: (readonly [count: number, rates: Rates])[] = [];
    for (const count of [1, 3]) {
      measured.push([count, await beside(environment, kind, count, (bad) => healthyRates(environment, bad, {}))]);
    }
    const after = await healthyRates(environment, none, {});
    const alone = { first: (before.first + after.first) / 2, later: (before.later + after.later) / 2 };
    before = after;
    for (const [count, rates] of measured) {
      figures.push(
        rateFigure(kind, count, "first second", rates.first, alone.first, count === 1 ? 0.45 : 0.2),
        rateFigure(kind, count, "from the fifth second on", rates.later, alone.later, 0.85),
      );
    }
  }
  const wide = { OUTBOX_CONCURRENCY: 64 };
  const aloneWide = await healthyRates(environment, none, wide);
  for (const count of [1, 3]) {
    const { first } = await beside(environment, HANGING, count, (bad) => healthyRates(environment, bad, wide));
    figures.push(rateFigure(HANGING, count, "64 places, first second", first, aloneWide.first, 0.9));
  }
  const latencyAlone = await healthyLatency(environment, none);
  for (const kind of kinds) {
    const latency = await beside(environment, kind, 1, (bad) => healthyLatency(environment, bad));
    figures.push(latencyFigure(kind, latency, latencyAlone));
  }
  return figures;
}

const none: Bad = { destinations: {}, stop: async () => {} };

async function beside<T>(
  environment: Environment,
  kind: Kind,
  count: number,
  measured: (bad: Bad) => Promise<T>,
): Promise<T> {
  const bad = await kind.start(environment, count);
  try {
    return await measured(bad);
  } finally {
    await bad.stop();
  }
}

interface Rates {
  readonly first: number;
  readonly later: number;
}

async function healthyRates(
  environment: Environment,
  bad: Bad,
  settings: Readonly<Record<string, number>>,
): Promise<Rates> {
  // What the case before has left would be claimed until the process is suspended.
  await environment.sql.query("TRUNCATE outbox");
  const receiver = await environment.program("receiver.js", []);
  const svc = await startSvc(environment, ["poller"], bad, httpAt(receiver.port), settings);
  process.kill(svc.pid, "SIGSTOP");
  await fillOutbox(environment, HEALTHY_ROWS, 500, { front: () => insertBad(environment, bad) });
  await vacuum(environment);
  process.kill(svc.pid, "SIGCONT");
  const startedAt = performance.now();
  const arrivedAfter = async (ms: number) => {
    await sleep(startedAt + ms - performance.now());
    const rows = await receivedBy(receiver);
    if (rows >= HEALTHY_ROWS) throw new Error(`the rows of the healthy destination did not last for ${ms} ms`);
    return { rows, ms: performance.now() - startedAt };
  };
  const first = await arrivedAfter(1000);
  const settled = await arrivedAfter(SETTLED_MS);
  const end = await arrivedAfter(CASE_MS);
  await svc.stop();
  await receiver.stop();
  return {
    first: perSecond(first.rows, first.ms),
    later: perSecond(end.rows - settled.rows, end.ms - settled.ms),
  };
}

/** p99 in ms of single messages from their commit to their arrival at the healthy destination. */
async function healthyLatency(environment: Environment, bad: Bad): Promise<number> {
  const arrivals = await startArrivals();
  try {
    await environment.sql.query("TRUNCATE inbox");
    await fillOutbox(environment, 0, 1, { front: () => insertBad(environment, bad) });
    await vacuum(environment);
    const svc = await startSvc(environment, [], bad, { baseUrl: arrivals.url }, {});
    const latencies = await measureLatencies(svc.port, arrivals, LATENCY_MESSAGES, LOST_MS);
    await svc.stop();
    return p99(latencies);
  } finally {
    arrivals.close();
  }
}

function startSvc(
  environment: Environment,
  roles: readonly string[],
  bad: Bad,
  healthy: object,
  settings: Readonly<Record<string, number>>,
): Promise<Program> {
  const destinations = { ...bad.destinations, receiver: healthy };
  const routes = Object.keys(bad.destinations).map((name) => ({ topicPattern: name, destination: name }));
  return environment.svc(
    roles,
    // Nobody waits at its end for publishes that hang.
    { ...settings, OUTBOX_SHUTDOWNTIMEOUTMS: 0 },
    { destinations, routes: [...routes, { topicPattern: "**", destination: "receiver" }] },
  );
}

/** Each row with a key of its own, so that none waits behind another; those of several destinations in turn. */
async function insertBad(environment: Environment, bad: Bad): Promise<void> {
  const names = Object.keys(bad.destinations);
  if (names.length === 0) return;
  await environment.sql.query(
    `INSERT INTO outbox (topic, key, payload)
     SELECT ($1::text[])[1 + n % cardinality($1::text[])], 'bad-' || n, '{}' FROM generate_series(1, $2::int) n`,
    [names, BAD_ROWS],
  );
}

function rateFigure(kind: Kind, count: number, when: string, value: number, alone: number, target: number): Figure {
  const ratio = value / alone;
  return {
    name: `(u) beside ${count} of ${count + 1}: ${kind.name}, ${when}`,
    value: rate(value),
    baseline: `${rate(alone)} alone`,
    ratio,
    target: `>= ${target}`,
    met: ratio >= target,
  };
}

function latencyFigure(kind: Kind, p99Ms: number, aloneMs: number): Figure {
  const ratio = p99Ms / aloneMs;
  return {
    name: `(u) latency beside 1 of 2: ${kind.name}, p99`,
    value: milliseconds(p99Ms),
    baseline: `${milliseconds(aloneMs)} alone`,
    ratio,
    target: "< 3",
    met: ratio < 3,
  };
}

async function atFreePort(count: number, at: (port: number) => object): Promise<Bad> {
  return { destinations: named(count, at(await freePort())), stop: async () => {} };
}

function named(count: number, destination: object): Readonly<Record<string, object>> {
  return Object.fromEntries(Array.from({ length: count }, (_, n) => [`bad${n + 1}`, destination]));
}

const httpAt = (port: number): object => ({ baseUrl: `http://127.0.0.1:${port}` });
const natsAt = (port: number): object => ({ type: "nats", servers: `nats://127.0.0.1:${port}`, subject: "bench" });
