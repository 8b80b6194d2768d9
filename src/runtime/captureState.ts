import { createHash, randomBytes } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { lock } from "proper-lockfile";
import { errorText } from "../model/errors.ts";
import type { CaptureState, ChangeLog, LogPosition, OwnedState } from "../ports/capture.ts";
import type { Log } from "../ports/runtime.ts";

/**
 * The state directory of change capture (`outbox.capture.stateDirectory`). Per identity: `<identity>.json` with the
 * position, and the lock and owner files of its ownership.
 */

interface CaptureStateOptions {
  /** Made when it is missing. */
  readonly directory: string;
  /** `outbox.capture.identity`: lower-case letters, digits and `_`. */
  readonly identity: string;
  readonly log: Log;
}

/** The content of the file. */
interface SavedState {
  readonly version: 1;
  readonly fingerprint: string;
  readonly position: LogPosition;
  /** ISO-8601 in UTC; for the reader of the file only. */
  readonly savedAt: string;
}

/** The state of one identity in a directory. It has one owner at a time, across processes and within one. */
export function captureState(options: CaptureStateOptions): CaptureState {
  return { open: (settings, onLost) => openState(options, settings, onLost) };
}

async function openState(
  options: CaptureStateOptions,
  settings: ChangeLog["settings"],
  onLost: (error: Error) => void,
): Promise<OwnedState> {
  const { directory, identity } = options;
  const file = path.join(directory, `${identity}.json`);
  try {
    await mkdir(directory, { recursive: true });
  } catch (error) {
    throw captureStateFault("make", directory, error);
  }
  const ownership = await takeOwnership(options, onLost);
  try {
    await removeUnfinished(directory, identity);
    const fingerprint = fingerprintOf(identity, settings);
    return {
      position: await readPosition(file, fingerprint, options.log),
      async save(position) {
        // Another process may have taken over: its position must stay.
        if (!ownership.isHeld()) throw new Error(`${file} is not saved: this process no longer owns the state`);
        const saved: SavedState = { version: 1, fingerprint, position, savedAt: new Date().toISOString() };
        await replaceFile(file, temporaryName(directory, identity), `${JSON.stringify(saved)}\n`);
      },
      close: () => ownership.release(),
    };
  } catch (error) {
    await ownership.release();
    throw error;
  }
}

/** The order of the settings does not matter. */
function fingerprintOf(identity: string, settings: ChangeLog["settings"]): string {
  const sorted = Object.keys(settings)
    .sort()
    .map((key) => [key, settings[key]]);
  return createHash("sha256")
    .update(JSON.stringify([identity, sorted]))
    .digest("hex");
}

/** @returns the saved position; null without a usable one, with the reason in the log */
async function readPosition(file: string, fingerprint: string, log: Log): Promise<LogPosition | null> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw captureStateFault("read", file, error);
  }
  const saved = parse(text);
  if (typeof saved !== "string" && saved.fingerprint === fingerprint) return saved.position;
  const reason =
    typeof saved === "string"
      ? saved
      : "it was saved under other settings: another server, database, table, slot or identity";
  log.warn(
    { file, reason },
    "the saved position of change capture is not used: capture starts anew, and the poller finds the rows inserted meanwhile",
  );
  return null;
}

/** @returns what the file holds, or why it cannot be used */
function parse(text: string): SavedState | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "it is damaged: it holds no complete JSON document";
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return "it is damaged: it holds no JSON object";
  }
  const { version, fingerprint, position } = value as Readonly<Record<string, unknown>>;
  if (version !== 1) {
    return `it has the version ${JSON.stringify(version) ?? "none"}, and this release of svc knows version 1 only`;
  }
  if (typeof fingerprint !== "string" || typeof position !== "string" || position === "") {
    return "it is damaged: its fingerprint or its position is missing or not a text";
  }
  return value as SavedState;
}

/** Never the name of another save, not even of a process that lost the ownership in the middle of one. */
function temporaryName(directory: string, identity: string): string {
  return path.join(directory, `${identity}.${process.pid}-${randomBytes(4).toString("hex")}.tmp`);
}

