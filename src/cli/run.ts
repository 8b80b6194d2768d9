import { startProcess } from "../../roles/wire.ts";
import { loadConfig } from "../config/load.ts";
import { secretsOf } from "../config/mask.ts";
import { openSourcesNotice } from "../config/openSources.ts";
import { checkRoles, parseRole, rolesEnabled } from "../config/roles.ts";
import type { Config } from "../config/types.ts";
import { createRedactor, KnownSecrets } from "../core/redaction/redact.ts";
import { ConfigError, type ConfigProblem, errorText } from "../model/errors.ts";
import type { Log } from "../ports/runtime.ts";
import { createLog, parseLogLevel, type RunningLog } from "../runtime/log.ts";
import { handleSignals } from "../runtime/shutdown.ts";
import type { CommandIo } from "./config.ts";
import { maskLastWords, VERSION } from "./process.ts";
import { retentionOnce } from "./retentionOnce.ts";

/** A configuration loaded for a process, with the log and the redaction that belong to it. */
export interface Prepared {
  readonly config: Config;
  readonly source: string;
  readonly roles: ReturnType<typeof rolesEnabled>;
  readonly running: RunningLog;
  readonly secrets: KnownSecrets;
}

export interface RunArguments {
  readonly env: NodeJS.ProcessEnv;
  /** `--config` */
  readonly file: string | undefined;
  /** Roles named on the command line; empty means every role that the configuration enables. */
  readonly roles: readonly string[];
  /** `--once` */
  readonly once: boolean;
}

/**
 * Loads the configuration and makes the log; the warnings are logged.
 *
 * @throws ConfigError with everything that is wrong, the roles included
 */
export function prepare({ env, file, roles: named, once }: RunArguments): Prepared {
  const level = parseLogLevel(env.LOG_LEVEL);
  const namedRoles = readRoles(named);
  if (once && (namedRoles.length !== 1 || namedRoles[0] !== "retention")) {
    throw usage("--once", "works with the role retention alone: svc retention --once");
  }
  const { config, warnings, source } = loadConfig({ env, file });
  const roles = namedRoles.length > 0 ? namedRoles : rolesEnabled(config);
  const problems = checkRoles(config, roles, namedRoles.length > 0);
  if (problems.length > 0) throw new ConfigError(problems);
  const secrets = new KnownSecrets(secretsOf(config));
  maskLastWords(secrets);
  const running = createLog({ level, roles, redact: createRedactor(secrets, MAX_LOGGED_TEXT) });
  logWarnings(running.log, warnings);
  return { config, source, roles, running, secrets };
}

/** Runs roles until a signal comes, or one sweep of retention; then the process exits with the code of the design ("Exit codes"). */
export async function run(args: RunArguments): Promise<void> {
  const prepared = prepare(args);
  if (args.once) await retentionOnce(prepared.config, prepared.running);
  else {
    warnOfOpenSources(prepared);
    await serve(prepared);
  }
}

function warnOfOpenSources({ config, roles, running }: Prepared): void {
  const notice = openSourcesNotice(config);
  if (notice === undefined || !roles.includes("ingest")) return;
  running.log.warn({ key: notice.path, reason: notice.message }, "sources accept any caller");
}

/**
 * Starts the prepared process and installs the signal handlers. Resolves when everything is up.
 *
 * @param atEnd what is left to do after the service has stopped, by signal or because it could not start
 * @throws whatever kept it from starting
 */
export async function serve(prepared: Prepared, atEnd: () => Promise<void> = async () => {}): Promise<void> {
  const { config, source, roles, running, secrets } = prepared;
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
      // A start that is still under way gives up first, and undoes what it did.
      await settled;
      try {
        await stopService();
      } finally {
        await atEnd();
      }
    },
  });
  log.info(summary(config, source), "starting");
  try {
    const service = await startProcess({ config, roles, version: VERSION, log, secrets, stopping: signals.stopping });
    stopService = () => service.stop();
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
    throw usage("roles", error instanceof Error ? error.message : String(error));
  }
}

function usage(path: string, message: string): ConfigError {
  return new ConfigError([{ path, message }]);
}

function logWarnings(log: Log, warnings: readonly ConfigProblem[]): void {
  for (const { path, message } of warnings) log.warn({ key: path, reason: message }, "configuration warning");
}

/** What a reader of the log wants to know of a start, without a secret. */
function summary(config: Config, source: string): object {
  const kinds = (entries: Readonly<Record<string, { readonly kind: string }>>) =>
    Object.entries(entries).map(([name, { kind }]) => `${name} (${kind})`);
  return {
    configuration: source,
    database: config.database.type,
    sources: kinds(config.sources),
    destinations: kinds(config.destinations),
    routes: config.routes.length,
  };
}

/**
 * Runs the work of a command that changes rows, until it is done or a signal ends it: then what the work throws is told as how far it came, and the command
 * fails.
 *
 * @param work is to end soon when its signal aborts
 * @throws what the work threw where no signal came
 */
export async function untilSignalled(
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
