import type { Command } from "commander";
import { renamedKeys } from "../config/checks/sections.ts";
import { didYouMean } from "../config/kinds.ts";
import type { Config } from "../config/types.ts";
import { type Audit, createAudit } from "../core/operations/audit.ts";
import { operatorView, type Show } from "../core/redaction/hidePayload.ts";
import { createRedactor, type KnownSecrets, type Redact } from "../core/redaction/redact.ts";
import { ConfigError, errorText } from "../model/errors.ts";
import type { OperatorStore } from "../ports/operatorStore.ts";
import type { Log } from "../ports/runtime.ts";
import { handleSignals } from "../runtime/shutdown.ts";
import { type Clock, systemClock } from "../time/clock.ts";
import { type CommandIo, plainText } from "./io.ts";
import type { Prepared } from "./run.ts";

/** What a command does with the database of the configuration. */
export interface DatabaseWork {
  /** Checks the arguments against the configuration, before it connects. @throws ConfigError */
  readonly check?: ((config: Config) => void) | undefined;
  /** Whether a signal aborts the work, which then reports how far it came; by default it ends the process. */
  readonly endsOnSignal?: boolean;
  /** Checks the tables and does the work. @returns what is printed, after the log */
  readonly work: (tools: DatabaseTools) => Promise<string>;
}

export interface DatabaseTools {
  readonly config: Config;
  readonly store: OperatorStore;
  readonly secrets: KnownSecrets;
  readonly redact: Redact;
  /** The last step of what the command prints of rows. */
  readonly show: Show;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly log: Log;
  /** Aborts on a signal. */
  readonly signal: AbortSignal;
}

/**
 * The action of a command that works on the database of the configuration.
 *
 * @param plan is given the options, those before the command's name included
 */
export function databaseAction<O>(io: CommandIo, plan: (options: O, command: Command) => DatabaseWork) {
  return async (...given: readonly unknown[]): Promise<void> => {
    const command = given.at(-1) as Command;
    const options = command.optsWithGlobals<O & { readonly config?: string }>();
    await onDatabase(io, options.config, plan(options, command));
  };
}

/**
 * Runs a command on the database of the configuration, once it is reachable.
 *
 * @param file `--config`
 * @throws ConfigError for a bad configuration, StoreError when no database answers, or what the work throws; after a
 *   signal that is printed instead, and the exit code is 1
 */
export async function onDatabase(io: CommandIo, file: string | undefined, command: DatabaseWork): Promise<void> {
  // Imported late: `svc --version` should load no database driver.
  const { prepare } = await import("./run.ts");
  const prepared = prepare({ env: io.env, file, roles: [], once: false });
  command.check?.(prepared.config);
  if (!command.endsOnSignal) return runCommand(prepared, io, command, new AbortController().signal);
  await untilSignal(prepared, io, (signal) => runCommand(prepared, io, command, signal));
}

/**
 * Runs work that a signal aborts: what that throws is printed then, and the exit code is 1.
 *
 * @throws what the work throws before
 */
export async function untilSignal(
  { running: { log, flush } }: Pick<Prepared, "running">,
  io: CommandIo,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  let ended: Promise<void> = Promise.resolve();
  const signals = handleSignals({ log, flush, stop: () => ended });
  ended = work(signals.stopping);
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
/** Characters of a reason. */
const MOST_SHOWN = 200;
/** Characters of a text that is kept with a change; far above what the options admit. */
const LONGEST_NOTE = 2000;

async function runCommand(
  { config, running, secrets }: Prepared,
  { stdout, stderr }: CommandIo,
  { work }: DatabaseWork,
  signal: AbortSignal,
): Promise<void> {
  const { log, flush } = running;
  const { createOperatorStore } = await import("../../roles/database.ts");
  const store = await createOperatorStore(config, systemClock, log);
  try {
    await store.waitUntilReady(config.database.startupTimeoutMs, signal);
    const redact = createRedactor(secrets, LONGEST_NOTE);
    const leftOut = store.cells?.watch();
    const audit = createAudit({ store: store.operations, redact, log });
    const show = operatorView(secrets, config.admin.redactPayloadPaths);
    const result = await work({ config, store, secrets, redact, show, audit, clock: systemClock, log, signal });
    // The lines for people come last.
    flush();
    stdout.write(result);
    for (const { name, reason } of leftOut?.() ?? []) {
      stderr.write(`svc: the cell ${name} was left out, it does not answer: ${plainText(reason, MOST_SHOWN)}\n`);
    }
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
  await onDatabase(io, file, {
    check({ database }) {
      if (renamedKeys(database).length === 0) return;
      const message = "the bundled migrations know only the default names: make the renamed tables and columns by hand";
      throw new ConfigError([{ path: "database", message }]);
    },
    async work({ store }) {
      const applied = await store.schema.migrate();
      await store.schema.checkColumns();
      return applied.length === 0 ? "the schema is up to date\n" : `migrations applied: ${applied.join(", ")}\n`;
    },
  });
}