/** What saves left that a crash cut short. */
async function removeUnfinished(directory: string, identity: string): Promise<void> {
  try {
    for (const name of await readdir(directory)) {
      if (name.startsWith(`${identity}.`) && name.endsWith(".tmp"))
        await rm(path.join(directory, name), { force: true });
    }
  } catch (error) {
    throw captureStateFault("tidy", directory, error);
  }
}

/** The name changes hands only when the new content is on the disk. */
async function replaceFile(file: string, temporary: string, text: string): Promise<void> {
  try {
    await writeSynced(temporary, text);
    await rename(temporary, file);
    await using directory = await open(path.dirname(file), "r");
    // Without this a power failure could undo the rename.
    await directory.sync();
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {});
    throw captureStateFault("save", file, error);
  }
}

async function writeSynced(file: string, text: string): Promise<void> {
  await using handle = await open(file, "wx", 0o600);
  await handle.writeFile(text);
  await handle.sync();
}

/**
 * One owner for a capture identity. `<identity>.lock` is the lock: a directory, which the file system creates for only
 * one of several processes, and whose modification time the owner renews. `<identity>.owner.json` names the owner for
 * people and decides nothing.
 *
 * The wall clock decides when a lock is stale. If it jumps ahead, differs between hosts by more than the limit, or the
 * owner hangs for that long, a second process takes the lock from a living one, which notices at its next renewal and
 * gives up. Until then both wake a poller, which does no harm. If the clock jumps back, the lock of a killed process
 * lasts until the clock has caught up.
 */

/** A lock not renewed for this long belongs to a process that was killed or hangs. */
const STALE_MS = 10_000;
const RENEWAL_MS = 2500;

interface Owner {
  readonly host: string;
  readonly pid: number;
  /** ISO-8601 in UTC. */
  readonly since: string;
}

/**
 * Takes the ownership of an identity, also from a process that was killed.
 *
 * @param onLost called once when the ownership is lost before it is released
 * @throws Error that names the present owner, or says why the directory cannot be used
 */
async function takeOwnership(options: CaptureStateOptions, onLost: (error: Error) => void) {
  const { directory, identity, log } = options;
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

  /** Does not throw. */
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
        "the state of change capture could not be released; it is free when its lock is stale",
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
  return { isHeld: () => held, release };
}

/** @returns null when the file is missing or unreadable: it is only there for people */
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

function ownedError({ directory, identity }: CaptureStateOptions, owner: Owner | null): Error {
  const who = owner === null ? "another process" : `process ${owner.pid} on host ${owner.host} since ${owner.since}`;
  return new Error(
    `the state of the capture identity ${identity} in ${directory} is owned by ${who}: one process at a time owns it. ` +
      "Set outbox.capture.enabled to false in all replicas but one, or give this one another outbox.capture.identity and " +
      `outbox.capture.stateDirectory. If that process was killed, this one takes over ${STALE_MS / 1000} s after its last renewal of the lock`,
  );
}

function lostError({ directory, identity }: CaptureStateOptions, lockPath: string, cause: unknown): Error {
  return new Error(
    `the ownership of the capture identity ${identity} in ${directory} is lost: ${errorText(cause)}. ${lockPath} was removed, was taken over ` +
      `by another process, or could not be renewed for ${STALE_MS / 1000} s. Check that only one replica has outbox.capture.enabled, that nothing ` +
      "tidies the directory, and that its volume answers",
  );
}

/** The error for an operation on the state directory that failed, such as "save": it says what to check. */
function captureStateFault(operation: string, place: string, error: unknown): Error {
  const advice =
    ADVICE[(error as NodeJS.ErrnoException).code ?? ""] ??
    `the directory must be one that ${user()} may read and write: check its owner and mode, and that its volume is mounted and writable`;
  return new Error(
    `change capture cannot ${operation} ${place} (outbox.capture.stateDirectory): ${errorText(error)}; ${advice}`,
  );
}

const NOT_A_DIRECTORY = "a file is where the directory should be: remove it, or name another directory";
const NO_SPACE = "the volume or the quota is full: make room on it";
const ADVICE: Readonly<Record<string, string>> = {
  EEXIST: NOT_A_DIRECTORY,
  ENOTDIR: NOT_A_DIRECTORY,
  ENOSPC: NO_SPACE,
  EDQUOT: NO_SPACE,
};

function user(): string {
  const id = process.getuid?.();
  return id === undefined ? "the user of this process" : `the user of this process (id ${id})`;
}
