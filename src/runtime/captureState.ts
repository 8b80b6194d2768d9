import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { lock } from "proper-lockfile";
import { errorText } from "../model/errors.ts";
import { parsedJson } from "../model/text.ts";
import type { CaptureState, LogPosition, OwnedState } from "../ports/capture.ts";
import type { Log } from "../ports/runtime.ts";

interface CaptureStateOptions {
  /** Made when it is missing. */
  readonly directory: string;
  /** `outbox.capture.identity`: lower-case letters, digits and `_`. */
  readonly identity: string;
  readonly log: Log;
}

/**
 * The state directory of change capture (`outbox.capture.stateDirectory`): `<identity>.json` has the position,
 * `<identity>.lock` is held by the one process that owns it.
 */
export function captureState(options: CaptureStateOptions): CaptureState {
  return { open: (onLost) => openState(options, onLost) };
}

async function openState(options: CaptureStateOptions, onLost: (error: Error) => void): Promise<OwnedState> {
  const { directory, identity, log } = options;
  const file = path.join(directory, `${identity}.json`);
  try {
    await mkdir(directory, { recursive: true });
  } catch (error) {
    throw captureStateFault("make", directory, error);
  }
  const ownership = await takeOwnership(options, onLost);
  try {
    return {
      position: await readPosition(file, log),
      async save(position) {
        // Another process may have taken over: its position must stay.
        if (!ownership.isHeld()) throw new Error(`${file} is not saved: this process no longer owns the state`);
        await replaceFile(file, `${JSON.stringify({ position, savedAt: new Date().toISOString() })}\n`);
      },
      close: () => ownership.release(),
    };
  } catch (error) {
    await ownership.release();
    throw error;
  }
}

/** @returns the saved position; null without a usable one */
async function readPosition(file: string, log: Log): Promise<LogPosition | null> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw captureStateFault("read", file, error);
  }
  const { position } = Object(parsedJson(text)) as { readonly position?: unknown };
  if (typeof position === "string") return position;
  log.warn(
    { file },
    "the file with the position of change capture is damaged: capture starts anew, and the poller finds the rows inserted meanwhile",
  );
  return null;
}

/** A process that is killed meanwhile leaves the former file whole. */
async function replaceFile(file: string, text: string): Promise<void> {
  try {
    await writeFile(`${file}.tmp`, text, { mode: 0o600 });
    await rename(`${file}.tmp`, file);
  } catch (error) {
    throw captureStateFault("save", file, error);
  }
}

/** A lock not renewed for this long belongs to a process that was killed or hangs. */
const STALE_MS = 10_000;
const RENEWAL_MS = 2500;

/**
 * Takes the ownership of an identity, also from a process that was killed. The lock is a directory, which the file
 * system creates for only one of several processes, and whose modification time the owner renews.
 *
 * The wall clock decides when a lock is stale. If it jumps ahead, differs between hosts by more than the limit, or the
 * owner hangs for that long, a second process takes the lock from a living one, which notices at its next renewal and
 * gives up. Until then both wake a poller, which does no harm. If the clock jumps back, the lock of a killed process
 * lasts until the clock has caught up.
 *
 * @param onLost called once when the ownership is lost before it is released
 * @throws Error that says that another process has it, or why the directory cannot be used
 */
async function takeOwnership(options: CaptureStateOptions, onLost: (error: Error) => void) {
  const { directory, identity, log } = options;
  const lockPath = path.join(directory, `${identity}.lock`);
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
    throw ownedError(options);
  }
  return {
    isHeld: () => held,
    /** Does not throw. */
    async release(): Promise<void> {
      if (!held) return;
      held = false;
      try {
        await unlock();
      } catch (error) {
        log.warn(
          { file: lockPath, reason: errorText(error), freeAfterMs: STALE_MS },
          "the state of change capture could not be released; it is free when its lock is stale",
        );
      }
    },
  };
}

function ownedError({ directory, identity }: CaptureStateOptions): Error {
  return new Error(
    `the state of the capture identity ${identity} in ${directory} is owned by another process: one process at a time owns it. ` +
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
  const id = process.getuid?.();
  const user = id === undefined ? "the user of this process" : `the user of this process (id ${id})`;
  return new Error(
    `change capture cannot ${operation} ${place} (outbox.capture.stateDirectory): ${errorText(error)}; the directory must be one that ` +
      `${user} may read and write: check its owner and mode, that its volume is mounted, writable and not full, and that no file is in its place`,
  );
}
