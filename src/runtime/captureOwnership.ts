import { readFile, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { lock } from "proper-lockfile";
import { errorText } from "../model/errors.ts";
import type { Log } from "../ports/runtime.ts";

/**
 * One owner for a capture identity. `<identity>.lock` is the lock: a directory, which the file system makes for one of any number of
 * processes, and whose modification time the owner renews. `<identity>.owner.json` beside it tells people who that is, and decides nothing.
 *
 * Staleness is judged by the wall clock. Where that jumps ahead, differs between hosts by more than the limit, or where the owner stood still for
 * so long, a second process takes the lock over from a living one, which learns of it at its next renewal and gives up; until then both of them
 * wake a poller, which does no harm. Where it jumps back, the lock of a process that was killed lasts until the clock has caught up.
 */

/** A lock that was not renewed for this long is of a process that was killed, or that hangs. */
const STALE_MS = 10_000;
const RENEWAL_MS = 2500;

export interface OwnershipOptions {
  readonly directory: string;
  readonly identity: string;
  readonly log: Log;
  /** Called once when the ownership is lost before `release`. */
  readonly onLost: (error: Error) => void;
}

export interface Ownership {
  /** False once it is lost or released. */
  readonly held: boolean;
  /** Does not throw. */
  release(): Promise<void>;
}

interface Owner {
  readonly host: string;
  readonly pid: number;
  /** ISO-8601 in UTC. */
  readonly since: string;
}

/**
 * Takes the ownership of an identity, also from a process that was killed.
 *
 * @throws Error that names the present owner, or says why the directory cannot be used
 */
export async function takeOwnership(options: OwnershipOptions): Promise<Ownership> {
  const { directory, identity, log, onLost } = options;
  const lockPath = path.join(directory, `${identity}.lock`);
  const ownerFile = path.join(directory, `${identity}.owner.json`);
  let held = true;
  let unlock: () => Promise<void>;
  try {
    unlock = await lock(path.join(directory, identity), {
      lockfilePath: lockPath,
      realpath: false,
      stale: STALE_MS,
      update: RENEWAL_MS,
      onCompromised: (cause) => {
        // A renewal that was under way during a release finds no lock either.
        if (!held) return;
        held = false;
        onLost(lostError(options, lockPath, cause));
      },
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ELOCKED") throw captureStateFault("lock", lockPath, error);
    throw ownedError(options, await readOwner(ownerFile));
  }

  const release = async () => {
    if (!held) return;
    held = false;
    // Whoever comes next replaces it.
    await rm(ownerFile, { force: true }).catch(() => {});
    try {
      await unlock();
    } catch (error) {
      log.warn(
        { file: lockPath, reason: errorText(error), freeAfterMs: STALE_MS },
        "the state of change capture could not be given up; it is free when its lock is stale",
      );
    }
  };
  const owner: Owner = { host: hostname(), pid: process.pid, since: new Date().toISOString() };
  try {
    await writeFile(ownerFile, `${JSON.stringify(owner)}\n`, { mode: 0o600 });
  } catch (error) {
    await release();
    throw captureStateFault("write", ownerFile, error);
  }
  return {
    get held() {
      return held;
    },
    release,
  };
}

/** @returns null when the file is missing or says nothing: it is only there for people */
async function readOwner(ownerFile: string): Promise<Owner | null> {
  try {
    const { host, pid, since } = JSON.parse(await readFile(ownerFile, "utf8")) as Owner;
    return typeof host === "string" && typeof pid === "number" && typeof since === "string"
      ? { host, pid, since }
      : null;
  } catch {
    return null;
  }
}

function ownedError({ directory, identity }: OwnershipOptions, owner: Owner | null): Error {
  const who = owner === null ? "another process" : `process ${owner.pid} on host ${owner.host} since ${owner.since}`;
  return new Error(
    `the state of the capture identity ${identity} in ${directory} is owned by ${who}: one process at a time owns it. ` +
      "Set outbox.capture.enabled to false in all replicas but one, or give this one another outbox.capture.identity and " +
      `outbox.capture.stateDirectory. If that process was killed, this one takes over ${STALE_MS / 1000} s after its last sign of life`,
  );
}

function lostError({ directory, identity }: OwnershipOptions, lockPath: string, cause: unknown): Error {
  return new Error(
    `the ownership of the capture identity ${identity} in ${directory} is lost: ${errorText(cause)}. ${lockPath} was removed, was taken over ` +
      `by another process, or could not be renewed for ${STALE_MS / 1000} s. Check that only one replica has outbox.capture.enabled, that nothing ` +
      "tidies the directory, and that its volume answers",
  );
}

/**
 * An operation on the state directory of change capture failed.
 *
 * @param operation what was tried, as in "cannot save /var/lib/svc/svc.json"
 * @param place the file or directory
 * @param error of the file system
 * @returns an Error that says what to check
 */
export function captureStateFault(operation: string, place: string, error: unknown): Error {
  const advice = ADVICE[(error as NodeJS.ErrnoException).code ?? ""] ?? notWritable;
  return new Error(
    `change capture cannot ${operation} ${place} (outbox.capture.stateDirectory): ${errorText(error)}; ${advice()}`,
  );
}

const notWritable = () =>
  `the directory must be one that ${user()} may read and write: check its owner and mode, and that its volume is mounted and writable`;
const notADirectory = () => "a file stands where the directory should be: remove it, or name another directory";
const noSpace = () => "the volume or the quota is full: make room on it";

const ADVICE: Readonly<Record<string, () => string>> = {
  EEXIST: notADirectory,
  ENOTDIR: notADirectory,
  ENOSPC: noSpace,
  EDQUOT: noSpace,
};

function user(): string {
  const id = process.getuid?.();
  return id === undefined ? "the user of this process" : `the user of this process (id ${id})`;
}
