import pg from "pg";
import { acceptedIn } from "./accepted.ts";
import { type Environment, type Program, receivedBy, until } from "./environment.ts";
import { untilSettled, vacuum } from "./outbox.ts";
import type { Figure } from "./report.ts";

const MESSAGES = 100_000;
const TABLES = ["inbox", "outbox"] as const;

/**
 * (x) What 100,000 messages of 1 kB write, HTTP in to HTTP out: the database's log, the tables with their indexes, the connections of a replica;
 * and the tables after retention has deleted the first ones and as many more have come.
 */
export async function volume(environment: Environment): Promise<Figure[]> {
  const receiver = await environment.program("receiver.js", []);
  const svc = await environment.svc([], { DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}` });
  const sender = await environment.program("sender.js", [svc.port, "/inbox/bench", 64, 500]);
  await vacuum(environment);

  const before = await logWritten(environment);
  const observer = new pg.Client({ connectionString: environment.url });
  await observer.connect();
  let mostConnections = 0;
  const sampled = setInterval(async () => {
    mostConnections = Math.max(mostConnections, await connectionsOf(observer));
  }, 1000);
  const sent = await send(environment, sender, receiver);
  clearInterval(sampled);
  await observer.end();
  const log = (await logWritten(environment)) - before;
  const full = await sizes(environment);

  const beforeDeletion = await logWritten(environment);
  const retention = await environment.svc(["retention"], {
    RETENTION_ENABLED: "true",
    RETENTION_OUTBOX_POLICY: "AGE",
    RETENTION_OUTBOX_MAXAGE: "1s",
    RETENTION_OUTBOX_CLEANUPINTERVAL: "1s",
    RETENTION_INBOX_POLICY: "AGE",
    RETENTION_INBOX_MAXAGE: "1s",
    RETENTION_INBOX_CLEANUPINTERVAL: "1s",
  });
  await until(async () => (await rowCount(environment)) === 0, 100);
  await retention.stop();
  const deletion = (await logWritten(environment)) - beforeDeletion;
  await vacuum(environment);
  const emptied = await sizes(environment);
  const sentAgain = await send(environment, sender, receiver);
  const again = await sizes(environment);
  for (const program of [sender, svc, receiver]) await program.stop();

  const perMessage = (bytes: number, messages = sent) => `${(bytes / messages / 1000).toFixed(2)} kB`;
  const told = (name: string, value: string): Figure => ({
    name: `(x) ${name}`,
    value,
    baseline: "",
    ratio: undefined,
    target: "",
    met: true,
  });
  const inWords = (all: Sizes, messages: number) =>
    TABLES.map((table) => `${table} ${perMessage(all[table], messages)}`).join(", ");
  return [
    told("log a message, to its delivery", perMessage(log)),
    told("log a message, for its deletion", perMessage(deletion)),
    told("tables and indexes a message", inWords(full, sent)),
    told("the same after its deletion and VACUUM", inWords(emptied, sent)),
    told(`the same after ${sentAgain} more`, inWords(again, sentAgain)),
    told("most connections of a replica with every role, poolSize 10", String(mostConnections)),
  ];
}

/** Sends at least {@link MESSAGES}; returns when all have been delivered. @returns how many */
async function send(environment: Environment, sender: Program, receiver: Program): Promise<number> {
  const before = await receivedBy(receiver);
  let sent = 0;
  while (sent < MESSAGES) sent += await acceptedIn(sender, 2000);
  await until(async () => (await receivedBy(receiver)) - before >= sent);
  await untilSettled(environment);
  return sent;
}

/** The place in the database's log, in bytes. */
export async function logWritten({ sql }: Environment): Promise<number> {
  const { rows } = await sql.query("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS bytes");
  return Number((rows[0] as { bytes: string }).bytes);
}

type Sizes = Readonly<Record<(typeof TABLES)[number], number>>;

/** With indexes and TOAST, in bytes. */
async function sizes({ sql }: Environment): Promise<Sizes> {
  const { rows } = await sql.query(
    "SELECT pg_total_relation_size('inbox') AS inbox, pg_total_relation_size('outbox') AS outbox",
  );
  const { inbox, outbox } = rows[0] as Record<string, string>;
  return { inbox: Number(inbox), outbox: Number(outbox) };
}

async function rowCount({ sql }: Environment): Promise<number> {
  const { rows } = await sql.query(
    "SELECT (SELECT count(*) FROM inbox)::int + (SELECT count(*) FROM outbox)::int AS n",
  );
  return (rows[0] as { n: number }).n;
}

async function connectionsOf(observer: pg.Client): Promise<number> {
  const { rows } = await observer.query(
    "SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = 'svc'",
  );
  return (rows[0] as { n: number }).n;
}
