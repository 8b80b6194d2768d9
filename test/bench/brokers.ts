import { kafkaEnd, natsEnd, rabbitmqEnd } from "../support/brokerEnds/index.ts";
import type { BrokerEnd } from "../support/brokerEnds/types.ts";
import { beginBrokerRun, endBrokerRun } from "../support/brokers/run.ts";
import { startKafka, startNats, startRabbitmq } from "../support/brokers/servers.ts";
import { type Environment, type Program, processorMs, residentMiB, until } from "./environment.ts";
import { fillOutbox, timeDrain, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

/** Many short rounds: the machine's speed drifts, and each is held against its neighbour. */
const ROUNDS = 7;
const MESSAGES = 10_000;
const IN_FLIGHT = 200;
const KEYS = 500;
const SETTLE_MS = 30_000;

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

/** (k) Each broker into the inbox, against the bare multi-row insert. */
export async function receiptFromBrokers(environment: Environment): Promise<Figure[]> {
  const { sql } = environment;
  const received = async () => {
    const { rows } = await sql.query("SELECT count(*)::int AS rows FROM inbox");
    return (rows[0] as { rows: number }).rows;
  };
  return forEachBroker(async (kind, { end }) => {
    const svc = await environment.svc(["ingest"], entryVariables("SOURCES_IN", { ...end.source, topic: "bench" }));
    const pairs: Pair[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      await sql.query("TRUNCATE inbox");
      await vacuum(environment);
      const bare = perSecond(MESSAGES, await bareInsert(environment));
      await sql.query("TRUNCATE inbox");
      await vacuum(environment);
      process.kill(svc.pid, "SIGSTOP");
      await end.send(
        Array.from({ length: MESSAGES }, (_, n) => ({
          key: `key-${n % KEYS}`,
          body: `{"id":"${round}-${n}","key":"key-${n % KEYS}","padding":"${"x".repeat(950)}"}`,
        })),
      );
      process.kill(svc.pid, "SIGCONT");
      const startedAt = performance.now();
      await until(async () => (await received()) >= MESSAGES);
      if (round > 0) pairs.push({ svc: perSecond(MESSAGES, performance.now() - startedAt), bare });
    }
    await svc.stop();
    return figureOf(`(k) ${kind} into the inbox, 1 kB`, "bare multi-row insert", pairs);
  });
}

/** (l) What a process that has nothing to do costs, with all four kinds of source and destination configured. */
export async function idle(environment: Environment): Promise<Figure[]> {
  const seconds = 60;
  await beginBrokerRun();
  try {
    const ends = [(await BROKERS.rabbitmq()).end, (await BROKERS.kafka()).end, (await BROKERS.nats()).end];
    const entries = ends.flatMap(({ kind, source, destination }) => [
      entryVariables(`SOURCES_IN${kind.toUpperCase()}`, { ...source, topic: `to.${kind}` }),
      entryVariables(`DESTINATIONS_OUT${kind.toUpperCase()}`, destination),
    ]);
    const routes = ends.flatMap(({ kind }, n) => [
      { [`ROUTES_${n + 1}_TOPICPATTERN`]: `to.${kind}`, [`ROUTES_${n + 1}_DESTINATION`]: `out${kind}` },
    ]);
    const svc = await environment.svc([], Object.assign({}, { ROUTES_0_TOPICPATTERN: "bench" }, ...entries, ...routes));
    // Every connection is made and used once: then there is nothing to do.
    await Promise.all(ends.map((end) => end.send([{ key: "k", body: '{"id":"warm","key":"k"}' }])));
    await Promise.all(ends.map((end) => end.arrived((all) => all.length > 0)));
    // The engine collects once, some seconds after the start is over.
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    const core = await coreShare(svc, seconds);
    const memory = residentMiB(svc.pid) ?? Number.NaN;
    await svc.stop();
    return [
      {
        name: `(l) idle with all four kinds, over ${seconds} s`,
        value: `${(core * 100).toFixed(1)} % of a core`,
        baseline: "",
        ratio: undefined,
        target: "< 2 %",
        met: core < 0.02,
      },
      {
        name: "(l) its resident memory",
        value: `${Math.round(memory)} MiB`,
        baseline: "",
        ratio: undefined,
        target: "< 150 MiB",
        met: memory < 150,
      },
    ];
  } finally {
    await endBrokerRun();
  }
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

/** An entry of a map of the configuration as variables. */
function entryVariables(path: string, entry: BrokerEnd["source"]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(entry).flatMap(([name, value]) =>
      Array.isArray(value)
        ? value.map((item, n) => [`${path}_${name.toUpperCase()}_${n}`, String(item)])
        : [[`${path}_${name.toUpperCase()}`, String(value)]],
    ),
  );
}

/** Rows like those of a source, 500 a statement, on one connection. @returns ms */
async function bareInsert({ sql }: Environment): Promise<number> {
  const batch = 500;
  const startedAt = performance.now();
  for (let done = 0; done < MESSAGES; done += batch) {
    const numbers = Array.from({ length: batch }, (_, n) => done + n);
    await sql.query({
      name: "bare insert",
      text: `INSERT INTO inbox (id, source, idempotency_key, aggregate_id, payload, state, consumption, correlation_id, headers)
             SELECT gen_random_uuid(), 'bare', r.key, r.aggregate, r.payload, 'pending', 'push', r.key, '{}'
             FROM unnest($1::text[], $2::text[], $3::text[]) AS r(key, aggregate, payload)
             ON CONFLICT DO NOTHING`,
      values: [
        numbers.map((n) => `bare-${n}`),
        numbers.map((n) => `key-${n % KEYS}`),
        numbers.map((n) => `{"id":"${n}","key":"key-${n % KEYS}","padding":"${"x".repeat(950)}"}`),
      ],
    });
  }
  return performance.now() - startedAt;
}

/** The share of a core that a process uses. */
async function coreShare({ pid }: Program, seconds: number): Promise<number> {
  const before = processorMs(pid);
  const startedAt = performance.now();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  return (processorMs(pid) - before) / (performance.now() - startedAt);
}
