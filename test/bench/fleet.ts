import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { BODY } from "./body.ts";
import { type Environment, type Program, processorMs } from "./environment.ts";
import type { FleetCounts } from "./fleetPollers.ts";
import { untilSettled, vacuum } from "./outbox.ts";
import type { Figure } from "./report.ts";

/** Of the server: it counts its statements, and takes the connections of the largest fleet. */
export const SETTINGS_OF_FLEET = { shared_preload_libraries: "pg_stat_statements", max_connections: "500" } as const;

const FLEETS = [1, 4, 16] as const;
const IDLE_POLLERS = 64;
const SECONDS = 15;
/** Until each connection has planned its statements some times, and keeps their plans; in s. */
const SETTLE_S = { 1: 5, 4: 10, 16: 30, 64: 50 } as const;
const PER_SECOND = 300;
/** As often as a relay announces what it has relayed. */
const ARRIVALS_MS = 50;
const KEYS = 500;
const RECEIVER_MS = 10;

/** What a fleet cost the database. */
interface Cost {
  readonly processorMs: number;
  readonly counts: FleetCounts;
  /** Statements that claim, with those that found nothing. */
  readonly claimStatements: number;
  readonly statements: number;
}

/**
 * (aa) What a fleet costs the database: 300 messages a second for a receiver that takes 10 ms, delivered by 1, 4 and 16 pollers, of which one would be enough;
 * and 64 pollers without a message. Processor time, not the clock: nothing is saturated.
 */
