import { afterEach, beforeAll, describe, expect, test } from "@jest/globals";
import { startBlackHole } from "../support/blackHole.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { startFaultyReceiver } from "../support/faultyReceiver.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, type Service, useServices } from "../support/service.ts";

/**
 * A destination at its worst, beside a healthy one. All settings are the defaults: a publish that hangs holds its place for 30 s, and a
 * handful of them would be all that is under way. What is measured is none of the speed, but whether there is any: each
 * bound is shorter than what the rows of the bad destination need until their places are free. One service has them all;
 * each test has destinations of its own, which the service has not met before.
 */
const services = useServices("block");
failOnLeaks("block");

/** How much there is to deliver. */
interface Load {
  readonly healthyRows: number;
  /** Of all bad destinations together. */
  readonly badRows: number;
  readonly where: "in front" | "in between";
  /** Until all healthy rows have arrived. */
  readonly boundMs: number;
}

const BACKLOG: Load = { healthyRows: 500, badRows: 2000, where: "in front", boundMs: 20_000 };
const LONG_BACKLOG: Load = { ...BACKLOG, badRows: 20_000 };
const ONE_PER_CENT: Load = { healthyRows: 990, badRows: 10, where: "in between", boundMs: 20_000 };
/** The bad ones are more than the slots. Held slots would be free only after the timeout of 30 s. */
const TWO_PER_MILLE: Load = { healthyRows: 4990, badRows: 10, where: "in between", boundMs: 28_000 };

interface Case {
  readonly what: string;
  readonly load: Load;
  /** Begins to be bad, until it is closed. */
  readonly start: () => Promise<BadDestination>;
}

interface BadDestination {
  /** What the configuration says of it. */
  readonly config: ConfigTree;
  /** From then on it refuses connections. */
  readonly close: () => unknown;
}

const CASES: readonly Case[] = [
  { what: "never answers, with 2,000 rows in front", load: BACKLOG, start: () => http("never answers") },
  { what: "never answers, with 1 % of the rows", load: ONE_PER_CENT, start: () => http("never answers") },
  { what: "never answers, with 0.2 % of the rows", load: TWO_PER_MILLE, start: () => http("never answers") },
  { what: "answers 200 and drips its body", load: BACKLOG, start: () => http("answers 200 and drips its body") },
  { what: "answers after 5 s", load: BACKLOG, start: () => http("answers after 5 s") },
  { what: "sends 103 for ever", load: BACKLOG, start: () => http("sends 103 for ever") },
  { what: "answers 500 at once, 20,000 times", load: LONG_BACKLOG, start: () => http("answers 500 at once") },
  { what: "refuses the connection", load: BACKLOG, start: () => away(httpAt) },
  { what: "is a RabbitMQ that is away", load: BACKLOG, start: () => away(rabbitmqAt) },
  { what: "is a RabbitMQ that says nothing", load: BACKLOG, start: () => silent(rabbitmqAt) },
  { what: "is a Kafka that is away", load: BACKLOG, start: () => away(kafkaAt) },
  { what: "is a Kafka that says nothing", load: BACKLOG, start: () => silent(kafkaAt) },
  { what: "is a NATS that is away", load: BACKLOG, start: () => away(natsAt) },
  { what: "is a NATS that says nothing", load: BACKLOG, start: () => silent(natsAt) },
];

/** A healthy destination and its bad neighbours. */
class Neighbours {
  readonly healthy: string;
  readonly bad: readonly string[];
  readonly #destinations: readonly BadDestination[];

  private constructor(name: string, destinations: readonly BadDestination[]) {
    this.healthy = `${name}-healthy`;
    this.bad = destinations.map((_, n) => `${name}-bad${n + 1}`);
    this.#destinations = destinations;
  }

  static async start(name: string, count: number, start: Case["start"]): Promise<Neighbours> {
    return new Neighbours(name, await Promise.all(Array.from({ length: count }, start)));
  }

  get names(): readonly string[] {
    return [this.healthy, ...this.bad];
  }

