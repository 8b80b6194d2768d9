import type { CellConfig, Config } from "../config/types.ts";
import type { Role } from "../model/roles.ts";
import type { Log, SecretMasker } from "../ports/runtime.ts";

export interface ProcessOptions {
  readonly config: Config;
  /** The configuration in effect as text, with the origin of each value, secrets masked. */
  readonly configText: string;
  readonly roles: readonly Role[];
  /** Those in which the process works; empty without cells. */
  readonly cells: readonly CellConfig[];
  readonly version: string;
  /** The secrets of the configuration, and those obtained while the process runs. */
  readonly secrets: SecretMasker;
  readonly log: Log;
  /** Aborts at a stop before the process is up. */
  readonly stopping: AbortSignal;
}

/**
 * Starts the roles of a process.
 *
 * @returns what stops everything in the order of the spec; it rejects with an AggregateError if a part failed to stop
 * @throws ConfigError for what cannot run, StoreError when no database answers, or the error of the part that failed to
 *   start; the other parts are stopped again by then
 */
export type StartProcess = (options: ProcessOptions) => Promise<() => Promise<void>>;
