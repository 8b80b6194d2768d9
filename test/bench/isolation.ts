import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../src/dev/embeddedPostgres.ts";
import { startBlackHole } from "../support/blackHole.ts";
import { FAULTY_ANSWERS, type FaultyAnswer } from "../support/faultyReceiver.ts";
import { type Environment, type Program, receivedBy } from "./environment.ts";
import { fillOutbox, untilSettled, vacuum } from "./outbox.ts";
import { type Figure, perSecond, rate } from "./report.ts";

/** More than the healthy destination takes in the time of a case. */
const HEALTHY_ROWS = 150_000;
/** Delivered before, so that the first second is not that of a cold process. */
const WARM_UP_ROWS = 40_000;
/** Of the bad destinations together, in front of the healthy rows. */
const BAD_ROWS = 50_000;
const FIRST_MS = 1000;
/** By then the share of slots has been found. */
const SETTLED_MS = 5000;
const CASE_MS = 7000;
const ROUNDS = Number(process.env.BENCH_ISOLATION_ROUNDS ?? 2);
const CLAIMED = "SELECT FROM outbox WHERE state = 'processing' LIMIT 1";

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

/** Rows a second, in the first second and after the fifth. */
interface Rates {
  readonly first: number;
  readonly later: number;
}

/**
 * (u) The rate of a healthy destination beside one bad one, and beside three, that have a backlog in front of it, at default
 * settings. It is held against that of the same configuration without a bad row, before and after. Other load of the machine
 * moves the rate of a single case by a tenth and more: all cases alternate, `BENCH_ISOLATION_ROUNDS` times.
 */
export async function isolation(environment: Environment): Promise<readonly Figure[]> {
  const wanted = process.env.BENCH_ISOLATION?.split(",");
  const kinds = KINDS.filter(({ name }) => wanted === undefined || wanted.includes(name));
  const cases = kinds.flatMap((kind) =>
    [1, 3].map((count) => ({ kind, count, rounds: [] as { beside: Rates; alone: Rates }[] })),
  );
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const { kind, count, rounds } of cases) {
      const bad = await kind.start(environment, count);
      try {
        const before = await healthyRates(environment, bad, 0);
        const beside = await healthyRates(environment, bad, BAD_ROWS);
        const after = await healthyRates(environment, bad, 0);
        const alone = { first: (before.first + after.first) / 2, later: (before.later + after.later) / 2 };
        rounds.push({ beside, alone });
      } finally {
        await bad.stop();
      }
    }
  }
  return cases.flatMap(({ kind, count, rounds }) =>
    (["first", "later"] as const).map((when) => {
      const mean = (of: (round: (typeof rounds)[number]) => number) =>
        rounds.reduce((sum, round) => sum + of(round), 0) / ROUNDS;
      const ratio = mean(({ beside, alone }) => beside[when] / alone[when]);
      const target = when === "later" ? 0.85 : count === 1 ? 0.45 : 0.2;
      return {
        name: `(u) beside ${count} of ${count + 1}: ${kind.name}, ${when === "first" ? "first second" : "from the fifth second on"}`,
        value: rate(mean(({ beside }) => beside[when])),
        baseline: `${rate(mean(({ alone }) => alone[when]))} alone`,
        ratio,
        target: `>= ${target}`,
        met: ratio >= target,
      };
    }),
  );
}

async function healthyRates(environment: Environment, bad: Bad, badRows: number): Promise<Rates> {
  // What the case before has left would be claimed until the process is suspended.
  await environment.sql.query("TRUNCATE outbox");
  const receiver = await environment.program("receiver.js", []);
  const svc = await startPoller(environment, bad, httpAt(receiver.port));
  await fillOutbox(environment, WARM_UP_ROWS, 500);
  await untilSettled(environment);
  process.kill(svc.pid, "SIGSTOP");
  const warmedUp = await receivedBy(receiver);
  await fillOutbox(environment, HEALTHY_ROWS, 500, { front: () => insertBad(environment, bad, badRows) });
  await vacuum(environment);
  process.kill(svc.pid, "SIGCONT");
  // The pause between two polls is as long as a tenth of the first second.
  while ((await environment.sql.query(CLAIMED)).rows.length === 0) await sleep(2);
  const startedAt = performance.now();
  const arrivedAfter = async (ms: number) => {
    await sleep(startedAt + ms - performance.now());
    const rows = (await receivedBy(receiver)) - warmedUp;
    if (rows >= HEALTHY_ROWS) throw new Error(`the rows of the healthy destination did not last for ${ms} ms`);
    return { rows, ms: performance.now() - startedAt };
  };
  const first = await arrivedAfter(FIRST_MS);
  const settled = await arrivedAfter(SETTLED_MS);
  const end = await arrivedAfter(CASE_MS);
  await svc.stop();
  await receiver.stop();
  return {
    first: perSecond(first.rows, first.ms),
    later: perSecond(end.rows - settled.rows, end.ms - settled.ms),
  };
}

function startPoller(environment: Environment, bad: Bad, healthy: object): Promise<Program> {
  const destinations = { ...bad.destinations, receiver: healthy };
  const routes = Object.keys(bad.destinations).map((name) => ({ topicPattern: name, destination: name }));
  return environment.svc(
    ["poller"],
    // Nobody waits at its end for publishes that hang.
    { OUTBOX_SHUTDOWNTIMEOUTMS: 0 },
    { destinations, routes: [...routes, { topicPattern: "**", destination: "receiver" }] },
  );
}

/** Each row with a key of its own, so that none waits behind another; those of several destinations in turn. */
async function insertBad(environment: Environment, bad: Bad, rows: number): Promise<void> {
  await environment.sql.query(
    `INSERT INTO outbox (topic, key, payload)
     SELECT ($1::text[])[1 + n % cardinality($1::text[])], 'bad-' || n, '{}' FROM generate_series(1, $2::int) n`,
    [Object.keys(bad.destinations), rows],
  );
}

async function atFreePort(count: number, at: (port: number) => object): Promise<Bad> {
  return { destinations: named(count, at(await freePort())), stop: async () => {} };
}

function named(count: number, destination: object): Readonly<Record<string, object>> {
  return Object.fromEntries(Array.from({ length: count }, (_, n) => [`bad${n + 1}`, destination]));
}

const httpAt = (port: number): object => ({ baseUrl: `http://127.0.0.1:${port}` });
const natsAt = (port: number): object => ({ type: "nats", servers: `nats://127.0.0.1:${port}`, subject: "bench" });
