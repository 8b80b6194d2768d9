import { closeSync, mkdtempSync, openSync, readSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NOTE_BYTES, type RunningNote } from "./protocol.ts";

/** The file of a worker's notes: the last one outlives it. It has no name any more when the worker gets it. */
export class Note {
  readonly fd: number;

  private constructor(fd: number) {
    this.fd = fd;
  }

  /** @returns null where no file can be made and unlinked: the worker does without */
  static open(): Note | null {
    let directory: string | undefined;
    try {
      directory = mkdtempSync(join(tmpdir(), "svc-transform-"));
      return new Note(openSync(join(directory, "note"), "w+", 0o600));
    } catch {
      return null;
    } finally {
      if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
    }
  }

  /** The last note; undefined when there is none. */
  read(): RunningNote | undefined {
    const bytes = Buffer.alloc(NOTE_BYTES);
    if (readSync(this.fd, bytes, 0, NOTE_BYTES, 0) !== NOTE_BYTES) return undefined;
    return { id: bytes.readDoubleLE(), startedAt: bytes.readDoubleLE(8) };
  }

  close(): void {
    closeSync(this.fd);
  }
}
