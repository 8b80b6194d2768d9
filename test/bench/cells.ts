import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { acceptedIn } from "./accepted.ts";
import { type Environment, receivedBy, until } from "./environment.ts";
import { vacuum } from "./outbox.ts";
import { inWords, processorSpent, sumOf, usAMessage } from "./processor.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

const ROUNDS = 6;
const SECONDS = 10;
/** Of the sender. Twice as many bring each cell the load, and so the batches, that one database has with half of them. */
const CONNECTIONS = [128, 256] as const;
const SVC = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../roles/svc.js");

/** What one round has shown. */
interface Round {
  readonly perSecond: number;
  readonly us: Readonly<Record<string, number>>;
}

/**
 * (bb) HTTP in to HTTP out through one process: two cells in two databases of one server, in turn with one database. One
 * machine does the same work, so it shows what cells cost, not what they bring.
 */
export async function cells(environment: Environment): Promise<readonly Figure[]> {
  const { protocol: _, hostname, port, username, password, pathname } = new URL(environment.url);
  const url = (name: string) => `jdbc:postgresql://${hostname}:${port}/${name}?sslmode=disable`;
  const single = pathname.slice(1);
  const database = { url: url(single), username, password: decodeURIComponent(password) };
  for (const name of ["cell_a", "cell_b"]) await environment.sql.query(`CREATE DATABASE ${name}`);
  const two = {
    ...database,
    cells: ["a", "b"].map((name) => ({ name, url: url(`cell_${name}`) })),
  };
  const file = await environment.configuration({ database: two });
  await svcCommand("migrate", "--config", file);
  await svcCommand("cells", "rebalance", "--config", file);
  const receiver = await environment.program("receiver.js", []);
  const figures: Figure[] = [];
  for (const connections of CONNECTIONS) {
    const measured = async (each: object): Promise<Round> => {
      await empty(environment, single, "cell_a", "cell_b");
      return await measure(environment, receiver, each, connections);
    };
    figures.push(...(await compared(measured, database, two, `${connections} connections`)));
  }
  await receiver.stop();
  return figures;
}

async function compared(
  measured: (database: object) => Promise<Round>,
  database: object,
  two: object,
  load: string,
): Promise<readonly Figure[]> {
  const one: Round[] = [];
  const both: Round[] = [];
  const sides = [
    { config: database, rounds: one },
    { config: two, rounds: both },
  ];
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const { config, rounds } of round % 2 === 0 ? sides : sides.toReversed()) {
      const result = await measured(config);
      if (round > 0) rounds.push(result);
    }
  }
  const ratio = median(both.map((each, n) => each.perSecond / (one[n]?.perSecond ?? Number.NaN)));
  const usRatio = median(both.map((each, n) => sumOf(each.us) / sumOf(one[n]?.us ?? {})));
  return [
    {
      name: `(bb) HTTP in to HTTP out, two cells on one server, ${load}`,
      value: rate(median(both.map((each) => each.perSecond))),
      baseline: `${rate(median(one.map((each) => each.perSecond)))} one database`,
      ratio,
      target: ">= 0.95",
      met: ratio >= 0.95,
    },
    {
      name: `(bb) processor time a message, two cells on one server, ${load}`,
      value: inWords(both.at(-1)?.us ?? {}),
      baseline: inWords(one.at(-1)?.us ?? {}),
      ratio: usRatio,
      target: "",
      met: true,
    },
  ];
}

async function measure(
  environment: Environment,
  receiver: Awaited<ReturnType<Environment["program"]>>,
  database: object,
  connections: number,
): Promise<Round> {
  const svc = await environment.svc(
    [],
    {
      OUTBOX_BATCHSIZE: 500,
      OUTBOX_CONCURRENCY: 64,
      INBOX_RELAY_BATCHSIZE: 500,
      DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
    },
    { database },
  );
  const sender = await environment.program("sender.js", [svc.port, "/inbox/bench", connections, 500]);
  const programs = { service: svc, sender, receiver };
  // Until statements are prepared and code is compiled, which takes longer with two cells.
  await acceptedIn(sender, 8000);
  const before = await receivedBy(receiver);
  const spent = await processorSpent(environment, programs);
  const startedAt = performance.now();
  const accepted = await acceptedIn(sender, SECONDS * 1000);
  await until(async () => (await receivedBy(receiver)) - before >= accepted);
  const ms = performance.now() - startedAt;
  const us = usAMessage(spent, await processorSpent(environment, programs), accepted);
  for (const program of [sender, svc]) await program.stop();
  return { perSecond: perSecond(accepted, ms), us };
}

/** Leaves nothing to autovacuum, which would work for one database while the other is measured. */
async function empty(environment: Environment, ...databases: readonly string[]): Promise<void> {
  for (const name of databases) {
    const url = new URL(environment.url);
    url.pathname = name;
    const sql = new pg.Client({ connectionString: url.href });
    await sql.connect();
    await sql.query("TRUNCATE inbox, outbox");
    await vacuum({ sql });
    await sql.end();
  }
}

/** Runs a command of `svc` to its end. @throws Error when it fails */
async function svcCommand(...args: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [SVC, ...args], { stdio: ["ignore", "ignore", "inherit"] });
  const [code] = await once(child, "exit");
  if (code !== 0) throw new Error(`svc ${args.join(" ")} ended with ${code}`);
}
