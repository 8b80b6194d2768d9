import { setTimeout as sleep } from "node:timers/promises";
import { acceptedIn } from "./accepted.ts";
import { type Environment, type Program, receivedBy, until } from "./environment.ts";
import { BUSY_POLLER } from "./outbox.ts";
import { inWords, processorSpent, type Spent, sumOf, usAMessage } from "./processor.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";
import { logWritten } from "./volume.ts";

/** Numbers of cells; 0 is one database without cells, with which the others are compared. */
const LOADED = [2, 4, 8] as const;
const IDLE = [1, 4] as const;
const ROUNDS = 4;
const SECONDS = 8;
const WARM_MS = 6000;
const CONNECTIONS = 256;
const IDLE_SECONDS = 60;
/** Until statements are planned and the connections of the start have ended. */
const SETTLE_MS = 15_000;

/** What one round has shown. */
interface Round {
  readonly perSecond: number;
  /** Processor time a message, of the process and of its backends. */
  readonly us: Readonly<Record<string, number>>;
  /** Database log a message. */
  readonly bytes: number;
}

/**
 * (bb) What cells in schemas of one database cost a process with every role: processor time and log a message, HTTP in to
 * HTTP out, in turn with one database without cells; and processor time and connections while nothing happens.
 */
export async function cells(environment: Environment): Promise<readonly Figure[]> {
  const receiver = await environment.program("receiver.js", []);
  const counts = [0, ...LOADED];
  const rounds = new Map(counts.map((count): [number, Round[]] => [count, []]));
  for (let n = 0; n < ROUNDS; n += 1) {
    for (const count of n % 2 === 0 ? counts : counts.toReversed())
      rounds.get(count)?.push(await measure(environment, receiver, count));
  }
  await receiver.stop();
  const alone = rounds.get(0) ?? [];
  const loaded = LOADED.flatMap((count) => compared(count, rounds.get(count) ?? [], alone));
  return [...loaded, ...(await idle(environment))];
}

function compared(count: number, rounds: readonly Round[], alone: readonly Round[]): readonly Figure[] {
  const figure = (name: string, of: (round: Round) => number, shown: (round: Round) => string): Figure => {
    const ofMedian = (all: readonly Round[]) => {
      const middle = median(all.map(of));
      const round = all.find((each) => of(each) === middle);
      return round === undefined ? "" : shown(round);
    };
    return {
      name: `(bb) cells: ${count}: ${name}`,
      value: ofMedian(rounds),
      baseline: ofMedian(alone),
      ratio: median(rounds.map((round, n) => of(round) / of(alone[n] ?? round))),
      target: "",
      met: true,
    };
  };
  return [
    figure(
      "processor time a message",
      ({ us }) => sumOf(us),
      ({ us }) => inWords(us),
    ),
    figure(
      "log a message",
      ({ bytes }) => bytes,
      ({ bytes }) => `${(bytes / 1000).toFixed(2)} kB`,
    ),
    figure(
      "HTTP in to HTTP out",
      (round) => round.perSecond,
      (round) => rate(round.perSecond),
    ),
  ];
}

async function measure(environment: Environment, receiver: Program, count: number): Promise<Round> {
  const service = await start(environment, count, `http://127.0.0.1:${receiver.port}`);
  const sender = await environment.program("sender.js", [service.port, "/inbox/bench", CONNECTIONS, 500]);
  await acceptedIn(sender, WARM_MS);
  const before = await receivedBy(receiver);
  const [spent, log] = [await processorSpent(environment, { service }, nameOf(count)), await logWritten(environment)];
  const startedAt = performance.now();
  const accepted = await acceptedIn(sender, SECONDS * 1000);
  await until(async () => (await receivedBy(receiver)) - before >= accepted);
  const ms = performance.now() - startedAt;
  const us = usAMessage(spent, await processorSpent(environment, { service }, nameOf(count)), accepted);
  const bytes = ((await logWritten(environment)) - log) / accepted;
  for (const program of [sender, service]) await program.stop();
  // Leaves nothing to autovacuum, which would work for one number of cells while another is measured.
  const tables = schemasOf(count).flatMap((schema) => [`${schema}.inbox`, `${schema}.outbox`]);
  await environment.sql.query(`TRUNCATE ${tables.join(", ")}`);
  await environment.sql.query(`VACUUM (ANALYZE) ${tables.join(", ")}`);
  return { perSecond: perSecond(accepted, ms), us, bytes };
}

/** All at the same time, so that the machine is the same for all. */
async function idle(environment: Environment): Promise<readonly Figure[]> {
  const services = new Map<number, Program>();
  for (const count of [0, ...IDLE]) services.set(count, await start(environment, count, "http://127.0.0.1:1"));
  await sleep(SETTLE_MS);
  const spent = async () => {
    const all: [number, Spent][] = [];
    for (const [count, service] of services)
      all.push([count, await processorSpent(environment, { service }, nameOf(count))]);
    return all;
  };
  const before = new Map(await spent());
  await sleep(IDLE_SECONDS * 1000);
  const all = (await spent()).map(([count, to]) => {
    const from = before.get(count) ?? {};
    // In us a second: a core has a million.
    const share = sumOf(usAMessage(from, to, IDLE_SECONDS)) / 1e6;
    return { count, share, connections: to.database?.size ?? 0 };
  });
  for (const service of services.values()) await service.stop();
  const [alone, ...others] = all;
  return others.flatMap(({ count, share, connections }) => {
    const figure = (name: string, ratio: number, most: number, value: string, baseline: string): Figure => ({
      name: `(bb) idle, cells: ${count}: ${name}`,
      value,
      baseline,
      ratio,
      target: `<= ${most}`,
      met: ratio <= most,
    });
    const percent = (part: number) => `${(part * 100).toFixed(1)} % of a core`;
    const [base, least] = [alone?.share ?? 0, alone?.connections ?? 0];
    return [
      figure("processor time", share / base, 1.6, percent(share), percent(base)),
      figure("connections", connections / least, 1.5, String(connections), String(least)),
    ];
  });
}

/** A service in schemas of its own, which its first start makes: a cell keeps the number of cells. */
async function start(environment: Environment, count: number, baseUrl: string): Promise<Program> {
  const { hostname, port, username, password, pathname } = new URL(environment.url);
  const parameters = `sslmode=disable&currentSchema=${nameOf(count)}&ApplicationName=${nameOf(count)}`;
  const database = {
    url: `jdbc:postgresql://${hostname}:${port}${pathname}?${parameters}`,
    username,
    password: decodeURIComponent(password),
    ...(count === 0 ? {} : { cells: count }),
  };
  const settings = { ...BUSY_POLLER, INBOX_RELAY_BATCHSIZE: 500, DESTINATIONS_RECEIVER_BASEURL: baseUrl };
  return await environment.svc([], settings, { database });
}

/** Of the schema and of the connections. */
const nameOf = (count: number) => `cells_of_${count}`;

const schemasOf = (count: number) =>
  count === 0 ? [nameOf(count)] : Array.from({ length: count }, (_, n) => `${nameOf(count)}_${n}`);
