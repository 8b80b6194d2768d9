import { describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, useServices } from "../support/service.ts";

/** What limits deliveries to a destination, with the built binary, several replicas and a real database. */
const services = useServices();
failOnLeaks();

/** Rows of `topic` with payloads 0 to `count` - 1; those that are equal modulo `keys` share a key. */
async function insertRows(database: TestDatabase, topic: string, count: number, keys = 50): Promise<void> {
  await database.query(
    "INSERT INTO outbox (topic, key, payload) SELECT $1, $1 || n % $3::int, n::text FROM generate_series(0, $2::int - 1) n",
    [topic, count, keys],
  );
}

function toTwo(limited: Receiver, other: Receiver, limits: ConfigTree): ConfigTree {
  return {
    destinations: { limited: { baseUrl: limited.url, ...limits }, other: { baseUrl: other.url } },
    routes: [
      { topicPattern: "limited.**", destination: "limited" },
      { topicPattern: "other.**", destination: "other" },
    ],
  };
}

/** Starts replicas that share a database. The first one makes its tables. */
async function startFleet(database: TestDatabase, config: ConfigTree, count: number) {
  const fleet = [await services.start({ database, config, roles: ["poller"] })];
  const others = Array.from({ length: count - 1 }, () => services.start({ database, config, roles: ["poller"] }));
  return [...fleet, ...(await Promise.all(others))];
}

/** When each request came, in ms. */
function arrivals(receiver: Receiver, status: () => number): number[] {
  const times: number[] = [];
  receiver.answer = (_, response) => {
    times.push(performance.now());
    response.writeHead(status()).end();
  };
  return times;
}

function numbers(receiver: Receiver): readonly number[] {
  return receiver.requests.map(({ body }) => Number(body.toString()));
}

/** Rows of one key whose numbers do not rise. */
function reordered(received: readonly number[], keys = 50): readonly number[] {
  const last = new Map<number, number>();
  return received.filter((n) => {
    const isLate = n < (last.get(n % keys) ?? -1);
    last.set(n % keys, Math.max(n, last.get(n % keys) ?? -1));
    return isLate;
  });
}

/** The median of the seconds from the second one on: a moment in which the machine stood still counts as one of them. */
function usualPerSecond(times: readonly number[], seconds: number): number {
  const [first = 0] = times;
  const counts = Array.from({ length: seconds }, (_, n) => {
    const from = first + (n + 1) * 1000;
    return times.filter((at) => at >= from && at < from + 1000).length;
  });
  return counts.toSorted((a, b) => a - b)[Math.floor(seconds / 2)] ?? 0;
}

function mostWithin(times: readonly number[], ms: number): number {
  return Math.max(...times.map((at, n) => times.slice(n).filter((other) => other < at + ms).length));
}

const states = (database: TestDatabase, topic: string) =>
  database.query("SELECT state, count(*)::int AS rows FROM outbox WHERE topic = $1 GROUP BY state ORDER BY state", [
    topic,
  ]);

