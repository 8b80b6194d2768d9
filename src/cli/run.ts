import { rename, writeFile } from "node:fs/promises";
import { cellConfig, identityOf, servedCells } from "../config/cells.ts";
import { openSourcesNotice } from "../config/checks/entries.ts";
import { readFileFromDisk } from "../config/file.ts";
import { loadConfig } from "../config/load.ts";
import { fileSecretsOf, secretsOf } from "../config/mask.ts";
import { printConfig } from "../config/print.ts";
import { checkRoles, parseRole, rolesEnabled } from "../config/roles.ts";
import { secretIn } from "../config/shape.ts";
import type { CellConfig, Config } from "../config/types.ts";
import { createRedactor, KnownSecrets } from "../core/redaction/redact.ts";
import { ConfigError, configErrorOf, errorText, StoppingError } from "../model/errors.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { Log } from "../ports/runtime.ts";
import type { CellIdentity } from "../ports/store.ts";
import { createLog, parseLogLevel, type RunningLog } from "../runtime/log.ts";
import { createMetrics } from "../runtime/metrics.ts";
import { SecretFiles } from "../runtime/secretFiles.ts";
import { handleSignals } from "../runtime/shutdown.ts";
import { metricsPushes } from "../setup/metricsPush.ts";
import type { StartProcess } from "../setup/process.ts";
import { retentions } from "../setup/retention.ts";
import { createStore, prepareStore } from "../setup/stores.ts";
import { systemClock } from "../time/clock.ts";
import { withTimeout } from "../time/wait.ts";
import { type CommandIo, maskLastWords, VERSION } from "./io.ts";

/** A configuration loaded for a process, with the log and the redaction that belong to it. */
export interface Prepared {
  readonly config: Config;
  /** The configuration in effect as text, secrets masked. */
  readonly configText: string;
  readonly source: string;
  readonly roles: ReturnType<typeof rolesEnabled>;
  /** The cells that it serves; empty without cells. */
  readonly cells: readonly CellConfig[];
  readonly running: RunningLog;
  readonly secrets: KnownSecrets;
}

interface RunArguments {
  readonly env: NodeJS.ProcessEnv;
  /** `--config` */
  readonly file: string | undefined;
  /** Roles named on the command line; empty means every role that the configuration enables. */
  readonly roles?: readonly string[];
  /** `--once` */
  readonly once?: boolean | undefined;
  /** `--cells`: names with commas between them; undefined for all. */
  readonly cells?: string | undefined;
  /** Takes the log of a command, which has errors alone unless `LOG_LEVEL` is below `info`. */
  readonly commandLog?: CommandIo["stderr"] | undefined;
}

/** Loads the configuration, makes the log and logs the warnings. @throws ConfigError with every problem */
export function prepare(given: RunArguments): Prepared {
  const { env, file, roles: named = [], once = false, cells: namedCells, commandLog } = given;
  const wanted = parseLogLevel(env.LOG_LEVEL);
  const level = commandLog !== undefined && (wanted === "info" || wanted === "warn") ? "error" : wanted;
  const namedRoles = readRoles(named);
  if (once && (namedRoles.length !== 1 || namedRoles[0] !== "retention")) {
    throw usage("--once", "works with the role retention alone: svc retention --once");
  }
  const loaded = loadConfig({ env, file });
  const { config, warnings, source } = loaded;
  const roles = namedRoles.length > 0 ? namedRoles : rolesEnabled(config);
  const problems = checkRoles(config, roles, namedRoles.length > 0);
  if (problems.length > 0) throw new ConfigError(problems);
  const cells = servedCells(config, namedCells);
  const secrets = new KnownSecrets(secretsOf(config));
  maskLastWords(secrets);
  const redact = createRedactor(secrets, MAX_LOGGED_TEXT, true);
  const output = commandLog && { write: (line: string) => void commandLog.write(line) };
  const running = createLog({ level, roles, redact, ...(output && { output }) });
  for (const { path, message } of warnings) running.log.warn({ key: path, reason: message }, "configuration warning");
  return { config, configText: printConfig(loaded), source, roles, cells, running, secrets };
}

/** Runs roles until a signal comes, or one sweep of retention. */
export async function run(args: RunArguments, start: StartProcess): Promise<void> {
  const prepared = prepare(args);
  if (args.once) return await retentionOnce(prepared);
  const { config, roles, running } = prepared;
  const notice = roles.includes("ingest") ? openSourcesNotice(config) : undefined;
  if (notice) running.log.warn({ key: notice.path, reason: notice.message }, "sources accept any caller");
  await serve(prepared, start);
}

/**
 * Starts the prepared process and installs the signal handlers. Resolves when everything is up.
 *
 * @param atEnd called after the service has stopped, by a signal or because it could not start
 * @throws the error of a failed start
 */
export async function serve(
  prepared: Prepared,
  start: StartProcess,
  atEnd: () => Promise<void> = async () => {},
): Promise<void> {
  const { config, source, running, secrets } = prepared;
  const { log, flush } = running;
  let stopService = async (): Promise<void> => {};
  let started = (): void => {};
  const settled = new Promise<void>((resolve) => {
    started = resolve;
  });
  const signals = handleSignals({
    log,
    flush,
    async stop() {
      // A start under way gives up first and is undone.
      await settled;
      try {
        await stopService();
      } finally {
        await atEnd();
      }
    },
  });
  log.info(summary(config, source), "starting");
  const files = new SecretFiles({
    secrets: fileSecretsOf(config),
    read: (file) => secretIn(readFileFromDisk(file)),
    masker: secrets,
    log,
  });
  try {
    const stop = await start({ ...prepared, version: VERSION, log, stopping: signals.stopping });
    files.start();
    stopService = async () => {
      files.stop();
      await stop();
    };
  } catch (error) {
    if (signals.stopping.aborted) return;
    signals.dispose();
    await atEnd();
    flush();
    throw error;
  } finally {
    started();
  }
}

