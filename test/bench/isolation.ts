import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../src/dev/embeddedPostgres.ts";
import { startBlackHole } from "../support/blackHole.ts";
import { FAULTY_ANSWERS, type FaultyAnswer } from "../support/faultyReceiver.ts";
import { milliseconds, p99, startArrivals } from "./arrivals.ts";
import { type Environment, type Program, receivedBy } from "./environment.ts";
import { measureLatencies } from "./latency.ts";
import { fillOutbox, untilSettled, vacuum } from "./outbox.ts";
import { type Figure, perSecond, rate } from "./report.ts";

/** More than the healthy destination takes in the time of a case. */
const HEALTHY_ROWS = 150_000;
/** Delivered before, so that the first second is not that of a cold process. */
const WARM_UP_ROWS = 40_000;
const FIRST_MS = 1000;
/** By then the share of slots has been found. */
const SETTLED_MS = 5000;
const CASE_MS = 7000;
const ROUNDS = 2;
/** Of the first second with 64 slots, in each round: a single second varies by a third. */
const WIDE_CASES = 3;
/** The first of them, while the process still learns what is in front, do not count. */
const LATENCY_MESSAGES = 200;
const UNCOUNTED_MESSAGES = 10;
/** Name of what is measured without a bad destination. */
const ALONE = "alone";
const CLAIMED = "SELECT FROM outbox WHERE state = 'processing' LIMIT 1";
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

/** Rows of the bad destinations together. */
interface Load {
  readonly name: string;
  /** In front of the healthy rows. */
  readonly inFront: number;
  /** Each so many-th of the healthy rows is a bad one instead; undefined for none. */
  readonly oneIn?: number;
}

const NO_ROWS: Load = { name: "none", inFront: 0 };
const BACKLOG: Load = { name: "50,000 rows in front", inFront: 50_000 };
/** Beside one destination that never answers. */
const OTHER_LOADS: readonly Load[] = [
  { name: "5,000 rows in front", inFront: 5000 },
  { name: "1 % of the rows", inFront: 0, oneIn: 100 },
  { name: "0.1 % of the rows", inFront: 0, oneIn: 1000 },
];

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
 * single messages to it. A rate is held against that of the same configuration without a bad row, before and after. At default settings; that of
 * hanging neighbours with 64 slots too, and with fewer bad rows, in front and among the healthy ones.
 *
 * What else runs on the machine moves the rate of a single case by a tenth and more: all cases alternate, `BENCH_ISOLATION_ROUNDS` times. A ratio is the
 * median of those of its rounds, and a p99 is that of the messages of all rounds.
 */
export async function isolation(environment: Environment): Promise<readonly Figure[]> {
  const wanted = process.env.BENCH_ISOLATION?.split(",");
  const kinds = KINDS.filter(({ name }) => wanted === undefined || wanted.includes(name));
  const rounds = Array.from({ length: Number(process.env.BENCH_ISOLATION_ROUNDS ?? ROUNDS) }, (_, round) => round);
  const rates = new Lines<Held>();
  const latencies = new Lines<readonly number[]>();
  for (const round of rounds) {
    await rateRound(environment, kinds, rates);
    if (kinds.some(({ name }) => name === HANGING.name)) await wideRound(environment, rates);
    await latencyRound(environment, kinds, round, latencies);
  }
  const alone = p99(latencies.of(ALONE).flat());
  return [
    ...rates.names().map((name) => rateFigure(name, rates.of(name))),
    ...kinds.map((kind) => latencyFigure(kind, p99(latencies.of(kind.name).flat()), alone)),
  ];
}

/** What the rounds measured, by the lines of the table, in their order. */
class Lines<T> {
  readonly #lines = new Map<string, T[]>();

  add(name: string, value: T): void {
    const line = this.#lines.get(name);
    if (line === undefined) this.#lines.set(name, [value]);
    else line.push(value);
  }

  names(): readonly string[] {
    return [...this.#lines.keys()];
  }

  of(name: string): readonly T[] {
    return this.#lines.get(name) ?? [];
  }
}

/** A rate, what it is held against, and the ratio that is expected. */
interface Held {
  readonly value: number;
  readonly alone: number;
  readonly target: number;
}

async function rateRound(environment: Environment, kinds: readonly Kind[], lines: Lines<Held>): Promise<void> {
  for (const kind of kinds) {
    await rateCases(environment, kind, 1, kind.name === HANGING.name ? [BACKLOG, ...OTHER_LOADS] : [BACKLOG], lines);
    await rateCases(environment, kind, 3, [BACKLOG], lines);
  }
}

async function rateCases(
  environment: Environment,
  kind: Kind,
  count: number,
  loads: readonly Load[],
  lines: Lines<Held>,
): Promise<void> {
  await beside(environment, kind, count, async (bad) => {
    const before = await healthyRates(environment, bad, NO_ROWS, {});
    const loaded: (Rates & { readonly load: Load })[] = [];
    for (const load of loads) loaded.push({ load, ...(await healthyRates(environment, bad, load, {})) });
    const after = await healthyRates(environment, bad, NO_ROWS, {});
    const alone = { first: (before.first + after.first) / 2, later: (before.later + after.later) / 2 };
    const targets = { first: count === 1 ? 0.45 : 0.2, later: 0.85 };
    for (const { load, first, later } of loaded) {
      const add = (when: string, value: number, aloneRate: number, target: number) =>
        lines.add(lineOf(kind, count, `${load.name}, ${when}`), { value, alone: aloneRate, target });
      add("first second", first, alone.first, targets.first);
      add("from the fifth second on", later, alone.later, targets.later);
    }
  });
}

async function wideRound(environment: Environment, lines: Lines<Held>): Promise<void> {
  const wide = { OUTBOX_CONCURRENCY: 64 };
  for (const count of [1, 3]) {
    const name = lineOf(HANGING, count, `${BACKLOG.name}, 64 slots, first second`);
    await beside(environment, HANGING, count, async (bad) => {
      for (let n = 0; n < WIDE_CASES; n += 1) {
        const { first: alone } = await healthyRates(environment, bad, NO_ROWS, wide, FIRST_MS);
        const { first: value } = await healthyRates(environment, bad, BACKLOG, wide, FIRST_MS);
        lines.add(name, { value, alone, target: 0.9 });
      }
    });
  }
}

/** Every other round in the other order. */
async function latencyRound(
  environment: Environment,
  kinds: readonly Kind[],
  round: number,
  lines: Lines<readonly number[]>,
): Promise<void> {
  const cases: (Kind | undefined)[] = [undefined, ...kinds];
  for (const kind of round % 2 === 0 ? cases : cases.toReversed()) {
    if (kind === undefined) lines.add(ALONE, await healthyLatencies(environment, none));
    else lines.add(kind.name, await beside(environment, kind, 1, (bad) => healthyLatencies(environment, bad)));
  }
}

const lineOf = (kind: Kind, count: number, when: string): string =>
  `(u) beside ${count} of ${count + 1}: ${kind.name}, ${when}`;

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
  /** NaN where the case was shorter. */
  readonly later: number;
}