  get config(): readonly (readonly [string, ConfigTree])[] {
    const bad = this.bad.map((name, n) => [name, this.#destinations[n]?.config ?? {}] as const);
    return [[this.healthy, { baseUrl: receiver.url, path: `/${this.healthy}` }], ...bad];
  }

  async close(): Promise<void> {
    for (const { close } of this.#destinations) await close();
  }
}

/** Three of a kind ask more of the others than one; that one alone is not different is seen of the first case. */
const COUNTED = CASES.flatMap((each, n) => (n === 0 ? [1, 3] : [3]).map((count) => ({ ...each, count })));

let database: TestDatabase;
let receiver: Receiver;
let service: Service;
let start: () => Promise<Service>;
let ofCases: readonly Neighbours[];
/** Its bad one is named by rows, but by no route. */
let standby: Neighbours;
let ten: Neighbours;
/** All of them were slow when they were last seen. */
let recovered: Neighbours;

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  ofCases = await Promise.all(COUNTED.map((each, n) => Neighbours.start(`of${n}`, each.count, each.start)));
  standby = await Neighbours.start("standby", 1, () => http("never answers"));
  ten = await Neighbours.start("ten", 10, () => http("never answers"));
  recovered = await Neighbours.start("recovered", 2, () => http("never answers"));
  const all = [...ofCases, standby, ten, recovered];
  services.defer(() => Promise.all(all.map((each) => each.close())));
  const destinations = Object.fromEntries(all.flatMap(({ config }) => config));
  const routes = [...ofCases, ten, recovered].flatMap(({ names }) => names).map((name) => [name, name] as const);
  const ofStandby = standby.names.map((name) => [name, standby.healthy] as const);
  const config = {
    destinations,
    routes: [...routes, ...ofStandby].map(([name, destination]) => ({ topicPattern: `${name}.*`, destination })),
  };
  start = () => services.start({ database, config });
  service = await start();
});

/** Those of the test that runs, from its first rows on. */
let used: Neighbours | undefined;

// The next test finds no row and no delivery.
afterEach(async () => {
  await used?.close();
  used = undefined;
  await database.query("TRUNCATE outbox");
  await eventually(async () => expect(await service.metric("svc_destination_in_flight")).toBe(0), {
    timeoutMs: 40_000,
    intervalMs: 100,
  });
  receiver.requests.splice(0);
});

/** Waits until the healthy destination has got its rows so many times. */
async function arrival(load: Load, times = 1): Promise<void> {
  await eventually(() => receiver.requests.length >= times * load.healthyRows, {
    timeoutMs: load.boundMs,
    label: "the arrival of all rows of the healthy destination",
  });
}

describe.each(COUNTED.map((each, n) => ({ ...each, n })))("a destination that $what", ({ load, count, n }) => {
  test.each([count])("leaves its neighbour alone: %i of its kind", async () => {
    const neighbours = ofCases[n] as Neighbours;

    await insertRows(load, neighbours);
    await arrival(load);
    // However fast those fail that were in front.
    if (load.where === "in front") expect(await triedRows(neighbours)).toBeLessThan(load.badRows / 2);

    expect(sequencesByKey()).toEqual(expectedByKey(load.healthyRows));
    await eventually(async () => {
      expect(await statesOfHealthy(neighbours)).toEqual([{ state: "sent", attempt: 0, rows: load.healthyRows }]);
    });
    // Each of the others had its turn: they were as bad as the test wants them.
    await eventually(async () => expect(await triedDestinations()).toEqual(neighbours.names.toSorted()));
  });
});

test("a destination that never answers and that rows, but no route, name leaves its neighbour alone", async () => {
  await insertRows(BACKLOG, standby, standby.bad[0]);
  await arrival(BACKLOG);

  expect(sequencesByKey()).toEqual(expectedByKey(BACKLOG.healthyRows));
  await eventually(async () => expect(await triedDestinations()).toEqual(standby.names.toSorted()));
});

test("ten destinations that never answer leave a neighbour its slots, also after a restart", async () => {
  const { healthyRows } = BACKLOG;
  await insertRows({ ...BACKLOG, badRows: 0 }, ten);
  await receiver.received(healthyRows);

  await insertRows(BACKLOG, ten);
  await arrival(BACKLOG, 2);

  expect(sequencesByKey()).toEqual(expectedByKey(healthyRows, 2));

  const seenIll =
    "SELECT FROM outbox_destination WHERE name LIKE 'ten-bad%' AND (slow_at IS NOT NULL OR last_failure_at IS NOT NULL)";
  await eventually(async () => expect((await database.query(seenIll)).length).toBeGreaterThanOrEqual(SLOTS - 2));
  // Claims of a process that was killed hold up their keys until the lease ends.
  const unsettled = "SELECT FROM outbox WHERE topic LIKE 'ten-healthy.%' AND state <> 'sent'";
  await eventually(async () => expect(await database.query(unsettled)).toEqual([]));
  await service.kill();
  // However long nothing ran.
  await database.query(
    "UPDATE outbox_destination SET slow_at = slow_at - $1::interval, last_success_at = last_success_at - $1::interval",
    ["1 hour"],
  );
  service = await start();
  await insertRows(BACKLOG, ten);
  await arrival(BACKLOG, 3);
});

test("a destination that has recovered while nothing ran does not wait for destinations that never answer", async () => {
  await service.kill();
  const slow = "INSERT INTO outbox_destination (name, slow_at) SELECT unnest($1::text[]), now() - interval '1 hour'";
  await database.query(slow, [recovered.names]);
  await insertRows(BACKLOG, recovered);

  service = await start();
  await arrival(BACKLOG);

  await eventually(async () => expect(await triedDestinations()).toEqual(recovered.names.toSorted()));
});

const KEYS = 50;
/** `outbox.concurrency` by default. */
const SLOTS = 8;

/**
 * All rows with one commit. Each row of a bad destination has a topic and a key of its own: none waits behind another,
 * nor can be known by its topic.
 *
 * @param override the destination that the rows of the bad ones name themselves
 */
async function insertRows(load: Load, neighbours: Neighbours, override: string | null = null): Promise<void> {
  used = neighbours;
  const { healthy, bad } = neighbours;
  const { healthyRows, badRows, where } = load;
  await database.query(
    `INSERT INTO outbox (topic, key, payload, destination)
     SELECT topic, key, payload, override FROM (
       SELECT $7 || '.' || n % 3 AS topic, 'healthy-' || n % $2::int AS key, n::text AS payload, n::float8 / $1::int AS place,
           NULL AS override
         FROM generate_series(0, $1::int - 1) n
       UNION ALL
       SELECT ($4::text[])[1 + n % cardinality($4::text[])] || '.' || n, 'bad-' || n, n::text,
           CASE WHEN $5::boolean THEN -1 ELSE (n + 0.5) / $3::int END, $6::text
         FROM generate_series(0, $3::int - 1) n
     ) AS mixed ORDER BY place`,
    [healthyRows, KEYS, badRows, bad, where === "in front", override, healthy],
  );
}

/** What has arrived, in the order in which it did. */
function sequencesByKey(): ReadonlyMap<number, readonly number[]> {
  return grouped(receiver.requests.map(({ body }) => Number(body.toString())));
}

/** @param times how often the rows were inserted */
function expectedByKey(rows: number, times = 1): ReadonlyMap<number, readonly number[]> {
  return grouped(Array.from({ length: times * rows }, (_, n) => n % rows));
}

function grouped(numbers: readonly number[]): ReadonlyMap<number, readonly number[]> {
  const groups = new Map<number, number[]>(Array.from({ length: KEYS }, (_, key) => [key, []]));
  for (const n of numbers) groups.get(n % KEYS)?.push(n);
  return groups;
}

function statesOfHealthy({ healthy }: Neighbours) {
  return database.query(
    "SELECT state, attempt, count(*)::int AS rows FROM outbox WHERE topic LIKE $1 || '.%' GROUP BY state, attempt",
    [healthy],
  );
}

/** Rows that a poller has had. */
const TRIED = "(state <> 'pending' OR attempt > 0)";

/** The destinations of rows that a poller has had, which the first part of their topic names. */
async function triedDestinations(): Promise<readonly string[]> {
  const rows = await database.query<{ destination: string }>(
    `SELECT DISTINCT split_part(topic, '.', 1) AS destination FROM outbox WHERE ${TRIED} ORDER BY 1`,
  );
  return rows.map(({ destination }) => destination);
}

/** How many rows of the bad destinations a poller has had. */
async function triedRows({ healthy }: Neighbours): Promise<number> {
  const rows = await database.query(`SELECT FROM outbox WHERE topic NOT LIKE $1 || '.%' AND ${TRIED}`, [healthy]);
  return rows.length;
}

async function http(answer: Parameters<typeof startFaultyReceiver>[0]): Promise<BadDestination> {
  const faulty = await startFaultyReceiver(answer);
  return { config: httpAt(faulty.port), close: () => faulty.close() };
}

/** Nobody listens. */
async function away(at: (port: number) => ConfigTree): Promise<BadDestination> {
  return { config: at(await freePort()), close: () => {} };
}

/** Takes connections and everything that comes over them. */
async function silent(at: (port: number) => ConfigTree): Promise<BadDestination> {
  const blackHole = await startBlackHole();
  return { config: at(blackHole.port), close: () => blackHole.close() };
}

const httpAt = (port: number): ConfigTree => ({ baseUrl: `http://127.0.0.1:${port}` });
const rabbitmqAt = (port: number): ConfigTree => ({
  type: "rabbitmq",
  url: `amqp://guest:guest@127.0.0.1:${port}`,
  exchange: "orders",
});
const kafkaAt = (port: number): ConfigTree => ({
  type: "kafka",
  bootstrapServers: `127.0.0.1:${port}`,
  topic: "orders",
});
const natsAt = (port: number): ConfigTree => ({
  type: "nats",
  servers: `nats://127.0.0.1:${port}`,
  subject: "orders",
});
