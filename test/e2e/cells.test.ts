import { expect, test } from "@jest/globals";
import { cellOf } from "../../src/model/cells.ts";
import { atMost } from "../../src/time/wait.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, databaseConfig, ordersTo, type Service, useServices } from "../support/service.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcpProxy.ts";
import { allDelivered, record, sendTraffic } from "../support/traffic.ts";
import { type Cell, TwoCells } from "../support/twoCells.ts";

const services = useServices();
failOnLeaks();

async function setup() {
  const receiver = await services.receiver();
  return { receiver, cells: await TwoCells.open(services, receiver) };
}

/** A list of the cells that does not take `database.url` for one of them. */
const namedUrls = ({ cells }: TwoCells) => cells.map(({ name, url }) => ({ name, url }));

const keysIn = async (cell: Cell) =>
  (await cell.query<{ key: string }>("SELECT DISTINCT aggregate_id AS key FROM inbox")).map(({ key }) => key);

const KEYS = Array.from({ length: 20 }, (_, n) => `key-${n}`);
const [OF_A, OF_B] = [0, 1].map((cell) => KEYS.filter((key) => cellOf(key, 2) === cell)) as [string[], string[]];

test("messages go to the cell of their key, and are delivered from there in order", async () => {
  const { receiver, cells } = await setup();
  const { a, b } = cells;
  const service = await cells.start();
  const history = new History();
  record(receiver, history);
  await sendTraffic({ history, to: [service], keys: KEYS.length, messagesPerKey: 20 });
  await allDelivered(history, 30_000);
  expect(history.violations()).toEqual([]);
  expect(history.repeated).toEqual([]);
  expect((await keysIn(a)).toSorted()).toEqual(OF_A.toSorted());
  expect((await keysIn(b)).toSorted()).toEqual(OF_B.toSorted());
  for (const id of history.acknowledgedIds.slice(0, 40)) {
    const [, key, n] = id.split("-");
    const answer = await service.post({ id, key: `key-${key}`, type: "created", n: Number(n) });
    expect([id, answer.status, answer.json()]).toEqual([id, 200, { status: "duplicate" }]);
  }

  const metrics = (await service.get("/metrics")).text;
  expect(metrics).toMatch(/svc_outbox_messages_total\{status="sent",cell="b"\} [1-9]/);
  expect(metrics).toMatch(/svc_inbox_messages_total\{status="new",cell=""\} 400/);
  expect((await service.readiness()).components).toMatchObject({
    database: "up",
    "database.a": "up",
    "database.b": "up",
    "outbox-poller": "up",
    "outbox-poller.b": "up",
  });
}, 90_000);

test("a request whose messages are stored together or not at all is refused when they belong to several cells", async () => {
  const { cells } = await setup();
  const service = await cells.start({ sources: { orders: { batch: { atomic: true } } } }, ["ingest"]);
  const send = (keys: readonly string[]) =>
    service.post(keys.map((key) => `${JSON.stringify({ id: `x-${key}`, key, type: "created" })}\n`).join(""), {
      headers: { "content-type": "application/x-ndjson" },
    });
  const apart = await send(KEYS);
  expect(apart.status).toBe(400);
  expect(apart.text).toContain("with batch.atomic a request cannot hold messages of several cells");
  for (const cell of cells.cells) expect(await keysIn(cell)).toEqual([]);
  expect((await send(OF_B)).status).toBe(202);
  expect((await keysIn(cells.b)).toSorted()).toEqual(OF_B.toSorted());
});

/** Answers of a service to a message of each of these keys, as far as they come within the time. */
async function answersWithin(ms: number, service: Service, keys: readonly string[], id: string): Promise<string[]> {
  const answers: string[] = [];
  const posts = keys.map(async (key) => {
    const { status } = await service.post({ id: `${id}-${key}`, key, type: "created" });
    answers.push(`${key} ${status}`);
  });
  await atMost(ms, Promise.allSettled(posts));
  return answers.toSorted();
}

const arrived = (receiver: Receiver, id: string) =>
  receiver.requests.filter(({ body }) => body.toString().includes(`"id":"${id}-`)).length;

async function hold(proxy: TcpProxy, work: () => Promise<void>): Promise<void> {
  proxy.setMode("held");
  try {
    await work();
  } finally {
    proxy.setMode("open");
  }
}

