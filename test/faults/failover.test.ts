import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type PairServer, PostgresPair } from "../support/postgresPair.ts";
import type { Receiver } from "../support/receiver.ts";
import { ordersTo, type Service, type ServiceOptions, useServices } from "../support/service.ts";
import { acknowledged, allDelivered, record, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

/** How often the primary is lost in one test. */
const FAILOVERS = Number(process.env.SVC_TEST_FAILOVERS ?? "2");
const KEYS = 24;
const MARK_AGE_MS = 1000;
/** From the promotion to the next acknowledgement; a sender tries again every half second. */
const BACK_WITHIN_MS = 10_000;

async function start(): Promise<{ pair: PostgresPair; receiver: Receiver; history: History }> {
  const [pair, receiver] = await Promise.all([PostgresPair.start(services), services.receiver()]);
  const history = new History();
  record(receiver, history);
  return { pair, receiver, history };
}

const serviceOptions = (pair: PostgresPair, receiver: Receiver): ServiceOptions => ({
  database: pair.address(),
  // A claim whose answer was lost is taken back when its lease is over: here soon.
  config: ordersTo(receiver, { outbox: { claimTimeoutMs: 5000 } }),
  roles: ["ingest", "relay", "poller"],
});

async function replicasOver(pair: PostgresPair, receiver: Receiver): Promise<readonly Service[]> {
  // One after the other: the first one makes the tables.
  const first = await services.start(serviceOptions(pair, receiver));
  return [first, await services.start(serviceOptions(pair, receiver))];
}

/** Traffic until `end` is called. */
function endless(history: History, to: readonly Service[]): { sent: Promise<void>; end: () => void } {
  let end = (): void => {};
  const until = new Promise<void>((resolve) => {
    end = resolve;
  });
  const sent = sendTraffic({ history, to, keys: KEYS, messagesPerKey: 1, until });
  sent.catch(() => {}); // An awaiting test sees the error.
  return { sent, end };
}

/** Waits until so many more messages are acknowledged. */
const more = (history: History, count: number, timeoutMs = 30_000) =>
  acknowledged(history, history.acknowledgedCount + count, timeoutMs);

/** Waits until a commit of the service waits for the standby. */
/** Sessions whose commit waits for the standby. Besides messages a process writes that it is alive. */
const WAITING = "pg_stat_activity WHERE application_name = 'svc' AND wait_event = 'SyncRep'";
const STORES = `${WAITING} AND query LIKE '%INTO "inbox"%'`;

async function waitsForStandby(server: PairServer, which = WAITING): Promise<void> {
  await eventually(async () => expect(await server.query(`SELECT FROM ${which}`)).not.toEqual([]));
}

/**
 * Promotes the standby. Rows that it has as unfinished may come again: they were in flight, or their outcome had not reached it.
 *
 * @returns the messages that it has, and the acknowledged messages that it lacks
 */
async function takeOver(
  pair: PostgresPair,
  history: History,
): Promise<{ kept: readonly string[]; lost: readonly string[] }> {
  await pair.standbyHasReplayed();
  const rows = await pair.standby.query<{ id: string; finished: boolean }>(
    `SELECT i.idempotency_key AS id, coalesce(o.state = 'sent', false) AS finished
       FROM inbox i LEFT JOIN outbox o USING (id) ORDER BY i.created_at`,
  );
  history.mayRepeat(rows.filter(({ finished }) => !finished).map(({ id }) => id));
  const kept = rows.map(({ id }) => id);
  const known = new Set(kept);
  const lost = history.acknowledgedIds.filter((id) => !known.has(id));
  await pair.promote();
  return { kept, lost };
}

async function lastSequence(server: PairServer): Promise<number> {
  const [row] = await server.query<{ last: string }>("SELECT max(sequence) AS last FROM outbox");
  return Number(row?.last);
}

/** Everything in the tables is finished: nothing waits for ever. */
async function nothingIsLeft(pair: PostgresPair): Promise<void> {
  const unfinished = `SELECT id, state FROM inbox WHERE state <> 'processed'
    UNION ALL SELECT id, state FROM outbox WHERE state <> 'sent'`;
  await eventually(async () => expect(await pair.primary.query(unfinished)).toEqual([]), { timeoutMs: 20_000 });
}

/** Everything has come, each message has one row, and the replicas that were there from the beginning are well. */
async function allIsRight(pair: PostgresPair, history: History, replicas: readonly Service[]): Promise<void> {
  await allDelivered(history, 20_000);
  await nothingIsLeft(pair);
  expect(history.violations()).toEqual([]);
  const counts = "SELECT (SELECT count(*)::int FROM inbox) AS inbox, (SELECT count(*)::int FROM outbox) AS outbox";
  expect(await pair.primary.query(counts)).toEqual([{ inbox: history.sentCount, outbox: history.sentCount }]);
  for (const replica of replicas) {
    await eventually(async () => expect(await replica.readiness()).toMatchObject({ status: 200, verdict: "healthy" }));
  }
}

test("a killed primary with a synchronous standby, again and again, loses nothing acknowledged and breaks no order", async () => {
  const { pair, receiver, history } = await start();
  await pair.makeSynchronous();
  const replicas = await replicasOver(pair, receiver);
  const { sent, end } = endless(history, replicas);
  for (let n = 1; n <= FAILOVERS; n += 1) {
    await more(history, 200);
    if (n % 2 === 0) {
      // Committed there, neither here nor answered.
      pair.holdReplication();
      await waitsForStandby(pair.primary);
    }
    await pair.primary.kill();
    await takeOver(pair, history);
    await more(history, 1, BACK_WITHIN_MS);
    await more(history, 100);
    await pair.renewStandby();
    await pair.makeSynchronous();
  }
  end();
  await sent;
  await allIsRight(pair, history, replicas);
}, 180_000);

test("a repetition is answered when the standby has the message, also if the session that stored it has ended", async () => {
  const { pair, receiver, history } = await start();
  await pair.makeSynchronous();
  const ingest = await services.start({ ...serviceOptions(pair, receiver), roles: ["ingest"] });
  const post = async () => (await ingest.post({ id: "m-1", key: "k", type: "created" })).status;
  history.sent("m-1", "k");
  pair.holdReplication();
  const first = post();
  await waitsForStandby(pair.primary, STORES);
  const end = `SELECT pg_terminate_backend(pid, 10000) AS ended FROM ${STORES}`;
  expect(await pair.primary.query(end)).toEqual([{ ended: true }]);
  expect(await first).toBe(500);
  expect(await pair.primary.query("SELECT idempotency_key AS id FROM inbox")).toEqual([{ id: "m-1" }]);

  const second = post();
  // Without the wait for the standby the answer takes some milliseconds.
  expect(await Promise.race([second, sleep(2000, "waits")])).toBe("waits");
  pair.resumeReplication();
  expect(await second).toBe(200);
  await pair.primary.kill();
  expect((await takeOver(pair, history)).kept).toEqual(["m-1"]);
}, 60_000);

test("a switchover to an asynchronous standby, there and back, loses nothing acknowledged and breaks no order", async () => {
  const { pair, receiver, history } = await start();
  const replicas = await replicasOver(pair, receiver);
  const { sent, end } = endless(history, replicas);
  for (let n = 1; n <= 2; n += 1) {
    await more(history, 200);
    await pair.primary.stop("fast");
    await takeOver(pair, history);
    await more(history, 100);
    await pair.followPrimary();
  }
  end();
  await sent;
  await allIsRight(pair, history, replicas);
}, 120_000);

test("a promoted standby that lagged has lost what was acknowledged meanwhile, and nothing else goes wrong", async () => {
  const { pair, receiver, history } = await start();
  let release = (): void => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const arrived = new Set<string>();
  record(receiver, history, (id) => {
    arrived.add(id);
    return id === "held-0" ? held : undefined;
  });
  const replicas = await replicasOver(pair, receiver);
  const { sent, end } = endless(history, replicas);
  const post = async (id: string, key: string) => {
    const [replica] = replicas;
    history.sent(id, key);
    expect((await replica?.post({ id, key, type: "created" }))?.status).toBe(202);
    history.acknowledged(id);
  };
  await more(history, 200);
  await pair.cutReplication();
  // Until the low-water marks, which are read every second, are past what the standby has got.
  const cutAt = performance.now();
  do await more(history, 200);
  while (performance.now() - cutAt < 2 * MARK_AGE_MS);
  // Three that wait behind the first of their key: acknowledged, and not delivered when the primary is lost.
  await post("held-0", "held");
  await eventually(() => history.of("held-0")?.arrivals.length === 1);
  for (const n of [1, 2, 3]) await post(`held-${n}`, "held");
  const before = await lastSequence(pair.primary);
  await pair.primary.kill();
  // Every answer from before is out when they say so.
  for (const replica of replicas) {
    await eventually(async () => expect((await replica.readiness()).components).toMatchObject({ database: "down" }));
  }
  await pair.standbyHasReplayed();
  expect(await lastSequence(pair.standby)).toBeLessThan(before);
  const { kept, lost } = await takeOver(pair, history);
  // Delivered, and gone, before their senders had the answer: they come again when these repeat them.
  const known = new Set(kept);
  history.mayRepeat([...arrived].filter((id) => !known.has(id)));
  expect(lost).toEqual(expect.arrayContaining(["held-1", "held-2", "held-3"]));

  await more(history, 200);
  end();
  await sent;
  await eventually(() => history.missing.every((id) => lost.includes(id)), { timeoutMs: 20_000 });
  await nothingIsLeft(pair);
  expect(history.missing).toEqual(expect.arrayContaining(["held-1", "held-2", "held-3"]));
  // Not before: a replica may deliver what it has claimed until the lease ends, also what the database has lost.
  release();

  // Their senders repeat all of them. They have no place among the later ones of their keys.
  history.mayRepeat(lost);
  for (const id of lost) history.ordered(id, Number.NaN);
  const repeat = async (ids: readonly string[], status: number) => {
    for (const id of ids) {
      const answer = await replicas[1]?.post({ id, key: history.of(id)?.key, type: "created" });
      expect([id, answer?.status]).toEqual([id, status]);
    }
  };
  const keys = new Set(lost.map((id) => history.of(id)?.key));
  await Promise.all(
    [...keys].map((key) =>
      repeat(
        lost.filter((id) => history.of(id)?.key === key),
        202,
      ),
    ),
  );
  await repeat(kept.slice(0, 20), 200);
  await allIsRight(pair, history, replicas);
}, 120_000);

test("replicas stay with the new primary while the old one takes writes again, also when their connections break", async () => {
  const { pair, receiver, history } = await start();
  const replicas = await replicasOver(pair, receiver);
  const { sent, end } = endless(history, replicas);
  await more(history, 100);
  await pair.primary.stop("fast");
  await takeOver(pair, history);
  await more(history, 100);

  const old = pair.standby;
  await old.start();
  const rows = () => old.query("SELECT (SELECT count(*) FROM inbox) AS inbox, (SELECT count(*) FROM outbox) AS outbox");
  const before = await rows();
  for (let n = 1; n <= 5; n += 1) {
    await more(history, 50);
    await pair.primary.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'svc'");
  }
  await more(history, 50);
  end();
  await sent;
  expect(await rows()).toEqual(before);
  await allIsRight(pair, history, replicas);
}, 120_000);

test("a returned primary that waits for a synchronous standby acknowledges nothing, also to a replica that finds it first", async () => {
  const { pair, receiver, history } = await start();
  await pair.makeSynchronous();
  const replicas = await replicasOver(pair, receiver);
  await sendTraffic({ history, to: replicas, keys: KEYS, messagesPerKey: 5 });
  await pair.primary.kill();
  await takeOver(pair, history);
  const old = pair.standby;
  await old.start();

  const newcomer = await services.start(serviceOptions(pair, receiver));
  const lonely = newcomer.post({ id: "lonely", key: "lonely", type: "created" }).then(
    ({ status }) => status,
    () => "no answer",
  );
  await waitsForStandby(old);
  await sendTraffic({ history, to: replicas, keys: KEYS, messagesPerKey: 5, prefix: "later" });
  await newcomer.kill();
  expect(await lonely).toBe("no answer");
  await allIsRight(pair, history, replicas);
}, 120_000);
