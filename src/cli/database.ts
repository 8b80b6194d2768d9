import type { Command } from "commander";
import { renamedKeys } from "../config/checks/sections.ts";
import type { Config } from "../config/types.ts";
import { Tally } from "../core/operations/heartbeat.ts";
import { createOperations, type Operations } from "../core/operations/operations.ts";
import { createRedactor } from "../core/redaction/redact.ts";
import { ConfigError, errorText } from "../model/errors.ts";
import type { OperatorStore } from "../ports/operatorStore.ts";
import type { CheckedTables, SchemaNeeds } from "../ports/store.ts";
import { createMetrics } from "../runtime/metrics.ts";
import { handleSignals } from "../runtime/shutdown.ts";
import { everySource } from "../setup/sources.ts";
import { createOperatorStore } from "../setup/stores.ts";
import { NO_TRACING } from "../setup/tracing.ts";
import { openTransforms } from "../setup/transforms.ts";
import { systemClock } from "../time/clock.ts";
import { action, type CommandIo, plainText } from "./io.ts";
import { type Prepared, prepare } from "./run.ts";

/** What a command does with the database of the configuration. */
export interface DatabaseWork {
  /** Checks the arguments against the configuration, before it connects. @throws ConfigError */
  readonly check?: (config: Config) => void;
  /** The tables that are checked before the work, and what it needs of them. */
  readonly tables?: CheckedTables;
  readonly needs?: SchemaNeeds;
  /** Whether it waits for the database as long as a start does; others for {@link LONGEST_ASK_MS}. */
  readonly waits?: boolean;
  /** Whether a signal aborts the work, which then reports how far it came; by default it ends the process. */
  readonly endsOnSignal?: boolean;
  /** @returns what is printed, after the log */
  readonly work: (tools: DatabaseTools) => Promise<string>;
}

export interface DatabaseTools extends Operations {
  readonly config: Config;
  readonly store: OperatorStore;
  /** Aborts on a signal. */
  readonly signal: AbortSignal;
}

/** The action of a command that works on the database of the configuration. @param plan as of {@link action} */
export function databaseAction<O>(io: CommandIo, plan: (options: O, command: Command) => DatabaseWork) {
  return action<O>((options, command) => onDatabase(io, options.config, plan(options, command)));
}

/**
 * Runs a command on the database of the configuration, once it is reachable.
 *
 * @throws ConfigError for a bad configuration, StoreError when no database answers, or what the work throws; after a
 *   signal that is printed instead, and the exit code is 1
 */
export async function onDatabase(io: CommandIo, file: string | undefined, command: DatabaseWork): Promise<void> {
  const { check, tables, needs, waits = false, endsOnSignal = false, work } = command;
  const prepared = prepare({ env: io.env, file, commandLog: waits ? undefined : io.stderr });
  const { config, secrets, running } = prepared;
  const { log } = running;
  check?.(config);
  await runWork(prepared, io, endsOnSignal, async (signal, print) => {
    const store = await createOperatorStore(config, log);
    const evaluator = openTransforms(config, new Set(), log);
    try {
      const { startupTimeoutMs } = config.database;
      await store.waitUntilReady(waits ? startupTimeoutMs : Math.min(startupTimeoutMs, LONGEST_ASK_MS), signal);
      const leftOut = store.cells?.watch();
      if (tables !== undefined) await store.schema.checkColumns(tables, needs);
      const sources = () =>
        everySource({ config, evaluator, log, clock: systemClock, tracing: NO_TRACING, ...unseen() });
      const operations = createOperations({ config, store, secrets, redact: createRedactor(secrets), log, sources });
      print(await work({ ...operations, config, store, signal }));
      for (const { name, reason } of leftOut?.() ?? [])
        io.stderr.write(`svc: the cell ${name} does not answer and was left out: ${plainText(reason, MOST_SHOWN)}\n`);
    } finally {
      await evaluator.stop(signal);
      await store.close();
    }
  });
}

/** Nobody scrapes the process of a command. */
const unseen = () => ({
  metrics: createMetrics({ version: "", roles: [], processMetrics: false }).metrics,
  tally: new Tally(systemClock),
});

/**
 * Runs work for a command.
 *
 * @param endsOnSignal whether a signal aborts the work: what that throws is printed then, and the exit code is 1
 * @param work is given what prints its result: the lines for people come after the log
 * @throws what the work throws before a signal
 */
async function runWork(
  { running: { log, flush } }: Prepared,
  io: CommandIo,
  endsOnSignal: boolean,
  work: (signal: AbortSignal, print: (text: string) => void) => Promise<void>,
): Promise<void> {
  const print = (text: string) => {
    flush();
    io.stdout.write(text);
  };
  let ended: Promise<void> = Promise.resolve();
  const signals = endsOnSignal ? handleSignals({ log, flush, stop: () => ended }) : undefined;
  const signal = signals?.stopping ?? new AbortController().signal;
  ended = work(signal, print).finally(flush);
  try {
    await ended;
  } catch (error) {
    if (!signal.aborted) throw error;
    io.stderr.write(`svc: ${errorText(error)}\n`);
    io.setExitCode(EXIT_FAILURE);
  } finally {
    signals?.dispose();
    flush();
  }
}

const EXIT_FAILURE = 1;
/** For how long a command waits for the database: somebody waits for its answer, and it starts in a second. */
const LONGEST_ASK_MS = 2000;
/** Characters of a reason. */
const MOST_SHOWN = 200;

/**
 * `svc migrate`: applies the bundled migrations even if `database.migrate` is false, and checks the tables.
 *
 * @throws ConfigError with renamed tables or columns, which the bundled migrations do not know; else as
 *   {@link onDatabase}
 */
export async function migrate(file: string | undefined, io: CommandIo): Promise<void> {
  await onDatabase(io, file, {
    waits: true,
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
