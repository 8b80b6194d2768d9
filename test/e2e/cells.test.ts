import { expect, test } from "@jest/globals";
import { bucketOf } from "../../src/model/cells.ts";
import { atMost } from "../../src/time/wait.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type Service, useServices } from "../support/service.ts";
import type { TcpProxy } from "../support/tcpProxy.ts";
import { allDelivered, record, sendTraffic } from "../support/traffic.ts";
import { type Cell, openBuckets, TwoCells } from "../support/twoCells.ts";

const services = useServices();
failOnLeaks();

async function setup() {
  const receiver = await services.receiver();
  return { receiver, cells: await TwoCells.open(services, receiver) };
}

const keysIn = async (cell: Cell) =>
  (await cell.query<{ key: string }>("SELECT DISTINCT aggregate_id AS key FROM inbox")).map(({ key }) => key);

/** Whether every inbox row with an own outbox row lies in the cell whose bucket it has. */
async function expectKeysAtHome(cell: Cell, but: readonly string[] = []): Promise<void> {
  const open = await openBuckets(cell);
  const relayed = await cell.query<{ key: string }>(
    "SELECT DISTINCT i.aggregate_id AS key FROM inbox i JOIN outbox o USING (id)",
  );
  expect(relayed.filter(({ key }) => !open.has(bucketOf(key)) && !but.includes(key))).toEqual([]);
}

function recorded(receiver: Receiver): History {
  const history = new History();
  record(receiver, history);
  return history;
}

/** Sends acknowledged messages again, evenly taken: each is known, wherever its key is by now. */
async function expectKnown(service: Service, history: History, most = 200): Promise<void> {
  const ids = history.acknowledgedIds;
  const step = Math.max(1, Math.floor(ids.length / most));
  for (const id of ids.filter((_, n) => n % step === 0)) {
    const [, key, n] = id.split("-");
    const answer = await service.post({ id, key: `key-${key}`, type: "created", n: Number(n) });
    expect([id, answer.status, answer.json()]).toEqual([id, 200, { status: "duplicate" }]);
  }
}

test("messages go to the cell of their key, and are delivered from there in order", async () => {
  const { receiver, cells } = await setup();
  const { a, b } = cells;
  const service = await cells.start();
  // The first cell has everything until the buckets are shared out.
  await service.post({ id: "first", key: "key-0", type: "created" });
  await receiver.received(1);
  expect(await keysIn(a)).toEqual(["key-0"]);
  const shared = await cells.command("rebalance");
  expect(shared).toMatch(/512/);
  expect([(await openBuckets(a)).size, (await openBuckets(b)).size]).toEqual([512, 512]);

  const history = recorded(receiver);
  await sendTraffic({ history, to: [service], keys: 40, messagesPerKey: 10 });
  await allDelivered(history, 30_000);
  expect(history.violations()).toEqual([]);
  expect(history.repeated).toEqual([]);
  expect((await keysIn(b)).length).toBeGreaterThan(10);
  await expectKeysAtHome(a, ["key-0"]);
  await expectKeysAtHome(b);
  await expectKnown(service, history);

  const metrics = (await service.get("/metrics")).text;
  expect(metrics).toMatch(/svc_outbox_messages_total\{status="sent",cell="b"\} [1-9]/);
  expect(metrics).toMatch(/svc_inbox_messages_total\{status="new",cell=""\} 401/);
  expect((await service.readiness()).components).toMatchObject({
    database: "up",
    "database.a": "up",
    "database.b": "up",
    "outbox-poller": "up",
    "outbox-poller.b": "up",
  });
}, 90_000);

