import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { BODY } from "./body.ts";
import { inboxRow } from "./endToEnd.ts";
import { type Environment, processorMs, receivedBy } from "./environment.ts";
import { vacuum } from "./outbox.ts";
import type { Figure } from "./report.ts";

const MINUTES = Number(process.env.BENCH_PINNED_MINUTES ?? 5);
const PER_SECOND = 800;
const WINDOW_MS = Math.min(30_000, (MINUTES * 60_000) / 4);

/** A moment of the run. */
interface Mark {
  readonly delivered: number;
  /** Processor time so far, by process, in ms. */
  readonly spent: ReadonlyMap<number, number>;
}

/**
 * (s) 800 messages a second are delivered while another transaction, which has written something, stays open for five minutes: no version of a row that
 * has changed since can be cleaned away. They are inserted into the outbox, and then into the inbox, from where they are relayed. Processor time of the
 * service and its database sessions a message, in the last half minute against the second one.
 */
export async function pinnedSnapshot(environment: Environment): Promise<readonly Figure[]> {
  const { sql, store } = environment;
  const intoOutbox = async (count: number) => {
    await sql.query(
      "INSERT INTO outbox (topic, key, payload) SELECT 'bench', 'key-' || (n % 500), $1 FROM generate_series(1, $2) n",
      [BODY, count],
    );
  };
  const intoInbox = async (count: number) => {
    await store.inbox.insert(Array.from({ length: count }, (_, n) => inboxRow(n)));
  };
  return [
    await underOldTransaction(environment, "delivery", ["poller"], intoOutbox),
    await underOldTransaction(environment, "relay and delivery", ["relay", "poller"], intoInbox),
  ];
}

async function underOldTransaction(
  environment: Environment,
  what: string,
  roles: readonly string[],
  insert: (count: number) => Promise<void>,
): Promise<Figure> {
  const { sql, url } = environment;
  await sql.query("TRUNCATE inbox, outbox");
  const receiver = await environment.program("receiver.js", []);
  const svc = await environment.svc(roles, {
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
    LOG_LEVEL: "warn",
  });
  await vacuum(environment);
  const holder = new pg.Client({ connectionString: url });
  await holder.connect();
  await holder.query("CREATE TABLE IF NOT EXISTS other (n int)");
  await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO other VALUES (1)");

  const mark = async (): Promise<Mark> => {
    const delivered = await receivedBy(receiver);
    const { rows } = await sql.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'svc'");
    const pids = [svc.pid, ...rows.map((row) => Number(row.pid))];
    return { delivered, spent: new Map(pids.map((pid) => [pid, processorMs(pid)])) };
  };
  const startedAt = performance.now();
  const until = (ms: number) => sleep(Math.max(0, startedAt + ms - performance.now()));
  let inserting = true;
  const inserts = (async () => {
    for (let tenth = 1; inserting; tenth += 1) {
      await insert(PER_SECOND / 10);
      await until(tenth * 100);
    }
  })();
  await until(WINDOW_MS);
  const first = [await mark(), await until(2 * WINDOW_MS).then(mark)] as const;
  await until(MINUTES * 60_000 - WINDOW_MS);
  const last = [await mark(), await until(MINUTES * 60_000).then(mark)] as const;
  inserting = false;
  await inserts;
  await holder.query("ROLLBACK");
  await holder.end();

  await svc.stop();
  await receiver.stop();

  const [base, value] = [perMessage(...first), perMessage(...last)];
  return {
    name: `(s) ${what} at ${PER_SECOND}/s after ${MINUTES} minutes of an old transaction`,
    value: `${value.toFixed(2)} ms of processor a message`,
    baseline: `${base.toFixed(2)} ms in its first minute`,
    ratio: value / base,
    target: "<= 1.2",
    met: value / base <= 1.2,
  };
}

/** Sessions that came or went between the two marks are left out. */
function perMessage(from: Mark, to: Mark): number {
  let spent = 0;
  for (const [pid, ms] of to.spent) spent += ms - (from.spent.get(pid) ?? ms);
  return spent / (to.delivered - from.delivered);
}
