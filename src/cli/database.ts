import { createStore } from "../../roles/database.ts";
import { renamedKeys } from "../config/checks/sections.ts";
import { didYouMean } from "../config/kinds.ts";
import type { Config } from "../config/types.ts";
import { type Audit, createAudit } from "../core/operations/audit.ts";
import { createRedactor, type KnownSecrets } from "../core/redaction/redact.ts";
import { ConfigError, errorText } from "../model/errors.ts";
import type { Log } from "../ports/runtime.ts";
import type { Store } from "../ports/store.ts";
import { handleSignals } from "../runtime/shutdown.ts";
import { systemClock } from "../time/clock.ts";
import type { CommandIo } from "./io.ts";
import { type Prepared, prepare } from "./run.ts";

interface DatabaseCommand {
  /** `--config` */
  readonly file: string | undefined;
  /** Checks the arguments against the configuration, before it connects. @throws ConfigError */
  readonly check?: (config: Config) => void;
  /** Whether a signal aborts the work, which then reports how far it came; else it ends the process. */
  readonly endsOnSignal: boolean;
  /** Checks the tables and does the work. @returns what is printed, after the log */
  readonly work: (tools: DatabaseTools) => Promise<string>;
}

interface DatabaseTools {
  readonly config: Config;
  readonly store: Store;
  readonly secrets: KnownSecrets;
  readonly audit: Audit;
  readonly log: Log;
  /** Aborts on a signal. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command on the database of the configuration, once it is reachable.
 *
 * @throws ConfigError for a bad configuration, StoreError when no database answers, or what the work throws; after a
 *   signal that is printed instead, and the exit code is 1
 */
export async function onDatabase(io: CommandIo, command: DatabaseCommand): Promise<void> {
  const prepared = prepare({ env: io.env, file: command.file, roles: [], once: false });
  command.check?.(prepared.config);
  if (!command.endsOnSignal) return runCommand(prepared, io, command, new AbortController().signal);
  const { log, flush } = prepared.running;
  let ended: Promise<void> = Promise.resolve();
  const signals = handleSignals({ log, flush, stop: () => ended });
  ended = runCommand(prepared, io, command, signals.stopping);
  try {
    await ended;
  } catch (error) {
    if (!signals.stopping.aborted) throw error;
    io.stderr.write(`svc: ${errorText(error)}\n`);
    io.setExitCode(EXIT_FAILURE);
  } finally {
    signals.dispose();
    flush();
  }
}

const EXIT_FAILURE = 1;
/** Characters of a text in the audit log. */
const LONGEST_NOTE = 2000;

async function runCommand(
  { config, running, secrets }: Prepared,
  { stdout }: CommandIo,
  { work }: DatabaseCommand,
  signal: AbortSignal,
): Promise<void> {
  const { log, flush } = running;
  const store = await createStore(config, systemClock, log);
  try {
    await store.waitUntilReady(config.database.startupTimeoutMs, signal);
    const audit = createAudit({ store: store.operations, redact: createRedactor(secrets, LONGEST_NOTE), log });
    const result = await work({ config, store, secrets, audit, log, signal });
    // The lines for people come last.
    flush();
    stdout.write(result);
  } finally {
    await store.close();
    flush();
  }
}

/**
 * Checks that a destination is configured.
 *
 * @param place where the name was given, for the error
 * @throws ConfigError that lists the destinations
 */
export function requireDestination({ destinations }: Config, name: string, place: string): void {
  if (Object.hasOwn(destinations, name)) return;
  const names = Object.keys(destinations);
  const known = names.length === 0 ? "there are none" : `the destinations are ${names.join(", ")}`;
  const message = `there is no destination ${JSON.stringify(name)}: ${known}${didYouMean(name, names)}`;
  throw new ConfigError([{ path: place, message }]);
}

/**
 * `svc migrate`: applies the bundled migrations even where `database.migrate` is false, and checks the tables.
 *
 * @throws ConfigError with renamed tables or columns, which the bundled migrations do not know; else as
 *   {@link onDatabase}
 */
export async function migrate(file: string | undefined, io: CommandIo): Promise<void> {
  await onDatabase(io, {
    file,
    check({ database }) {
      if (renamedKeys(database).length === 0) return;
      const message = "the bundled migrations know only the default names: make the renamed tables and columns by hand";
      throw new ConfigError([{ path: "database", message }]);
    },
    endsOnSignal: false,
    async work({ store }) {
      const applied = await store.schema.migrate();
      await store.schema.checkColumns();
      return applied.length === 0 ? "the schema is up to date\n" : `migrations applied: ${applied.join(", ")}\n`;
    },
  });
}