test("a cell added to an installation in use, and removed again, loses, repeats and reorders nothing", async () => {
  const { receiver, cells } = await setup();
  const { a, b } = cells;
  const history = recorded(receiver);
  // Before there were cells.
  const before = await cells.startWithout();
  await sendTraffic({ history, to: [before], keys: 30, messagesPerKey: 5 });

  const service = await cells.start();
  await expect(cells.command("rebalance")).rejects.toThrow(/without knowing of cells: nothing is moved/);
  await before.stop();
  let isMoved: () => void = () => {};
  const until = new Promise<void>((resolve) => {
    isMoved = resolve;
  });
  const traffic = { history, to: [service], keys: 30, mostUndelivered: 100 };
  const sending = sendTraffic({ ...traffic, messagesPerKey: 5, until, prefix: "n" });
  // A bucket stays where it is while its deliveries do not keep up with its receipts.
  await eventually(() => cells.command("rebalance"), { timeoutMs: 90_000 });
  expect((await openBuckets(b)).size).toBe(512);
  await eventually(async () => expect((await b.query("SELECT 1 FROM outbox LIMIT 30")).length).toBe(30));
  isMoved();
  await sending;
  await allDelivered(history, 30_000);
  expect(history.violations()).toEqual([]);
  expect(history.repeated).toEqual([]);

  const drained = sendTraffic({ ...traffic, messagesPerKey: 40, prefix: "o" });
  const report = await eventually(() => cells.command("drain", "b"), { timeoutMs: 90_000 });
  expect(report).toContain("b");
  expect((await openBuckets(b)).size).toBe(0);
  await drained;
  await allDelivered(history, 30_000);
  await service.stop();

  // Without cells again: what came through b while it was there is known.
  const after = await cells.startWithout();
  expect(history.violations()).toEqual([]);
  expect(history.repeated).toEqual([]);
  await expectKnown(after, history);
  expect((await a.query("SELECT 1 FROM outbox WHERE state <> 'sent'")).length).toBe(0);
}, 240_000);

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

/** Keys of each cell, when the buckets are shared out. */
async function keysByCell(cell: Cell): Promise<{ here: string[]; there: string[] }> {
  const open = await openBuckets(cell);
  const keys = Array.from({ length: 20 }, (_, n) => `key-${n}`);
  return {
    here: keys.filter((key) => open.has(bucketOf(key))),
    there: keys.filter((key) => !open.has(bucketOf(key))),
  };
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
  const { a, b } = cells;
  const service = await cells.start();
  await cells.command("rebalance");
  const { here, there } = await keysByCell(a);
  expect(await answersWithin(15_000, service, [...here, ...there], "all")).toHaveLength(20);
  await eventually(() => expect(arrived(receiver, "all")).toBe(20));

  await hold(b.proxy, async () => {
    const waiting = there.map((key) =>
      service.post({ id: `held-${key}`, key, type: "created" }).catch(() => undefined),
    );
    expect(await answersWithin(10_000, service, here, "held")).toEqual(here.map((key) => `${key} 202`).toSorted());
    await eventually(() => expect(arrived(receiver, "held")).toBe(here.length));
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
    // Those that were being sent are answered, with what became of them.
    const answers = await Promise.all(waiting);
    for (const answer of answers) expect([202, 500, undefined]).toContain(answer?.status);
  });
  await eventually(async () => expect(await answersWithin(15_000, service, there, "held")).toHaveLength(there.length), {
    timeoutMs: 60_000,
  });
  await eventually(() => expect(arrived(receiver, "held")).toBe(20), { timeoutMs: 60_000 });
  await eventually(async () => expect((await service.readiness()).components["database.b"]).toBe("up"));
}, 150_000);

test("a process that starts while a cell is away serves the others, and opens that one when it is back", async () => {
  const { receiver, cells } = await setup();
  const { a, b } = cells;
  const first = await cells.start();
  await cells.command("rebalance");
  const { here, there } = await keysByCell(a);
  await first.stop();

  let second: Service | undefined;
  await hold(b.proxy, async () => {
    second = await cells.start();
    expect(await answersWithin(10_000, second, here, "early")).toEqual(here.map((key) => `${key} 202`).toSorted());
    await eventually(() => expect(arrived(receiver, "early")).toBe(here.length));
  });
  await second?.process.waitForLine(/the cell is open/, 90_000);
  if (second === undefined) throw new Error("it has not started");
  expect(await answersWithin(15_000, second, there, "late")).toEqual(there.map((key) => `${key} 202`).toSorted());
  await eventually(() => expect(arrived(receiver, "late")).toBe(there.length));
}, 150_000);

test("a cell whose tables cannot be made ends the start, also of the others", async () => {
  const { cells } = await setup();
  const child = await cells.launchService({ database: { cells: [{ name: "a" }, { name: "b", schema: "missing" }] } });
  expect((await child.exited).code).toBe(2);
  expect(child.stderr.join("\n")).toContain('cell b, database.url: the schema "missing" does not exist');
});

