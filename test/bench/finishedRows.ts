import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Replay } from "../../src/core/operations/replay.ts";
import { sleep } from "../../src/time/wait.ts";
import { silentLog } from "../support/recorders.ts";
import { BODY } from "./body.ts";
import { type Environment, until } from "./environment.ts";
import { BUSY_POLLER, fillOutbox, timeDrain, untilSettled, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

const ROUNDS = 3;

/** (h) The drain of (a) while retention deletes 200,000 finished rows, against the same drain without retention. */
export async function retentionBesideDrain(environment: Environment): Promise<Figure[]> {
  const { sql } = environment;
  const [rows, finished] = [20_000, 200_000];
  const receiver = await environment.program("receiver.js", []);
  const poller = await environment.svc(["poller"], {
    ...BUSY_POLLER,
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
  });
  process.kill(poller.pid, "SIGSTOP");
  const fill = async () => {
    await fillOutbox(environment, rows, 500);
    await sql.query(
      `INSERT INTO outbox (topic, key, payload, state, created_at, updated_at)
       SELECT 'bench', 'key-' || (n % 500), $1, 'sent', now() - interval '3 days', now() - interval '2 days'
       FROM generate_series(1, $2) n`,
      [BODY, finished],
    );
    await vacuum(environment);
  };
  const leftOver = async (): Promise<number> => {
    const counted = await sql.query(
      "SELECT count(*)::int AS n FROM outbox WHERE updated_at < now() - interval '1 day'",
    );
    return (counted.rows[0] as { n: number }).n;
  };
  const drains: { alone: number; beside: number }[] = [];
  const deletions: number[] = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    await fill();
    const alone = perSecond(rows, await timeDrain(environment, poller));
    await fill();
    const startedAt = performance.now();
    const retention = await environment.svc(["retention"], {
      RETENTION_ENABLED: "true",
      RETENTION_OUTBOX_POLICY: "AGE",
      RETENTION_OUTBOX_MAXAGE: "1d",
    });
    await until(async () => (await leftOver()) < finished);
    const beside = perSecond(rows, await timeDrain(environment, poller));
    if ((await leftOver()) === 0) throw new Error("retention had ended before the drain: nothing was compared");
    await until(async () => (await leftOver()) === 0, 100);
    const deleted = perSecond(finished, performance.now() - startedAt);
    await retention.stop();
    if (round === 0) continue;
    drains.push({ alone, beside });
    deletions.push(deleted);
  }
  process.kill(poller.pid, "SIGCONT");
  for (const program of [poller, receiver]) await program.stop();
  const ratio = median(drains.map(({ alone, beside }) => beside / alone));
  return [
    {
      name: "(h) outbox drain while 200,000 finished rows are deleted",
      value: `${rate(median(drains.map(({ beside }) => beside)))}, ${rate(median(deletions))} deleted`,
      baseline: `${rate(median(drains.map(({ alone }) => alone)))} without retention`,
      ratio,
      target: ">= 0.75",
      met: ratio >= 0.75,
    },
  ];
}

/** (i) Fresh messages at a steady rate while 100,000 dead rows are replayed, against the same before. Order per key is checked. */
export async function replayBesideTraffic(environment: Environment): Promise<Figure[]> {
  const { sql, store } = environment;
  const [dead, keys] = [100_000, 500];
  const receiver = await openReceiver();
  const poller = await environment.svc(["poller"], { ...BUSY_POLLER, DESTINATIONS_RECEIVER_BASEURL: receiver.url });
  await sql.query("TRUNCATE outbox");
  await sql.query(
    `INSERT INTO outbox (topic, key, payload, state, attempt, last_error)
     SELECT 'dead', 'dead-' || (n % $2), json_build_object('key', 'dead-' || (n % $2), 'n', n), 'dead', 5, 'status 500'
     FROM generate_series(1, $1) n`,
    [dead, keys],
  );
  await vacuum(environment);

  const before = await traffic(environment, receiver, () => sleep(5000));
  const replay = new Replay({
    inbox: {} as never,
    store: store.replay,
    destinationOf: () => "receiver",
    onMoved: () => store.announceOutbox(),
    redact: (text) => text,
    audit: { add: async () => {} },
    log: silentLog,
    wait: sleep,
  });
  let moved = 0;
  const startedAt = performance.now();
  const during = await traffic(environment, receiver, async () => {
    ({ moved } = await replay.run({ topic: "dead" }, "alice", new AbortController().signal));
    await until(async () => receiver.deadReceived() >= dead, 50);
  });
  const replayedRate = perSecond(dead, performance.now() - startedAt);
  await untilSettled(environment);
  await poller.stop();
  await receiver.close();
  if (moved !== dead) throw new Error(`${moved} of ${dead} rows were moved`);
  if (receiver.disorder() > 0) throw new Error(`${receiver.disorder()} messages overtook an earlier one of their key`);
  const ratio = during.delivered / before.delivered;
  return [
    {
      name: "(i) fresh messages while 100,000 dead rows are replayed",
      value: `${rate(during.delivered)}, half of them within ${Math.round(during.medianMs)} ms; ${rate(replayedRate)} replayed`,
      baseline: `${rate(before.delivered)} before, half within ${Math.round(before.medianMs)} ms`,
      ratio,
      target: ">= 0.75",
      met: ratio >= 0.75,
    },
  ];
}

/** Inserts fresh rows every 50 ms for as long as `work` takes. @returns what was delivered a second meanwhile, and how late */
async function traffic(
  { sql }: Environment,
  receiver: Receiver,
  work: () => Promise<void>,
): Promise<{ readonly delivered: number; readonly medianMs: number }> {
  receiver.startFresh();
  const startedAt = performance.now();
  let working = true;
  const ended = work().finally(() => {
    working = false;
  });
  while (working) {
    const n = receiver.freshSent;
    await sql.query(
      `INSERT INTO outbox (topic, key, payload)
       SELECT 'fresh', 'fresh-' || (n % 20), json_build_object('key', 'fresh-' || (n % 20), 'n', n, 'at', $3::float)
       FROM generate_series($1::int, $2::int) n`,
      [n + 1, n + FRESH_BATCH, performance.now()],
    );
    receiver.freshSent += FRESH_BATCH;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await ended;
  const delays = receiver.freshDelays();
  return { delivered: perSecond(delays.length, performance.now() - startedAt), medianMs: median(delays) };
}

const FRESH_BATCH = 25;

interface Receiver {
  readonly url: string;
  /** Fresh messages numbered so far. */
  freshSent: number;
  /** Begins `freshDelays` anew. */
  startFresh(): void;
  /** ms from insert to arrival of every fresh message since `startFresh`. */
  freshDelays(): readonly number[];
  deadReceived(): number;
  /** Messages that came after a later one of their key. */
  disorder(): number;
  close(): Promise<void>;
}

async function openReceiver(): Promise<Receiver> {
  const last = new Map<string, number>();
  let delays: number[] = [];
  let [deadReceived, disorder] = [0, 0];
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const { key, n, at } = JSON.parse(Buffer.concat(chunks).toString()) as { key: string; n: number; at?: number };
      if (n < (last.get(key) ?? 0)) disorder += 1;
      last.set(key, n);
      if (at === undefined) deadReceived += 1;
      else delays.push(performance.now() - at);
      res.writeHead(204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    freshSent: 0,
    startFresh() {
      delays = [];
    },
    freshDelays: () => delays,
    deadReceived: () => deadReceived,
    disorder: () => disorder,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