export async function fleet(environment: Environment): Promise<readonly Figure[]> {
  const receiver = await environment.program("receiver.js", [RECEIVER_MS]);
  await environment.sql.query("CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
  const file = await environment.configuration({
    destinations: { receiver: { baseUrl: `http://127.0.0.1:${receiver.port}` } },
  });
  const figures: Figure[] = [];
  let ofOne = Number.NaN;
  const only = process.env.BENCH_FLEET?.split(",").map(Number);
  for (const pollers of FLEETS) {
    if (only?.includes(pollers) === false) continue;
    const cost = await costOf(environment, file, pollers, () => arrivals(environment, SECONDS));
    const us = (cost.processorMs * 1000) / cost.counts.claimedRows;
    if (pollers === 1) ofOne = us;
    figures.push(...figuresOf(pollers, cost, us, ofOne));
  }
  if (only?.includes(IDLE_POLLERS) === false) return figures;
  const idle = await costOf(environment, file, IDLE_POLLERS, () => sleep(SECONDS * 1000));
  const share = idle.processorMs / (SECONDS * 1000);
  figures.push({
    name: `(aa) ${IDLE_POLLERS} idle pollers: processor of the database`,
    value: `${(share * 100).toFixed(1)} % of a core, ${Math.round(idle.statements / SECONDS)} statements a second`,
    baseline: "",
    ratio: undefined,
    target: "< 5 %",
    met: share < 0.05,
  });
  return figures;
}

function figuresOf(pollers: number, cost: Cost, us: number, ofOne: number): readonly Figure[] {
  const { counts, claimStatements } = cost;
  const inVain = claimStatements - counts.claims;
  const share = (inVain + counts.releasedRows) / counts.claimedRows;
  const who = `(aa) ${pollers} poller${pollers === 1 ? "" : "s"}`;
  return [
    {
      name: `${who}: processor of the database a message`,
      value: `${Math.round(us)} us, ${(cost.statements / counts.claimedRows).toFixed(2)} statements`,
      baseline: `${Math.round(ofOne)} us of one`,
      ratio: us / ofOne,
      target: "<= 1.2",
      met: us / ofOne <= 1.2,
    },
    {
      name: `${who}: in vain, a message`,
      value: `${inVain} of ${claimStatements} claims found nothing, ${counts.releasedRows} rows given back`,
      baseline: `${(counts.settledRows / counts.settlements).toFixed(1)} rows a settlement`,
      ratio: share,
      target: "< 0.05",
      met: share < 0.05,
    },
  ];
}

async function costOf(
  environment: Environment,
  file: string,
  pollers: keyof typeof SETTLE_S,
  work: () => Promise<void>,
): Promise<Cost> {
  const { sql, serverPid } = environment;
  await sql.query("TRUNCATE outbox");
  await vacuum(environment);
  const program = await environment.program("fleetPollers.js", [file, pollers]);
  await arrivals(environment, 1);
  await untilSettled(environment);
  await sleep(SETTLE_S[pollers] * 1000);
  const before = await countsOf(program);
  await sql.query("SELECT pg_stat_statements_reset()");
  const [spent, mine] = [serverMs(serverPid), await ownMs(environment)];
  await work();
  const processor = serverMs(serverPid) - spent - ((await ownMs(environment)) - mine);
  const after = await countsOf(program);
  const { rows } = await sql.query<{ claims: number; statements: number }>(`
    SELECT coalesce(sum(calls) FILTER (WHERE query LIKE '%candidates AS MATERIALIZED%'), 0)::int AS claims, sum(calls)::int AS statements
    FROM pg_stat_statements WHERE query NOT LIKE 'SET %' AND query !~ '^(BEGIN|COMMIT)'`);
  if (process.env.BENCH_FLEET_STATEMENTS !== undefined) await printStatements(environment, pollers);
  await untilSettled(environment);
  await program.stop();
  const { claims: claimStatements = 0, statements = 0 } = rows[0] ?? {};
  return { processorMs: processor, counts: difference(before, after), claimStatements, statements };
}

/** Adds messages evenly, as a relay in another process would: with an announcement. */
async function arrivals({ sql, store }: Environment, seconds: number): Promise<void> {
  const rows = (PER_SECOND * ARRIVALS_MS) / 1000;
  const startedAt = performance.now();
  for (let n = 0; n < (seconds * 1000) / ARRIVALS_MS; n += 1) {
    await sleep(startedAt + n * ARRIVALS_MS - performance.now());
    await sql.query(
      "INSERT INTO outbox (topic, key, payload) SELECT 'bench', 'key-' || (($3::int * $2::int + n) % $4::int), $1 FROM generate_series(1, $2::int) n",
      [BODY, rows, n, KEYS],
    );
    store.announceOutbox();
  }
}

async function countsOf(program: Program): Promise<FleetCounts> {
  program.tell("");
  return JSON.parse(await program.line()) as FleetCounts;
}

function difference(from: FleetCounts, to: FleetCounts): FleetCounts {
  const entries = Object.entries(to).map(([name, count]) => [name, count - from[name as keyof FleetCounts]]);
  return Object.fromEntries(entries) as FleetCounts;
}

/** Processor time of the session that adds the messages: not what the pollers cost. */
async function ownMs({ sql }: Environment): Promise<number> {
  const { rows } = await sql.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  return processorMs(rows[0]?.pid ?? 0);
}

/** Processor time of the server so far, in ms: of its processes, and of those that have ended. */
function serverMs(pid: number): number {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  const living = [pid, ...children.map(Number)].map((each) => processorMs(each));
  // After the name, which may hold anything: the times of ended children are the 14th and 15th field.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
  const ended = (Number(fields[13]) + Number(fields[14])) * TICK_MS;
  return living.reduce((sum, ms) => sum + ms, ended);
}

const TICK_MS = 10;

async function printStatements({ sql }: Environment, pollers: number): Promise<void> {
  const { rows } = await sql.query(`
    SELECT calls::int, rows::int, round((total_exec_time + total_plan_time)::numeric, 1) AS ms, left(regexp_replace(query, '\\s+', ' ', 'g'), 90) AS query
    FROM pg_stat_statements ORDER BY calls DESC LIMIT 20`);
  process.stderr.write(`${pollers} pollers\n`);
  for (const row of rows) process.stderr.write(`${row.calls}\t${row.rows}\t${row.ms}\t${row.query}\n`);
}
