import type { Environment } from "./environment.ts";
import { BUSY_POLLER, fillOutbox, rawLoop, steadyMean, timeDrain, vacuum } from "./outbox.ts";
import { costInPairs, type Worker } from "./pairs.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

const ROUNDS = 3;

/** (a) Outbox to a local HTTP receiver, against the raw claim and complete loop. */
export async function drain(environment: Environment): Promise<Figure[]> {
  const rows = 20_000;
  const receiver = await environment.program("receiver.js", []);
  const ratios: number[] = [];
  const drained: number[] = [];
  const raw: number[] = [];
  const svc = await environment.svc(["poller"], {
    ...BUSY_POLLER,
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
  });
  process.kill(svc.pid, "SIGSTOP");
  for (let round = 0; round <= 2 * ROUNDS; round += 1) {
    await fillOutbox(environment, rows, 500);
    await vacuum(environment);
    const rawRate = perSecond(rows, (await rawLoop(environment, rows, 500)).totalMs);

    await fillOutbox(environment, rows, 500);
    await vacuum(environment);
    const drainRate = perSecond(rows, await timeDrain(environment, svc));
    if (round === 0) continue;
    raw.push(rawRate);
    drained.push(drainRate);
    ratios.push(drainRate / rawRate);
  }
  process.kill(svc.pid, "SIGCONT");
  await svc.stop();
  await receiver.stop();
  const costs = await costInPairs("(a) outbox drain to HTTP", startPoller);
  const ratio = median(ratios);
  return [
    {
      name: "(a) outbox drain to HTTP, 1 kB, 500 keys",
      value: rate(median(drained)),
      baseline: `${rate(median(raw))} raw claim and complete`,
      ratio,
      target: ">= 0.7",
      met: ratio >= 0.7,
    },
    ...costs,
  ];
}

/** A poller, which drains 10,000 rows at a time. */
async function startPoller(environment: Environment): Promise<Worker> {
  const rows = 10_000;
  const receiver = await environment.program("receiver.js", []);
  const service = await environment.svc(["poller"], {
    ...BUSY_POLLER,
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
  });
  process.kill(service.pid, "SIGSTOP");
  return {
    service,
    prepare: () => fillOutbox(environment, rows, 500),
    async work() {
      await timeDrain(environment, service);
      return rows;
    },
  };
}

/** (e) The cost of a claim does not grow with what waits, nor with what is blocked in front. */
export async function claimCost(environment: Environment): Promise<Figure[]> {
  const cost = async (rows: number, blocked: number): Promise<number> => {
    await fillOutbox(environment, rows, 500, { blocked });
    await vacuum(environment);
    const measured = Math.min(rows, 30_000);
    return steadyMean((await rawLoop(environment, measured, CLAIM)).claimMs);
  };
  // Several small fillings make as many claims as a large one.
  const small = async (): Promise<number> => {
    const costs: number[] = [];
    for (let n = 0; n < 10; n += 1) costs.push(await cost(1000, 0));
    return costs.reduce((sum, ms) => sum + ms, 0) / costs.length;
  };
  // The machine's speed drifts: each large case is held against small ones right before and after it.
  const compare = async (name: string, rows: number, blocked: number, rounds: number): Promise<Figure> => {
    const pairs: { ms: number; base: number }[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const before = await small();
      const ms = await cost(rows, blocked);
      pairs.push({ ms, base: (before + (await small())) / 2 });
    }
    const ratio = median(pairs.map(({ ms, base }) => ms / base));
    return {
      name,
      value: `${median(pairs.map(({ ms }) => ms)).toFixed(2)} ms`,
      baseline: `${median(pairs.map(({ base }) => base)).toFixed(2)} ms with 1,000 rows waiting`,
      ratio,
      target: "<= 1.5",
      met: ratio <= 1.5,
    };
  };
  return [
    await compare("(e) claim of 100 with 1,000,000 rows waiting", 1_000_000, 0, 1),
    await compare("(e) claim of 100 behind 100,000 rows of one blocked key", 30_000, 100_000, 3),
  ];
}

const CLAIM = 100;
