import { describe, expect, test } from "@jest/globals";
import { startBlackHole } from "../support/blackHole.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { startFaultyReceiver } from "../support/faultyReceiver.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, useServices } from "../support/service.ts";

/**
 * A destination at its worst, beside a healthy one. All settings are the defaults: a publish that hangs holds its place for 30 s, and a
 * handful of them would be all that is under way. What is measured is none of the speed, but whether there is any: each
 * bound is shorter than what the rows of the bad destination need until their places are free.
 */
const services = useServices();
failOnLeaks();

/** How much there is to deliver. */
interface Load {
  readonly healthyRows: number;
  /** Of all bad destinations together. */
  readonly badRows: number;
  readonly where: "in front" | "in between";
  /** Until all healthy rows have arrived. */
  readonly boundMs: number;
}

const BACKLOG: Load = { healthyRows: 1000, badRows: 5000, where: "in front", boundMs: 20_000 };
const LONG_BACKLOG: Load = { ...BACKLOG, badRows: 50_000 };
const ONE_PER_CENT: Load = { ...BACKLOG, badRows: 10, where: "in between" };
/** The bad ones are more than the slots. */
const ONE_PER_MILLE: Load = { healthyRows: 9990, badRows: 10, where: "in between", boundMs: 28_000 };

interface Case {
  readonly what: string;
  readonly load: Load;
  /** Begins to be bad, until the end of the test. */
  readonly start: () => Promise<BadDestination>;
}

/** What the configuration says of it. */
type BadDestination = ConfigTree;

const CASES: readonly Case[] = [
  { what: "never answers, with 5,000 rows in front", load: BACKLOG, start: () => http("never answers") },
  { what: "never answers, with 1 % of the rows", load: ONE_PER_CENT, start: () => http("never answers") },
  { what: "never answers, with 0.1 % of the rows", load: ONE_PER_MILLE, start: () => http("never answers") },
  { what: "answers 200 and drips its body", load: BACKLOG, start: () => http("answers 200 and drips its body") },
  { what: "answers after 5 s", load: BACKLOG, start: () => http("answers after 5 s") },
  { what: "sends 103 for ever", load: BACKLOG, start: () => http("sends 103 for ever") },
  { what: "answers 500 at once, 50,000 times", load: LONG_BACKLOG, start: () => http("answers 500 at once") },
  { what: "refuses the connection, 50,000 times", load: LONG_BACKLOG, start: async () => httpAt(await freePort()) },
  {
    what: "is a RabbitMQ that is away, 50,000 times",
    load: LONG_BACKLOG,
    start: async () => rabbitmqAt(await freePort()),
  },
  { what: "is a RabbitMQ that says nothing", load: BACKLOG, start: async () => rabbitmqAt(await silentPort()) },
  { what: "is a Kafka that is away, 50,000 times", load: LONG_BACKLOG, start: async () => kafkaAt(await freePort()) },
  { what: "is a Kafka that says nothing", load: BACKLOG, start: async () => kafkaAt(await silentPort()) },
  { what: "is a NATS that is away, 50,000 times", load: LONG_BACKLOG, start: async () => natsAt(await freePort()) },
  { what: "is a NATS that says nothing", load: BACKLOG, start: async () => natsAt(await silentPort()) },
];

/** Three of a kind ask more of the others than one; that one alone is not different is seen of the first case. */
const COUNTED = CASES.flatMap((each, n) => (n === 0 ? [1, 3] : [3]).map((count) => ({ ...each, count })));

describe.each(COUNTED)("a destination that $what", ({ load, start, count }) => {
  test.each([count])("leaves its neighbour alone: %i of its kind", async () => {
    const [database, healthy] = await Promise.all([services.database(), services.receiver()]);
    const bad: [string, BadDestination][] = [];
    for (let n = 1; n <= count; n += 1) bad.push([`bad${n}`, await start()]);
    const destinations: ConfigTree = { healthy: { baseUrl: healthy.url }, ...Object.fromEntries(bad) };
    const names = Object.keys(destinations);
    await services.start({
      database,
      config: { destinations, routes: names.map((name) => ({ topicPattern: `${name}.*`, destination: name })) },
    });

    await insertRows(database, load, names.slice(1));
    await eventually(() => expect(healthy.requests.length).toBeGreaterThanOrEqual(load.healthyRows), {
      timeoutMs: load.boundMs,
      label: "the arrival of all rows of the healthy destination",
    });

    expect(sequencesByKey(healthy)).toEqual(expectedByKey(load.healthyRows));
    await eventually(async () => {
      expect(await statesOfHealthy(database)).toEqual([{ state: "sent", attempt: 0, rows: load.healthyRows }]);
    });
    // Each of the others had its turn: they were as bad as they are said to be.
    await eventually(async () => expect(await triedDestinations(database)).toEqual(names.toSorted()));
  });
});

test("a destination that never answers and that rows, but no route, name leaves its neighbour alone", async () => {
  const [database, healthy, standby] = await Promise.all([
    services.database(),
    services.receiver(),
    http("never answers"),
  ]);
  await services.start({
    database,
    config: {
      destinations: { healthy: { baseUrl: healthy.url }, standby },
      routes: [{ topicPattern: "**", destination: "healthy" }],
    },
  });

  await insertRows(database, BACKLOG, ["standby"], "standby");
  await eventually(() => expect(healthy.requests.length).toBeGreaterThanOrEqual(BACKLOG.healthyRows), {
    timeoutMs: BACKLOG.boundMs,
    label: "the arrival of all rows of the healthy destination",
  });

  expect(sequencesByKey(healthy)).toEqual(expectedByKey(BACKLOG.healthyRows));
  await eventually(async () => expect(await triedDestinations(database)).toEqual(["healthy", "standby"]));
});