test("the paused database of a cell stops nothing in the other", async () => {
  const { receiver, cells } = await setup();
  const { b } = cells;
  const service = await cells.start();
  expect(await answersWithin(15_000, service, KEYS, "all")).toHaveLength(20);
  await eventually(() => expect(arrived(receiver, "all")).toBe(20));

  await hold(b.proxy, async () => {
    const waiting = OF_B.map((key) => service.post({ id: `held-${key}`, key, type: "created" }).catch(() => undefined));
    expect(await answersWithin(10_000, service, OF_A, "held")).toEqual(OF_A.map((key) => `${key} 202`).toSorted());
    await eventually(() => expect(arrived(receiver, "held")).toBe(OF_A.length));
    await eventually(async () => {
      const { status, components } = await service.readiness();
      expect({ status, ...components }).toMatchObject({
        status: 200,
        database: "up",
        "database.a": "up",
        "database.b": "down",
      });
    });
    b.proxy.setMode("open");
    // Requests under way are answered, with what became of them.
    const answers = await Promise.all(waiting);
    for (const answer of answers) expect([202, 500, undefined]).toContain(answer?.status);
  });
  await eventually(async () => expect(await answersWithin(15_000, service, OF_B, "held")).toHaveLength(OF_B.length), {
    timeoutMs: 60_000,
  });
  await eventually(() => expect(arrived(receiver, "held")).toBe(20), { timeoutMs: 60_000 });
  await eventually(async () => expect((await service.readiness()).components["database.b"]).toBe("up"));
}, 150_000);

test("while the schema that cells share is away, pauses hold, limited destinations wait, and the rest is delivered", async () => {
  const { receiver, cells } = await setup();
  const shared = await services.database();
  const proxy = await startTcpProxy(shared);
  services.defer(() => proxy.close());
  const { pathname } = new URL(shared.url);
  const names = ["open", "limited", "paused"] as const;
  const baseUrl = receiver.url;
  const service = await cells.start({
    database: { url: `jdbc:postgresql://127.0.0.1:${proxy.port}${pathname}`, cells: namedUrls(cells) },
    destinations: { open: { baseUrl }, limited: { baseUrl, rateLimit: { perSecond: 100 } }, paused: { baseUrl } },
    routes: names.map((name) => ({ topicPattern: name, destination: name })),
  });
  await shared.query("INSERT INTO outbox_destination (name, paused_at, paused_by) VALUES ('paused', now(), 'alice')");
  for (const name of ["a", "b"]) {
    const isKnown = `svc_destination_state{destination="paused",state="paused",cell="${name}"} 1`;
    await eventually(async () => expect((await service.get("/metrics")).text).toContain(isKnown));
  }
  const send = async (id: string) => {
    for (const cell of cells.cells)
      for (const name of names)
        await cell.query("INSERT INTO outbox (topic, payload) VALUES ($1, $2)", [name, `{"id":"${id}-${name}-"}`]);
  };

  await hold(proxy, async () => {
    await eventually(async () =>
      expect((await service.readiness()).components).toMatchObject({ database: "up", "database.control": "down" }),
    );
    await send("away");
    await eventually(() => expect(arrived(receiver, "away-open")).toBe(2));
    expect(arrived(receiver, "away")).toBe(2);
  });
  await eventually(() => expect(arrived(receiver, "away-limited")).toBe(2), { timeoutMs: 30_000 });
  expect(arrived(receiver, "away-paused")).toBe(0);
  await shared.query("UPDATE outbox_destination SET paused_at = NULL");
  await eventually(() => expect(arrived(receiver, "away-paused")).toBe(2));
}, 90_000);

test("a process that starts while a cell is away serves the others, and opens that one when it is back", async () => {
  const { receiver, cells } = await setup();
  const { b } = cells;
  await (await cells.start()).stop();

  let second: Service | undefined;
  await hold(b.proxy, async () => {
    second = await cells.start();
    expect(await answersWithin(10_000, second, OF_A, "early")).toEqual(OF_A.map((key) => `${key} 202`).toSorted());
    await eventually(() => expect(arrived(receiver, "early")).toBe(OF_A.length));
  });
  await second?.process.waitForLine(/(?=.*"cell":"b").*the cell is open/, 90_000);
  if (second === undefined) throw new Error("it has not started");
  expect(await answersWithin(15_000, second, OF_B, "late")).toEqual(OF_B.map((key) => `${key} 202`).toSorted());
  await eventually(() => expect(arrived(receiver, "late")).toBe(OF_B.length));
}, 150_000);

