import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
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
    let fd: number | undefined;
    try {
      directory = mkdtempSync(join(tmpdir(), "svc-transform-"));
      fd = openSync(join(directory, "note"), "w+", 0o600);
      // So that it has its room also when the disk is full later.
      writeSync(fd, Buffer.alloc(NOTE_BYTES));
      rmSync(directory, { recursive: true });
      return new Note(fd);
    } catch {
      if (fd !== undefined) closeSync(fd);
      if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
      return null;
    }
  }

  /** The last note; before the first one its id is 0. */
  read(): RunningNote {
    const bytes = Buffer.alloc(NOTE_BYTES);
    readSync(this.fd, bytes, 0, NOTE_BYTES, 0);
    return { id: bytes.readDoubleLE(), startedAt: bytes.readDoubleLE(8) };
  }

  close(): void {
    closeSync(this.fd);
  }
}
