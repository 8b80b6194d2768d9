import { kafkaEnd, natsEnd, rabbitmqEnd } from "../support/brokerEnds/index.ts";
import type { BrokerEnd } from "../support/brokerEnds/types.ts";
import { beginBrokerRun, endBrokerRun } from "../support/brokers/run.ts";
import { startKafka, startNats, startRabbitmq } from "../support/brokers/servers.ts";
import type { Environment } from "./environment.ts";
import { fillOutbox, timeDrain, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

/** Many short rounds: the machine's speed drifts, and each is held against its neighbour. */
const ROUNDS = 7;
const MESSAGES = 10_000;
const IN_FLIGHT = 200;
const KEYS = 500;

/** A running broker with what lies in it before a source and behind a destination. */
interface Broker {
  readonly end: BrokerEnd;
  /** What the bare producer is told: address, and the exchange, topic or subject. */
  readonly bare: readonly [string, string];
}

const BROKERS = {
  async rabbitmq(): Promise<Broker> {
    const server = await startRabbitmq();
    const end = await rabbitmqEnd(server);
    return { end, bare: [server.url, String(end.destination.exchange)] };
  },
  async kafka(): Promise<Broker> {
    const server = await startKafka();
    const end = await kafkaEnd(server);
    return { end, bare: [server.bootstrapServers, String(end.destination.topic)] };
  },
  async nats(): Promise<Broker> {
    const server = await startNats();
    const end = await natsEnd(server);
    return { end, bare: [server.url, String(end.destination.subject).replace("{{ topic }}", "bench")] };
  },
} as const;

type Kind = keyof typeof BROKERS;

/** (j) Outbox to each broker, against its bare client with the same bodies, acknowledgements, and as many in flight. */
export async function drainToBrokers(environment: Environment): Promise<Figure[]> {
  return forEachBroker(async (kind, broker) => {
    // As many again are claimed while these are under way.
    const limits = { OUTBOX_BATCHSIZE: 2 * IN_FLIGHT, OUTBOX_CONCURRENCY: IN_FLIGHT };
    // The only destination: next to others it would share slots and claims.
    const svc = await environment.svc(["poller"], limits, {
      destinations: { out: broker.end.destination },
      routes: [{ topicPattern: "**", destination: "out" }],
    });
    const producer = await environment.program("bareProducer.js", [kind, ...broker.bare]);
    process.kill(svc.pid, "SIGSTOP");
    const pairs: Pair[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      producer.tell(`${MESSAGES} ${IN_FLIGHT}`);
      const bare = perSecond(MESSAGES, Number(await producer.line()));
      await fillOutbox(environment, MESSAGES, KEYS);
      await vacuum(environment);
      const drained = perSecond(MESSAGES, await timeDrain(environment, svc));
      // The first round warms up.
      if (round > 0) pairs.push({ svc: drained, bare });
    }
    process.kill(svc.pid, "SIGCONT");
    for (const program of [producer, svc]) await program.stop();
    return figureOf(`(j) outbox drain to ${kind}, 1 kB, ${IN_FLIGHT} in flight`, "bare client", pairs);
  });
}

async function forEachBroker(measure: (kind: Kind, broker: Broker) => Promise<Figure>): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const kind of Object.keys(BROKERS) as Kind[]) {
    // A run of its own for each, so that no other broker takes processor time.
    await beginBrokerRun();
    try {
      figures.push(await measure(kind, await BROKERS[kind]()));
    } finally {
      await endBrokerRun();
    }
  }
  return figures;
}

/** What was measured in one round, in messages per second. */
interface Pair {
  readonly svc: number;
  readonly bare: number;
}

function figureOf(name: string, baseline: string, pairs: readonly Pair[]): Figure {
  const ratio = median(pairs.map(({ svc, bare }) => svc / bare));
  return {
    name,
    value: rate(median(pairs.map(({ svc }) => svc))),
    baseline: `${rate(median(pairs.map(({ bare }) => bare)))} ${baseline}`,
    ratio,
    target: ">= 0.4",
    met: ratio >= 0.4,
  };
}
