import { errorText } from "../model/errors.ts";

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