describe("a destination with limits", () => {
  test("gets no more deliveries at a time than its own concurrency", async () => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    let inFlight = 0;
    let most = 0;
    limited.answer = (_, response) => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      setTimeout(() => {
        inFlight -= 1;
        response.end();
      }, 5);
    };
    await services.start({ database, config: toTwo(limited, other, { concurrency: 3 }), roles: ["poller"] });
    await insertRows(database, "limited.a", 500);
    await insertRows(database, "other.a", 500);
    await eventually(() => expect(other.requests).toHaveLength(500));
    await eventually(() => expect(limited.requests).toHaveLength(500), { timeoutMs: 20_000 });
    expect(most).toBe(3);
    expect(reordered(numbers(limited))).toEqual([]);
  });

  test("gets the rate of the whole fleet, whatever waits, and its neighbour is not limited", async () => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    const times = arrivals(limited, () => 200);
    const perSecond = 50;
    const config = toTwo(limited, other, { rateLimit: { perSecond } });
    await startFleet(database, config, 3);
    await insertRows(database, "limited.a", 5000);
    await insertRows(database, "other.a", 2000);
    await eventually(() => expect(other.requests).toHaveLength(2000), { timeoutMs: 20_000 });
    await eventually(() => expect(times.length).toBeGreaterThan(12 * perSecond), { timeoutMs: 30_000 });

    expect(usualPerSecond(times, 10)).toBeGreaterThanOrEqual(0.9 * perSecond);
    const [first = 0] = times;
    const within = times.filter((at) => at >= first + 1000 && at < first + 11_000).length / 10;
    const slice = perSecond / 5;
    expect(within).toBeLessThanOrEqual(perSecond + slice / 10);
    // A request may take a little longer on its way than the one before it.
    expect(mostWithin(times, 950)).toBeLessThanOrEqual(perSecond + slice);
    expect(reordered(numbers(limited))).toEqual([]);
  });

  test.each([100, 1])("gets its rate where all rows have one key: outbox.batchSize %i", async (batchSize) => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    const times = arrivals(limited, () => 200);
    const perSecond = 25;
    const config = { ...toTwo(limited, other, { rateLimit: { perSecond } }), outbox: { batchSize } };
    await startFleet(database, config, 2);
    await insertRows(database, "limited.a", 1000, 1);
    await eventually(() => expect(times.length).toBeGreaterThan(8 * perSecond), { timeoutMs: 30_000 });

    expect(usualPerSecond(times, 6)).toBeGreaterThanOrEqual(0.9 * perSecond);
    expect(numbers(limited)).toEqual(numbers(limited).toSorted((a, b) => a - b));
  });

  test("is not ready without the table that its rate needs, and goes on with the statement that the log has", async () => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    const config = toTwo(limited, other, { rateLimit: { perSecond: 100 } });
    const service = await services.start({ database, config, roles: ["poller"] });
    await insertRows(database, "limited.a", 1);
    await eventually(() => expect(limited.requests).toHaveLength(1));

    await database.query("DROP TABLE outbox_destination");
    await eventually(async () =>
      expect((await service.readiness()).components).toMatchObject({ "outbox-poller": "down" }),
    );
    await insertRows(database, "limited.b", 1);
    await insertRows(database, "other.b", 1);
    await eventually(() => expect(other.requests).toHaveLength(1));
    const told = () =>
      service.process.stdout
        .map((line) => JSON.parse(line) as Record<string, unknown>)
        .filter(({ msg }) => String(msg).startsWith("reading pauses and circuit breakers failed"));
    await eventually(() => {
      expect(told()).toMatchObject([{ level: "error", problem: expect.stringContaining("does not exist") }]);
    });
    expect(limited.requests).toHaveLength(1);

    await database.query(String(told()[0]?.remedy));
    await eventually(() => expect(limited.requests).toHaveLength(2));
    await eventually(async () =>
      expect((await service.readiness()).components).toMatchObject({ "outbox-poller": "up" }),
    );
  });

  test("stays paused across a restart, and is drained in order once it is resumed", async () => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    const config = toTwo(limited, other, {});
    const [first, second] = await startFleet(database, config, 2);
    await database.query(
      "INSERT INTO outbox_destination (name, paused_at, paused_by, pause_reason) VALUES ('limited', now(), 'ops', 'test')",
    );
    await eventually(async () => expect(await (first?.metric("svc_destination_state") ?? 0)).toBe(2));
    for (const service of [first, second]) {
      await eventually(async () => {
        expect((await service?.get("/metrics"))?.text).toContain(
          'svc_destination_state{destination="limited",state="paused"} 1',
        );
      });
    }
    await insertRows(database, "limited.a", 4000);
    await insertRows(database, "other.a", 1000);
    await eventually(() => expect(other.requests).toHaveLength(1000), { timeoutMs: 10_000 });
    await second?.kill();
    await services.start({ database, config, roles: ["poller"] });
    await insertRows(database, "other.b", 1000);
    await eventually(() => expect(other.requests).toHaveLength(2000), { timeoutMs: 20_000 });
    expect(limited.requests).toHaveLength(0);

    await database.query("UPDATE outbox_destination SET paused_at = NULL");
    await eventually(() => expect(limited.requests.length).toBeGreaterThanOrEqual(4000), { timeoutMs: 40_000 });
    expect(reordered(numbers(limited))).toEqual([]);
    await eventually(async () => {
      expect(await states(database, "limited.a")).toEqual([{ state: "sent", rows: 4000 }]);
    });
  });

  test("is left alone by the whole fleet behind its breaker, loses no row, and is back soon after it is well", async () => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    let isWell = false;
    const times = arrivals(limited, () => (isWell ? 200 : 503));
    const circuitBreaker = { minimumAttempts: 5, openMs: 1000, maxOpenMs: 2000 };
    const config = { ...toTwo(limited, other, { circuitBreaker }), outbox: { claimTimeoutMs: 10_000 } };
    const [first] = await startFleet(database, config, 3);
    await insertRows(database, "limited.a", 2000);
    await insertRows(database, "other.a", 500);
    await eventually(async () => {
      expect(await database.query("SELECT breaker_state FROM outbox_destination WHERE name = 'limited'")).toEqual([
        { breaker_state: "open" },
      ]);
    });
    await eventually(() => expect(other.requests).toHaveLength(500));
    const openedAt = performance.now();
    await eventually(() => expect(times.filter((at) => at > openedAt + 1000).length).toBeGreaterThanOrEqual(5), {
      timeoutMs: 30_000,
    });
    const probes = times.filter((at) => at > openedAt + 1000);
    const gaps = probes.slice(1).map((at, n) => at - (probes[n] ?? at));
    expect(Math.min(...gaps)).toBeGreaterThan(900);
    await first?.kill();

    isWell = true;
    // The replica that was killed may have held a row: its key goes on when the lease has ended.
    await eventually(async () => expect(await states(database, "limited.a")).toEqual([{ state: "sent", rows: 2000 }]), {
      timeoutMs: 60_000,
    });
    const accepted = numbers(limited);
    expect(reordered(accepted.slice(accepted.length - 2000))).toEqual([]);
    const [{ attempt } = { attempt: -1 }] = await database.query<{ attempt: number }>(
      "SELECT max(attempt) AS attempt FROM outbox",
    );
    expect(attempt).toBeLessThanOrEqual(2);
  }, 120_000);

  test("is not kept behind its breaker by a row that it never takes", async () => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    let isWell = false;
    limited.answer = ({ body }, response) => {
      response.writeHead(isWell && body.toString() !== "0" ? 200 : 503).end();
    };
    const circuitBreaker = { minimumAttempts: 5, openMs: 500, maxOpenMs: 1000 };
    await startFleet(database, toTwo(limited, other, { circuitBreaker }), 2);
    await insertRows(database, "limited.a", 300, 300);
    // Longer than any retry waits: the row that is never taken comes first again.
    await eventually(() => expect(openings(database)).resolves.toBeGreaterThanOrEqual(5), { timeoutMs: 20_000 });
    isWell = true;
    await eventually(
      async () => {
        const unsent = "SELECT payload::text AS payload FROM outbox WHERE state <> 'sent'";
        expect(await database.query(unsent)).toEqual([{ payload: "0" }]);
      },
      { timeoutMs: 30_000 },
    );
  });

  test("opens its breaker soon after an outage begins, however much went well before, and no row dies of it", async () => {
    const [database, limited, other] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    let isWell = true;
    const times = arrivals(limited, () => (isWell ? 200 : 503));
    await startFleet(database, toTwo(limited, other, { circuitBreaker: {} }), 1);
    await insertRows(database, "limited.a", 20_000);
    await insertRows(database, "other.a", 20_000);
    await eventually(() => expect(times.length).toBeGreaterThan(3000), { timeoutMs: 20_000 });
    isWell = false;
    await eventually(() => expect(openings(database)).resolves.toBeGreaterThanOrEqual(1), { timeoutMs: 10_000 });
    const [{ attempt } = { attempt: -1 }] = await database.query<{ attempt: number }>(
      "SELECT max(attempt) AS attempt FROM outbox",
    );
    expect(attempt).toBeLessThanOrEqual(3);
  });
});

async function openings(database: TestDatabase): Promise<number> {
  const rows = await database.query<{ openings: number }>("SELECT openings FROM outbox_destination");
  return rows[0]?.openings ?? 0;
}