async function healthyRates(
  environment: Environment,
  bad: Bad,
  load: Load,
  settings: Readonly<Record<string, number>>,
  caseMs = CASE_MS,
): Promise<Rates> {
  // What the case before has left would be claimed until the process is suspended.
  await environment.sql.query("TRUNCATE outbox");
  const receiver = await environment.program("receiver.js", []);
  const svc = await startSvc(environment, ["poller"], bad, httpAt(receiver.port), settings);
  await fillOutbox(environment, WARM_UP_ROWS, 500);
  await untilSettled(environment);
  process.kill(svc.pid, "SIGSTOP");
  const warmedUp = await receivedBy(receiver);
  await fillOutbox(environment, HEALTHY_ROWS, 500, { front: () => insertBad(environment, bad, load.inFront) });
  const badAmong = load.oneIn === undefined ? 0 : await turnBad(environment, bad, load.oneIn);
  await vacuum(environment);
  process.kill(svc.pid, "SIGCONT");
  // The pause between two polls is as long as a tenth of the first second.
  while ((await environment.sql.query(CLAIMED)).rows.length === 0) await sleep(2);
  const startedAt = performance.now();
  const arrivedAfter = async (ms: number) => {
    await sleep(startedAt + ms - performance.now());
    const rows = (await receivedBy(receiver)) - warmedUp;
    if (rows >= HEALTHY_ROWS - badAmong)
      throw new Error(`the rows of the healthy destination did not last for ${ms} ms`);
    return { rows, ms: performance.now() - startedAt };
  };
  const first = await arrivedAfter(FIRST_MS);
  const settled = caseMs > SETTLED_MS ? await arrivedAfter(SETTLED_MS) : first;
  const end = caseMs > SETTLED_MS ? await arrivedAfter(caseMs) : first;
  await svc.stop();
  await receiver.stop();
  return {
    first: perSecond(first.rows, first.ms),
    later: perSecond(end.rows - settled.rows, end.ms - settled.ms),
  };
}

/** Of single messages, in ms, from their commit to their arrival at the healthy destination. */
async function healthyLatencies(environment: Environment, bad: Bad): Promise<readonly number[]> {
  const arrivals = await startArrivals();
  try {
    await environment.sql.query("TRUNCATE inbox");
    await fillOutbox(environment, 0, 1, { front: () => insertBad(environment, bad, BACKLOG.inFront) });
    await vacuum(environment);
    const svc = await startSvc(environment, [], bad, { baseUrl: arrivals.url }, {});
    const latencies = await measureLatencies(svc.port, arrivals, UNCOUNTED_MESSAGES + LATENCY_MESSAGES, LOST_MS);
    await svc.stop();
    return latencies.slice(UNCOUNTED_MESSAGES);
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
async function insertBad(environment: Environment, bad: Bad, rows: number): Promise<void> {
  const names = Object.keys(bad.destinations);
  if (names.length === 0) return;
  await environment.sql.query(
    `INSERT INTO outbox (topic, key, payload)
     SELECT ($1::text[])[1 + n % cardinality($1::text[])], 'bad-' || n, '{}' FROM generate_series(1, $2::int) n`,
    [names, rows],
  );
}

/** Makes every so many-th row one of the bad destinations, with a key of its own. @returns how many */
async function turnBad(environment: Environment, bad: Bad, oneIn: number): Promise<number> {
  const { rowCount } = await environment.sql.query(
    `UPDATE outbox SET topic = ($1::text[])[(1 + sequence / $2 % cardinality($1::text[]))::int], key = 'bad-' || sequence
     WHERE sequence % $2 = 0`,
    [Object.keys(bad.destinations), oneIn],
  );
  return rowCount ?? 0;
}

function rateFigure(name: string, rounds: readonly Held[]): Figure {
  const ratio = medianOf(rounds.map(({ value, alone }) => value / alone));
  const target = rounds[0]?.target ?? 1;
  return {
    name,
    value: rate(medianOf(rounds.map(({ value }) => value))),
    baseline: `${rate(medianOf(rounds.map(({ alone }) => alone)))} alone`,
    ratio,
    target: `>= ${target}`,
    met: ratio >= target,
  };
}

/** Of few: the mean of the two in the middle where their number is even. */
function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[Math.floor(index)] ?? Number.NaN;
  return (at((sorted.length - 1) / 2) + at(sorted.length / 2)) / 2;
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