test("ten destinations that never answer leave a neighbour its slots, also after a restart", async () => {
  const [database, healthy, hanging] = await Promise.all([
    services.database(),
    services.receiver(),
    http("never answers"),
  ]);
  const bad = Array.from({ length: 10 }, (_, n) => `bad${n}`);
  const start = () =>
    services.start({
      database,
      config: {
        destinations: { healthy: { baseUrl: healthy.url }, ...Object.fromEntries(bad.map((name) => [name, hanging])) },
        routes: ["healthy", ...bad].map((name) => ({ topicPattern: `${name}.*`, destination: name })),
      },
    });
  const killed = await start();
  const { healthyRows, boundMs } = BACKLOG;
  await insertRows(database, { ...BACKLOG, badRows: 0 }, bad);
  await healthy.received(healthyRows);

  await insertRows(database, BACKLOG, bad);
  await eventually(() => expect(healthy.requests.length).toBeGreaterThanOrEqual(2 * healthyRows), {
    timeoutMs: boundMs,
    label: "the arrival of all rows of the healthy destination",
  });

  expect(sequencesByKey(healthy)).toEqual(expectedByKey(healthyRows, 2));

  const seenIll = "SELECT FROM outbox_destination WHERE slow_at IS NOT NULL OR last_failure_at IS NOT NULL";
  await eventually(async () => expect((await database.query(seenIll)).length).toBeGreaterThanOrEqual(SLOTS - 2));
  // Claims of a process that was killed hold up their keys until the lease ends.
  const unsettled = "SELECT FROM outbox WHERE topic LIKE 'healthy.%' AND state <> 'sent'";
  await eventually(async () => expect(await database.query(unsettled)).toEqual([]));
  killed.process.kill("SIGKILL");
  await killed.process.exited;
  await start();
  await insertRows(database, BACKLOG, bad);
  await eventually(() => expect(healthy.requests.length).toBeGreaterThanOrEqual(3 * healthyRows), {
    timeoutMs: boundMs,
    label: "the arrival of all rows of the healthy destination after a restart",
  });
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
async function insertRows(
  database: TestDatabase,
  load: Load,
  bad: readonly string[],
  override: string | null = null,
): Promise<void> {
  const { healthyRows, badRows, where } = load;
  await database.query(
    `INSERT INTO outbox (topic, key, payload, destination_override)
     SELECT topic, key, payload, override FROM (
       SELECT 'healthy.' || n % 3 AS topic, 'healthy-' || n % $2::int AS key, n::text AS payload, n::float8 / $1::int AS place,
           NULL AS override
         FROM generate_series(0, $1::int - 1) n
       UNION ALL
       SELECT ($4::text[])[1 + n % cardinality($4::text[])] || '.' || n, 'bad-' || n, n::text,
           CASE WHEN $5::boolean THEN -1 ELSE (n + 0.5) / $3::int END, $6::text
         FROM generate_series(0, $3::int - 1) n
     ) AS mixed ORDER BY place`,
    [healthyRows, KEYS, badRows, bad, where === "in front", override],
  );
}

/** What has arrived, in the order in which it did. */
function sequencesByKey(receiver: Receiver): ReadonlyMap<number, readonly number[]> {
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

function statesOfHealthy(database: TestDatabase) {
  return database.query(
    "SELECT state, attempt, count(*)::int AS rows FROM outbox WHERE topic LIKE 'healthy.%' GROUP BY state, attempt",
  );
}

/** The destinations of rows that a poller has had, which the first part of their topic names. */
async function triedDestinations(database: TestDatabase): Promise<readonly string[]> {
  const rows = await database.query<{ destination: string }>(
    `SELECT DISTINCT split_part(topic, '.', 1) AS destination FROM outbox WHERE state <> 'pending' OR attempt > 0
     ORDER BY 1`,
  );
  return rows.map(({ destination }) => destination);
}

async function http(answer: Parameters<typeof startFaultyReceiver>[0]): Promise<BadDestination> {
  const receiver = await startFaultyReceiver(answer);
  services.defer(() => receiver.close());
  return httpAt(receiver.port);
}

/** A port that takes connections and everything that comes over them. */
async function silentPort(): Promise<number> {
  const blackHole = await startBlackHole();
  services.defer(() => blackHole.close());
  return blackHole.port;
}

const httpAt = (port: number): BadDestination => ({ baseUrl: `http://127.0.0.1:${port}` });
const rabbitmqAt = (port: number): BadDestination => ({
  type: "rabbitmq",
  url: `amqp://guest:guest@127.0.0.1:${port}`,
  exchange: "orders",
});
const kafkaAt = (port: number): BadDestination => ({
  type: "kafka",
  bootstrapServers: `127.0.0.1:${port}`,
  topic: "orders",
});
const natsAt = (port: number): BadDestination => ({
  type: "nats",
  servers: `nats://127.0.0.1:${port}`,
  subject: "orders",
});
