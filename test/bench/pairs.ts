import { type Environment, openEnvironment, type Program } from "./environment.ts";
import { vacuum } from "./outbox.ts";
import { inWords, processorSpent, sumOf, usAMessage } from "./processor.ts";
import { type Figure, median } from "./report.ts";
import { logWritten } from "./volume.ts";

/** What a message costs: processor time in us of the service and its database, and bytes of the database's log. */
interface Cost {
  readonly us: Readonly<Record<string, number>>;
  readonly logBytes: number;
}

/** A running service, and its work of a second or two. */
export interface Worker {
  readonly service: Program;
  /** Makes what the work needs, which does not count. */
  readonly prepare: () => Promise<void>;
  /** @returns the number of messages, after their settlement */
  readonly work: () => Promise<number>;
}

const PAIRS = Number(process.env.BENCH_PAIRS ?? 8);
/** A checkout with its own `dist`; by default this one, which shows the spread of two identical builds. */
const AGAINST = process.env.BENCH_AGAINST;

type Start = (environment: Environment) => Promise<Worker>;

/** What a message is compared with. */
interface Base {
  /** In the figures. */
  readonly name: string;
  readonly start: Start;
  readonly checkout: string | undefined;
  /** The largest ratios that meet the target. */
  readonly most: { readonly us: number; readonly log: number };
}

/**
 * Compares what a message costs with this build and with the one of `BENCH_AGAINST`, or with other work: `BENCH_PAIRS` times
 * in turn, each with a database and a service of its own. Prints each pair.
 *
 * @param start starts the service, which idles between its turns
 */
export async function costInPairs(
  name: string,
  start: Start,
  against: Base = { name: AGAINST ?? "the same build", start, checkout: AGAINST, most: { us: 1.05, log: 1.04 } },
): Promise<Figure[]> {
  const environments = [await openEnvironment(against.checkout), await openEnvironment()] as const;
  const [base, own] = environments;
  const services: Program[] = [];
  try {
    const builds = [
      { environment: base, worker: await against.start(base) },
      { environment: own, worker: await start(own) },
    ] as const;
    services.push(...builds.map(({ worker }) => worker.service));
    const measure = (n: 0 | 1) => costOf(builds[n].environment, builds[n].worker);
    const pairs: { readonly base: Cost; readonly own: Cost }[] = [];
    // The first pair warms up.
    for (let pair = 0; pair <= PAIRS; pair += 1) {
      const [first, second] = pair % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
      const costs = [await measure(first), await measure(second)] as const;
      if (pair === 0) continue;
      const [baseCost, ownCost] = first === 0 ? costs : ([costs[1], costs[0]] as const);
      pairs.push({ base: baseCost, own: ownCost });
      process.stdout.write(`${name}, pair ${pair}: ${inFull(ownCost)}; against ${inFull(baseCost)}\n`);
    }
    const value = (of: (cost: Cost) => number) => ({
      own: median(pairs.map(({ own }) => of(own))),
      base: median(pairs.map(({ base }) => of(base))),
      ratio: median(pairs.map(({ own, base }) => of(own) / of(base))),
    });
    return [
      figure(
        `${name}, processor time a message`,
        value(({ us }) => sumOf(us)),
        "us",
        against.name,
        against.most.us,
      ),
      figure(
        `${name}, log a message`,
        value(({ logBytes }) => logBytes),
        "bytes",
        against.name,
        against.most.log,
      ),
    ];
  } finally {
    // A suspended service does not end.
    for (const { pid } of services) process.kill(pid, "SIGCONT");
    for (const environment of environments) await environment.close();
  }
}

async function costOf(environment: Environment, { service, prepare, work }: Worker): Promise<Cost> {
  await prepare();
  await vacuum(environment);
  const log = await logWritten(environment);
  const before = await processorSpent(environment, { service });
  const messages = await work();
  const us = usAMessage(before, await processorSpent(environment, { service }), messages);
  return { us, logBytes: ((await logWritten(environment)) - log) / messages };
}

const inFull = ({ us, logBytes }: Cost): string => `${inWords(us)}, log ${Math.round(logBytes)} bytes`;

function figure(
  name: string,
  { own, base, ratio }: { readonly own: number; readonly base: number; readonly ratio: number },
  unit: string,
  against: string,
  most: number,
): Figure {
  return {
    name,
    value: `${Math.round(own)} ${unit}`,
    baseline: `${Math.round(base)} ${unit} with ${against}, ${PAIRS} pairs`,
    ratio,
    target: `<= ${most}`,
    met: ratio <= most,
  };
}
