import { stat } from "node:fs/promises";
import { errorText } from "../model/errors.ts";
import { Secret } from "../model/secret.ts";
import type { Log, SecretMasker } from "../ports/runtime.ts";

interface SecretFilesOptions {
  readonly secrets: readonly (Secret & { readonly file: string })[];
  /** The secret in a file. */
  readonly read: (file: string) => string;
  /** Learns each new value before it is used. */
  readonly masker: Pick<SecretMasker, "add">;
  readonly log: Log;
  /** Between two looks, in ms. */
  readonly intervalMs?: number;
}

const INTERVAL_MS = 2000;

/**
 * Reads the files of secrets again when they change, so that a secret is rotated without a restart. It asks for their
 * times: notifications do not tell of files that are mounted anew, as orchestrators do it.
 */
export class SecretFiles {
  readonly #options: SecretFilesOptions;
  readonly #seenMarks = new Map<string, string>();
  /** Files with a fault that is logged. */
  readonly #faulty = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;

  constructor(options: SecretFilesOptions) {
    this.#options = options;
  }

  start(): void {
    if (this.#options.secrets.length > 0) this.#schedule();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  /**
   * Looks once. Files that are swapped together are renewed together: between two of them a credential that moves from
   * one to the other (`new` to `old`) would be refused.
   */
  async look(): Promise<void> {
    const files = [...new Set(this.#options.secrets.map(({ file }) => file))];
    const marks = await marksOf(files);
    const changed = files.flatMap((file, index) => {
      const mark = marks[index];
      return mark !== undefined && this.#seenMarks.get(file) === mark ? [] : [{ file, mark, value: this.#read(file) }];
    });
    if (changed.length === 0) return;
    // Some values may be of a newer version than others: the next look reads all of them.
    const isMixed = (await marksOf(files)).some((mark, index) => mark !== marks[index]);
    if (isMixed || this.#isStopped) return;
    for (const { file, mark, value } of changed) {
      try {
        if (value instanceof Error) throw value;
        this.#renew(file, value);
        // A file that is being written is read again at the next look.
        if (mark !== undefined) this.#seenMarks.set(file, mark);
        this.#faulty.delete(file);
      } catch (error) {
        if (this.#faulty.has(file)) continue;
        this.#faulty.add(file);
        this.#options.log.warn(
          { file, reason: errorText(error) },
          "a secret file has a value that cannot be used, or cannot be read: the last value stays in use",
        );
      }
    }
  }

  #read(file: string): string | Error {
    try {
      return this.#options.read(file);
    } catch (error) {
      return error instanceof Error ? error : new Error(errorText(error));
    }
  }

  #renew(file: string, value: string): void {
    const { secrets, masker, log } = this.#options;
    if (value === "") throw new Error("it is empty");
    const changed = secrets.filter((secret) => secret.file === file && secret.reveal() !== value);
    if (changed.length === 0) return;
    masker.add(value);
    Secret.renew(changed, value);
    if (changed.some((secret) => secret.isFollowed)) {
      log.info({ file }, "a secret file has changed: its new value is in use");
    }
    if (changed.some((secret) => !secret.isFollowed)) {
      log.info(
        { file },
        "a secret file has changed: what reads it at startup keeps the former value until you restart the process",
      );
    }
  }

  #schedule(): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(
      () => void this.look().finally(() => this.#schedule()),
      this.#options.intervalMs ?? INTERVAL_MS,
    );
    this.#timer.unref();
  }
}

/** What tells one version of each file from another; undefined for a file that cannot be reached. */
function marksOf(files: readonly string[]): Promise<readonly (string | undefined)[]> {
  return Promise.all(
    files.map(async (file) => {
      const found = await stat(file).catch(() => undefined);
      return found && `${found.mtimeMs} ${found.ino} ${found.size}`;
    }),
  );
}
