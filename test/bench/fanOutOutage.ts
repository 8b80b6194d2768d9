import { setTimeout as sleep } from "node:timers/promises";
import { kafkaEnd, natsEnd } from "../support/brokerEnds/index.ts";
import type { BrokerEnd } from "../support/brokerEnds/types.ts";
import { beginBrokerRun, endBrokerRun } from "../support/brokers/run.ts";
import { startKafka, startNats } from "../support/brokers/servers.ts";
import { History } from "../support/history.ts";
import { Receiver } from "../support/receiver.ts";
import { type Environment, type Program, until } from "./environment.ts";
import { BUSY_POLLER, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

const MESSAGES = 20_000;
const KEYS = 50;
const OUTAGE_MS = Number(process.env.BENCH_OUTAGE_SECONDS ?? 60) * 1000;
const ROUNDS = 3;

/** The destinations; `http` goes down. */
interface Ends {
  readonly http: Receiver;
  readonly kafka: BrokerEnd;
  readonly nats: BrokerEnd;
}

/**
 * (dd) Messages for HTTP, Kafka and NATS at once, by two pollers: the rate of the others while HTTP is down, against that while
 * it is up; and what arrives where, if HTTP is down for a minute and one poller is killed.
 */
export async function fanOutOutage(environment: Environment): Promise<Figure[]> {
  await beginBrokerRun();
  const http = await Receiver.start();
  try {
    const ends = { http, kafka: await kafkaEnd(await startKafka()), nats: await natsEnd(await startNats()) };
    const ratios: number[] = [];
    const rates: number[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const up = await othersRate(environment, ends, false);
      const down = await othersRate(environment, ends, true);
      // The first round warms up.
      if (round > 0) ratios.push(down / up);
      if (round > 0) rates.push(up);
    }
    const figure = {
      name: "(dd) rate of two destinations of a list while the third is down",
      value: rate(median(ratios) * median(rates)),
      baseline: `${rate(median(rates))} while it is up`,
      ratio: median(ratios),
      target: ">= 0.85",
      met: median(ratios) >= 0.85,
    };
    return [figure, ...(await outage(environment, ends))];
  } finally {
    await http.close();
    await endBrokerRun();
  }
}

/** @returns deliveries a second to Kafka and NATS together */
async function othersRate(environment: Environment, ends: Ends, isDown: boolean): Promise<number> {
  await insert(environment, "rate", 0, MESSAGES / 4);
  await vacuum(environment);
  if (isDown) await ends.http.close();
  const pollers = [await startPoller(environment, ends), await startPoller(environment, ends)];
  const startedAt = performance.now();
  await untilSent(environment, ["kafka", "nats"]);
  const ms = performance.now() - startedAt;
  for (const poller of pollers) await poller.stop();
  if (isDown) await ends.http.listen();
  await environment.sql.query("TRUNCATE outbox");
  return perSecond(MESSAGES / 2, ms);
}

async function outage(environment: Environment, ends: Ends): Promise<Figure[]> {
  const histories = { http: new History(), kafka: new History(), nats: new History() };
  const before = ends.http.requests.length;
  const pollers = [await startPoller(environment, ends), await startPoller(environment, ends)] as const;
  const inserting = insertAll(environment, histories);
  await until(async () => ends.http.requests.length - before > MESSAGES / 20);
  await ends.http.close();
  const downSince = performance.now();
  await sleep(OUTAGE_MS / 4);
  process.kill(pollers[0].pid, "SIGKILL");
  await inserting;
  await sleep(Math.max(0, OUTAGE_MS - (performance.now() - downSince)));
  await ends.http.listen();
  for (let tries = 0; tries < 5; tries += 1)
    await untilSent(environment, ["http", "kafka", "nats"]).catch((error: unknown) => {
      if (tries === 4) throw error;
    });
  await pollers[1].stop();
  for (const { body } of ends.http.requests.slice(before)) receive(histories.http, body.toString());
  for (const name of ["kafka", "nats"] as const) {
    const seen = new Set<string>();
    const arrived = await ends[name].arrived((all) => {
      const latest = all.at(-1);
      if (latest !== undefined && isOfOutage(latest.body)) seen.add(latest.body);
      return seen.size >= MESSAGES;
    });
    for (const { body } of arrived) receive(histories[name], body);
  }
  return Object.entries(histories).map(([name, history]) => {
    // In flight at the kill, or when the receiver went away.
    const repeated = history.repeated.length;
    history.mayRepeat(history.repeated.map(({ id }) => id));
    const violations = history.violations();
    return {
      name: `(dd) ${MESSAGES} messages at ${name}, HTTP down for ${OUTAGE_MS / 1000} s, one of two pollers killed`,
      value: violations.length === 0 ? `all, in order, ${repeated} twice` : violations.join("; "),
      baseline: "",
      ratio: undefined,
      target: "all, in order, < 200 twice",
      met: violations.length === 0 && repeated < 200,
    };
  });
}

const isOfOutage = (body: string): boolean => (JSON.parse(body) as { id: string }).id.startsWith("outage");

function receive(history: History, body: string): void {
  if (isOfOutage(body)) history.received((JSON.parse(body) as { id: string }).id);
}

async function insertAll(environment: Environment, histories: Readonly<Record<string, History>>): Promise<void> {
  for (let first = 0; first < MESSAGES; first += CHUNK) {
    const ids = await insert(environment, "outage", first, CHUNK);
    for (const [n, id] of ids.entries())
      for (const history of Object.values(histories)) {
        history.sent(id, `key-${(first + n) % KEYS}`);
        history.acknowledged(id);
      }
    await sleep(20);
  }
}

const CHUNK = 200;

async function insert({ sql }: Environment, prefix: string, first: number, count: number): Promise<readonly string[]> {
  const ids = Array.from({ length: count }, (_, n) => `${prefix}-${first + n}`);
  await sql.query(
    `INSERT INTO outbox (topic, key, payload)
     SELECT 'bench', 'key-' || ((n - 1 + $2) % $3), json_build_object('id', id, 'text', repeat('x', 900))::text
     FROM unnest($1::text[]) WITH ORDINALITY AS i(id, n) ORDER BY n`,
    [ids, first, KEYS],
  );
  return ids;
}

async function startPoller(environment: Environment, { http, kafka, nats }: Ends): Promise<Program> {
  const settings = { ...BUSY_POLLER, OUTBOX_RETRYBASEDELAYMS: 500 };
  return await environment.svc(["poller"], settings, {
    destinations: {
      http: { baseUrl: `http://127.0.0.1:${http.port}`, maxAttempts: 1000 },
      kafka: { ...kafka.destination, maxAttempts: 1000 },
      nats: { ...nats.destination, maxAttempts: 1000 },
    },
    routes: [{ topicPattern: "**", destinations: ["http", "kafka", "nats"] }],
  });
}

/** Resolves when no message waits to be expanded, and none waits for these destinations. */
async function untilSent({ sql }: Environment, destinations: readonly string[]): Promise<void> {
  await until(async () => {
    const { rows } = await sql.query(
      "SELECT NOT EXISTS (SELECT FROM outbox WHERE state IN ('pending', 'processing') AND coalesce(destination, ($1::text[])[1]) = ANY ($1::text[])) AS done",
      [destinations],
    );
    return (rows[0] as { done: boolean }).done;
  });
}