test("svc retention --once sweeps a cell beside one whose tables do not fit, and exits with code 2", async () => {
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

test("a process without cells receives nothing where buckets have left", async () => {
  const { cells } = await setup();
  const service = await cells.start();
  await cells.command("rebalance");
  await service.stop();
  const child = await cells.launchService({ database: { cells: [] } });
  expect((await child.exited).code).toBe(2);
  expect(child.stderr.join("\n")).toContain(
    "database.cells: is empty, but messages that belong to this database have moved",
  );
  const poller = await cells.start({ database: { cells: [] } }, ["poller"]);
  expect((await poller.stop()).code).toBe(0);
});

test("a process without cells is not ready any more when buckets have left, as while it was suspended", async () => {
  const { cells } = await setup();
  await (await cells.start()).stop();
  // Nothing has left yet, so it starts. It has not been seen for longer than a minute.
  const service = await cells.start({ database: { cells: [] } });
  await cells.a.query("DELETE FROM outbox_process");
  await cells.command("rebalance");
  await eventually(async () => expect((await service.get("/health/ready")).status).toBe(503));
});

test("relay and poller work in the cells that the process names", async () => {
  const { receiver, cells } = await setup();
  const { a, b } = cells;
  const front = await cells.start({}, ["ingest"]);
  await cells.command("rebalance");
  const ofA = await cells.start({}, ["relay", "poller", "--cells", "a"]);
  const { here, there } = await keysByCell(a);
  expect(await answersWithin(15_000, front, [...here, ...there], "m")).toHaveLength(20);
  await eventually(() => expect(arrived(receiver, "m")).toBe(here.length));
  expect(await b.query("SELECT 1 FROM outbox")).toEqual([]);
  const ofB = await cells.start({}, ["relay", "poller", "--cells", "b"]);
  await eventually(() => expect(arrived(receiver, "m")).toBe(20));
  for (const service of [front, ofA, ofB]) expect((await service.stop()).code).toBe(0);
}, 90_000);

test("a process that receives does not start where it cannot read the buckets of a cell, and says how to make them", async () => {
  const { cells } = await setup();
  await (await cells.start()).stop();
  await cells.b.query("ALTER TABLE outbox_bucket RENAME TO elsewhere");
  const withoutMigrations = { database: { migrate: false } };
  await expect(cells.start(withoutMigrations)).rejects.toThrow(/cell b.*outbox_bucket.*run `svc migrate`/s);
  // Nothing else needs them.
  const service = await cells.start(withoutMigrations, ["relay", "poller"]);
  expect((await service.stop()).code).toBe(0);
}, 60_000);

test("SIGTERM ends a move: the closed bucket is open again, and the exit code says that it has not moved", async () => {
  const { cells } = await setup();
  const service = await cells.start({}, ["ingest"]);
  // Nobody relays it: the move waits.
  await service.post({ id: "m", key: "k", type: "created" });
  const mover = cells.launch("move", "--key", "k", "--to", "b", "--wait", "60s");
  const states = () =>
    cells.a.query("SELECT state FROM outbox_bucket WHERE bucket = $1", [bucketOf("k")]) as Promise<object[]>;
  await eventually(async () => expect(await states()).toEqual([{ state: "moving" }]));
  mover.kill("SIGTERM");
  expect((await mover.exited).code).toBe(1);
  expect(mover.stderr.join("\n")).toMatch(/0 buckets moved\n1 bucket \(\d+\) failed: the service is stopping/);
  expect(await states()).toEqual([{ state: "open" }]);
}, 60_000);

test("a process is not ready while a cell that has never answered may have every bucket", async () => {
  const { cells } = await setup();
  cells.b.proxy.setMode("cut");
  const service = await cells.start();
  expect(await service.readiness()).toMatchObject({ status: 503, components: { "database.a": "up", buckets: "down" } });
  cells.b.proxy.setMode("open");
  await eventually(async () =>
    expect(await service.readiness()).toMatchObject({ status: 200, components: { buckets: "up" } }),
  );
  // Known once, its buckets keep the process ready.
  cells.b.proxy.setMode("cut");
  await eventually(async () => expect((await service.readiness()).components["database.b"]).toBe("down"));
  expect(await service.readiness()).toMatchObject({ status: 200, components: { buckets: "up" } });
}, 90_000);
