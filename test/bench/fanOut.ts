import { destinationsAt, startReceipts } from "./endToEnd.ts";
import type { Environment } from "./environment.ts";
import { BUSY_POLLER, fillOutbox, timeDrain } from "./outbox.ts";
import { costInPairs, type Worker } from "./pairs.ts";
import type { Figure } from "./report.ts";

/**
 * (cc) What a message for three and for ten destinations costs, against a message for one: HTTP in to HTTP out, and rows that
 * an application has inserted.
 */
export async function fanOut(): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const { name, start, bounds } of WORK) {
    for (const [count, most] of bounds) {
      const base = { name: "one destination", start: start(1), checkout: undefined, most };
      figures.push(...(await costInPairs(`(cc) ${name}, ${count} destinations`, start(count), base)));
    }
  }
  return figures;
}

/** So few that the service keeps up: under a backlog rows are claimed after their receipt. */
const CONNECTIONS = 16;

const names = (count: number): readonly string[] => Array.from({ length: count }, (_, n) => `receiver-${n}`);

const WORK = [
  {
    name: "HTTP in to HTTP out",
    start: (count: number) => (environment: Environment) =>
      startReceipts(environment, (port) => destinationsAt(port, names(count)), count, CONNECTIONS),
    bounds: [
      [3, { us: 2.2, log: 1.3 }],
      [10, { us: 6, log: 3.5 }],
    ],
  },
  {
    name: "rows of an application",
    start: (count: number) => (environment: Environment) => startPoller(environment, count),
    bounds: [
      [3, { us: 4.5, log: 1.9 }],
      [10, { us: 12, log: 5.5 }],
    ],
  },
] as const;

async function startPoller(environment: Environment, count: number): Promise<Worker> {
  const rows = 3000;
  const receiver = await environment.program("receiver.js", []);
  const service = await environment.svc(["poller"], BUSY_POLLER, destinationsAt(receiver.port, names(count)));
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