const MAX_LOGGED_TEXT = 8000;

function readRoles(named: readonly string[]) {
  try {
    return [...new Set(named.map(parseRole))];
  } catch (error) {
    throw usage("roles", errorText(error));
  }
}

function usage(path: string, message: string): ConfigError {
  return new ConfigError([{ path, message }]);
}

/** What the log shows of a start; no secret. */
function summary(config: Config, source: string): object {
  const kinds = (entries: Readonly<Record<string, { readonly kind: string }>>) =>
    Object.entries(entries).map(([name, { kind }]) => `${name} (${kind})`);
  return {
    configuration: source,
    database: config.database.type,
    ...(config.database.cells.length === 0 ? {} : { cells: config.database.cells.map(({ name }) => name) }),
    sources: kinds(config.sources),
    destinations: kinds(config.destinations),
    routes: config.routes.length,
  };
}

/**
 * `svc retention --once`: one sweep of each table for a scheduler, without HTTP servers. A signal ends it after the
 * running batch, as a clean stop; the next run does the rest.
 *
 * @throws ConfigError when the tables do not fit, StoreError when no database answers, AggregateError with the errors
 *   of the failed sweeps
 */
async function retentionOnce({ config, cells, running: { log, flush } }: Prepared): Promise<void> {
  const signals = handleSignals({
    log,
    flush,
    stop: () => withTimeout(config.outbox.shutdownTimeoutMs, "stopping retention", () => swept),
  });
  const names = cells.map(({ name }) => name);
  const registry = createMetrics({ version: VERSION, roles: ["retention"], cells: names, processMetrics: false });
  const sweeps =
    cells.length === 0
      ? sweep(config, log, registry.metrics, signals.stopping)
      : sweepCells(config, cells, log, registry.ofCell, signals.stopping);
  const swept = sweeps.finally(() => keepMetrics(config, registry, log));
  try {
    await swept;
  } finally {
    // After a signal its handler ends the process.
    if (!signals.stopping.aborted) signals.dispose();
    flush();
  }
}

/** Sweeps the cells at the same time; a failure of one does not affect the others. */
async function sweepCells(
  config: Config,
  cells: readonly CellConfig[],
  log: Log,
  metricsOf: (cell: string) => Metrics,
  stopping: AbortSignal,
): Promise<void> {
  const sweeps = cells.map(async (cell) => {
    try {
      const ownLog = log.child({ cell: cell.name });
      await sweep(cellConfig(config, cell), ownLog, metricsOf(cell.name), stopping, identityOf(config, cell));
      return [];
    } catch (error) {
      if (error instanceof ConfigError) return [configErrorOf(cell.name, error)];
      return [new Error(`the cell ${cell.name}: ${errorText(error)}`, { cause: error })];
    }
  });
  const failures = (await Promise.all(sweeps)).flat();
  const misfits = failures.filter((failure) => failure instanceof ConfigError);
  // Another run may help the cells that failed otherwise.
  if (misfits.length > 0 && misfits.length === failures.length)
    throw new ConfigError(misfits.flatMap(({ problems }) => problems));
  if (failures.length > 0) throw new AggregateError(failures, "retention failed");
}

/** Sweeps both tables in turn; a failure of one does not affect the other. */
async function sweep(
  config: Config,
  log: Log,
  metrics: Metrics,
  stopping: AbortSignal,
  cell?: CellIdentity,
): Promise<void> {
  const store = await createStore(config, log);
  const failures: unknown[] = [];
  try {
    const part = { cell, holds: cell === undefined ? "everything" : "cell" } as const;
    await prepareStore(store, config, new Set(["retention"]), log, stopping, part);
    for (const { table, retention } of retentions({ config, store, clock: systemClock, metrics, log }, stopping)) {
      if (stopping.aborted) break;
      await retention.runOnce().catch((error: unknown) => {
        log.error({ err: error, table }, "retention failed");
        failures.push(error);
      });
    }
  } catch (error) {
    if (!(error instanceof StoppingError)) throw error;
  } finally {
    await store.close();
  }
  if (failures.length > 0) throw new AggregateError(failures, "retention failed");
}

/** Nobody scrapes a process that ends: its metrics are pushed, and written to a file in one step. Never rejects. */
async function keepMetrics(
  config: Config,
  registry: Pick<ReturnType<typeof createMetrics>, "text" | "figures">,
  log: Log,
): Promise<void> {
  const { textfile } = config.metrics;
  try {
    const unfinished = `${textfile}.${process.pid}`;
    if (textfile !== undefined) {
      await writeFile(unfinished, await registry.text());
      await rename(unfinished, textfile);
    }
  } catch (error) {
    log.warn({ key: "metrics.textfile", reason: errorText(error) }, "the metrics could not be written");
  }
  await Promise.all(metricsPushes({ config, version: VERSION, log }, registry).map((each) => each.push()));
}
