import { spawnSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { BODY } from "./body.ts";
import { type Environment, type Program, until } from "./environment.ts";
import { BUSY_POLLER, fillOutbox, timeDrain, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

/** From `dist/test/bench`, where this runs, to the sources: the peers are installed beside their own lock file. */
const FOLDER = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../../test/bench/peers");
const ROWS = 20_000;
const ROUNDS = 3;

/** How a peer's jobs are made, and seen to be gone. */
interface Peer {
  readonly name: string;
  readonly file: string;
  readonly fill: string;
  readonly unfinished: string;
  readonly tables: readonly string[];
}

const PEERS: readonly Peer[] = [
  {
    name: "graphile-worker, local queue, no order",
    file: "graphileWorker.mjs",
    fill: "SELECT graphile_worker.add_job('deliver', json_build_object('body', $1::text)) FROM generate_series(1, $2)",
    unfinished: "SELECT FROM graphile_worker._private_jobs",
    tables: ["graphile_worker._private_jobs"],
  },
  {
    name: "pg-boss, batch fetch, no order",
    file: "pgBoss.mjs",
    fill: "INSERT INTO pgboss.job (name, data) SELECT 'deliver', json_build_object('body', $1::text) FROM generate_series(1, $2)",
    unfinished: "SELECT FROM pgboss.job WHERE state < 'completed'",
    tables: ["pgboss.job"],
  },
];

/** (n) The drain of (a) against the same payloads through job queues on the same database, to the same receiver. */
export async function peers(environment: Environment): Promise<readonly Figure[]> {
  installPeers();
  const receiver = await environment.program("receiver.js", []);
  const svc = await environment.svc(["poller"], {
    ...BUSY_POLLER,
    // The peers log no line for a job either.
    LOG_LEVEL: "warn",
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
  });
  process.kill(svc.pid, "SIGSTOP");
  const figures: Figure[] = [];
  for (const peer of PEERS) {
    const program = await environment.program(path.join(FOLDER, peer.file), [environment.url, receiver.port]);
    process.kill(program.pid, "SIGSTOP");
    const pairs: { svc: number; peer: number }[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const peerMs = await drainPeer(environment, peer, program);
      await fillOutbox(environment, ROWS, 500);
      await vacuum(environment);
      const svcMs = await timeDrain(environment, svc);
      if (round > 0) pairs.push({ svc: perSecond(ROWS, svcMs), peer: perSecond(ROWS, peerMs) });
    }
    process.kill(program.pid, "SIGCONT");
    await program.stop();
    figures.push(figureOf(peer.name, pairs));
  }
  process.kill(svc.pid, "SIGCONT");
  return figures;
}

function figureOf(name: string, pairs: readonly { readonly svc: number; readonly peer: number }[]): Figure {
  const ratio = median(pairs.map(({ svc, peer }) => svc / peer));
  return {
    name: "(n) outbox drain to HTTP against a job queue",
    value: `${rate(median(pairs.map(({ svc }) => svc)))} in order per key`,
    baseline: `${rate(median(pairs.map(({ peer }) => peer)))} ${name}`,
    ratio,
    target: ">= 1",
    met: ratio >= 1,
  };
}

async function drainPeer({ sql }: Environment, peer: Peer, program: Program): Promise<number> {
  await sql.query(peer.fill, [BODY, ROWS]);
  for (const table of peer.tables) await sql.query(`VACUUM (ANALYZE) ${table}`);
  await sql.query("CHECKPOINT");
  process.kill(program.pid, "SIGCONT");
  const startedAt = performance.now();
  await until(async () => (await sql.query(`SELECT NOT EXISTS (${peer.unfinished}) AS done`)).rows[0].done);
  const took = performance.now() - startedAt;
  process.kill(program.pid, "SIGSTOP");
  for (const table of peer.tables) await sql.query(`TRUNCATE ${table} CASCADE`);
  return took;
}

/** Only this benchmark needs them. */
function installPeers(): void {
  const { status } = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts"], {
    cwd: FOLDER,
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (status !== 0) throw new Error(`npm ci in ${FOLDER} failed: the peers are not installed`);
}
