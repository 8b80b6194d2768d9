import { createHash, randomBytes } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import path from "node:path";
import type { CaptureState, ChangeLog, LogPosition, OwnedState } from "../ports/capture.ts";
import type { Log } from "../ports/runtime.ts";
import { captureStateFault, takeOwnership } from "./captureOwnership.ts";

/**
 * The state directory of change capture (`outbox.capture.stateDirectory`). Per identity: `<identity>.json` with the position, and what
 * the ownership needs (`captureOwnership.ts`).
 */

export interface CaptureStateOptions {
  /** Made when it is missing. */
  readonly directory: string;
  /** `outbox.capture.identity`: lower-case letters, digits and `_`. */
  readonly identity: string;
  readonly log: Log;
}

/** What stands in the file. */
interface SavedState {
  readonly version: 1;
  readonly fingerprint: string;
  readonly position: LogPosition;
  /** ISO-8601 in UTC; for the reader of the file only. */
  readonly savedAt: string;
}

/** The state of one identity in a directory of the file system. One process at a time owns it, and one owner at a time within the process. */
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
  const ownership = await takeOwnership({ ...options, onLost });
  try {
    await removeUnfinished(directory, identity);
    const fingerprint = fingerprintOf(identity, settings);
    return {
      position: await readPosition(file, fingerprint, options.log),
      async save(position) {
        // Another process may have taken over: its position must stay.
        if (!ownership.held) throw new Error(`${file} is not saved: this process does not own the state any more`);
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

/** The same for the same settings, in whatever order they are listed. */
function fingerprintOf(identity: string, settings: ChangeLog["settings"]): string {
  const sorted = Object.keys(settings)
    .sort()
    .map((key) => [key, settings[key]]);
  return createHash("sha256")
    .update(JSON.stringify([identity, sorted]))
    .digest("hex");
}

/** @returns the saved position; null when there is none that can be used, and then the log says why */
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
    "the saved position of change capture is not used: the capture begins anew, and the poller finds what came meanwhile",
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
    return "it is damaged: its fingerprint or its position is missing or no text";
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
    const handle = await open(temporary, "wx", 0o600);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
    await syncDirectory(path.dirname(file));
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {});
    throw captureStateFault("save", file, error);
  }
}

/** Without this a power failure could undo the rename. */
async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
