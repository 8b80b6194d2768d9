import { stat } from "node:fs/promises";
import { errorText } from "../model/errors.ts";
import type { Secret } from "../model/secret.ts";
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
  readonly #seen = new Map<string, string>();
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

  /** Looks once. */
  async look(): Promise<void> {
    const { secrets } = this.#options;
    for (const file of new Set(secrets.map((secret) => secret.file))) {
      try {
        const { mtimeMs, ino, size } = await stat(file);
        const mark = `${mtimeMs} ${ino} ${size}`;
        if (this.#seen.get(file) === mark) continue;
        this.#renew(file);
        // A file that is being written is read again at the next look.
        this.#seen.set(file, mark);
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

  #renew(file: string): void {
    const { secrets, read, masker, log } = this.#options;
    const value = read(file);
    if (value === "") throw new Error("it is empty");
    const changed = secrets.filter((secret) => secret.file === file && secret.reveal() !== value);
    if (changed.length === 0) return;
    masker.add(value);
    this.#renewAll(changed, value);
    log.info({ file }, "a secret file has changed: its new value is in use");
  }

  /** All that share the file, or none. */
  #renewAll(secrets: readonly Secret[], value: string): void {
    const renewed: (readonly [Secret, string])[] = [];
    try {
      for (const secret of secrets) {
        const before = secret.reveal();
        secret.renew(value);
        renewed.push([secret, before]);
      }
    } catch (error) {
      for (const [secret, before] of renewed) secret.renew(before);
      throw error;
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