test("a number of cells makes their schemas, and another number ends the start", async () => {
  const [receiver, database] = [await services.receiver(), await services.database()];
  const config = (cells: number | ConfigTree[]) =>
    ordersTo(receiver, { database: { ...databaseConfig(database), cells } });
  const service = await services.start({ database, config: config(2) });
  for (const name of ["public_0", "public_1"])
    await service.process.waitForLine(new RegExp(`(?=.*"cell":"${name}").*the cell is open`), 30_000);
  expect(await answersWithin(15_000, service, KEYS, "m")).toHaveLength(20);
  await eventually(() => expect(arrived(receiver, "m")).toBe(20));
  const found = await database.query("SELECT DISTINCT aggregate_id AS key FROM public_1.inbox ORDER BY key");
  expect(found).toEqual(OF_B.toSorted().map((key) => ({ key })));
  const command = services.processes.svc(["cells", "of", "key-0", "--config", services.configFile(config(2))]);
  expect([(await command.exited).code, command.stdout]).toEqual([0, ["public_1"]]);
  await service.stop();

  const { exited, stderr } = (await services.launch({ database, config: config(3) })).process;
  expect((await exited).code).toBe(2);
  expect(stderr.join("\n")).toMatch(
    /database\.cells: this database is the schema that 2 cells share, but the configuration makes it the schema that 3 cells share: restore/,
  );
  expect(await database.query("SELECT FROM pg_namespace WHERE nspname = 'public_2'")).toEqual([]);
  const without = (await services.launch({ database, config: config([]) })).process;
  expect((await without.exited).code).toBe(2);
  expect(without.stderr.join("\n")).toContain("2 cells share, but the configuration has no cells");
}, 60_000);

test("svc retention --once sweeps a cell beside a cell with unfit tables, and exits with code 2", async () => {
  const { cells } = await setup();
  await (await cells.start()).stop();
  await cells.a.query("ALTER TABLE outbox DROP COLUMN last_error");
  await cells.b.query(
    "INSERT INTO outbox (topic, payload, state, updated_at) VALUES ('t', '{}', 'sent', '2020-01-01')",
  );
  const retention = { enabled: true, outbox: { policy: "AGE", maxAge: "1h" } };

  const { exited, stderr } = await cells.launchService({ retention }, ["retention", "--once"]);

  expect((await exited).code).toBe(2);
  expect(stderr.join("\n")).toContain("cell a, database.columnMapping.outbox.lastError");
  expect(await cells.b.query("SELECT FROM outbox")).toEqual([]);
});

test("relay and poller work in the cells that the process names", async () => {
  const { receiver, cells } = await setup();
  const { b } = cells;
  const front = await cells.start({}, ["ingest"]);
  const ofA = await cells.start({}, ["relay", "poller", "--cells", "a"]);
  expect(await answersWithin(15_000, front, KEYS, "m")).toHaveLength(20);
  await eventually(() => expect(arrived(receiver, "m")).toBe(OF_A.length));
  expect(await b.query("SELECT 1 FROM outbox")).toEqual([]);
  const ofB = await cells.start({}, ["relay", "poller", "--cells", "b"]);
  await eventually(() => expect(arrived(receiver, "m")).toBe(20));
  for (const service of [front, ofA, ofB]) expect((await service.stop()).code).toBe(0);
}, 90_000);

test("a list of cells that would take keys to other databases ends the start, with what is stored and what it says", async () => {
  const { cells } = await setup();
  await (await cells.start()).stop();
  expect(await cells.b.query("SELECT position, name, cells FROM outbox_cell")).toEqual([
    { position: 2, name: "b", cells: 2 },
  ]);
  const [a = {}, b = {}] = cells.list;
  const { exited, stderr } = await cells.launchService({ database: { cells: [b, a] } });
  expect((await exited).code).toBe(2);
  expect(stderr.join("\n")).toMatch(
    /database\.cells: this database is cell [12] of 2 \((a|b)\), but the configuration makes it cell [12] of 2 \(\1\): restore the number, the order and the databases of the cells/,
  );
  await cells.b.query("DROP TABLE outbox_cell");
  const withoutMigrations = { database: { migrate: false } };
  await expect(cells.start(withoutMigrations)).rejects.toThrow(/cell b.*outbox_cell.*run `svc migrate`/s);
}, 60_000);

test("rows that wait in the tables of database.url, which no cell has, end the start", async () => {
  const { cells } = await setup();
  await (await cells.start()).stop();
  const other = await services.database();
  const config = (list: readonly ConfigTree[]) => ({ database: { url: other.jdbcUrl, cells: list } });
  await (await cells.start(config([]), ["ingest"])).stop();
  const apart = config(namedUrls(cells));
  await (await cells.start(apart)).stop();

  await other.query("INSERT INTO outbox (topic, payload, scheduled_at) VALUES ('t', '1', '2100-01-01')");
  const { exited, stderr } = await cells.launchService(apart);
  expect((await exited).code).toBe(2);
  expect(stderr.join("\n")).toContain("database.cells: no cell has the tables of database.url, and rows wait in them");
}, 60_000);
