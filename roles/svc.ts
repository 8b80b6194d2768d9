#!/usr/bin/env node
import { setFlagsFromString } from "node:v8";
import { Command, CommanderError } from "commander";
import { addCellCommands } from "../src/cli/cells.ts";
import { addConfigCommands } from "../src/cli/config.ts";
import { addConsoleCommand } from "../src/cli/console.ts";
import { migrate } from "../src/cli/database.ts";
import { addDestinationCommands } from "../src/cli/destinations.ts";
import { addExplainCommand } from "../src/cli/explain.ts";
import { action, lastWords, VERSION } from "../src/cli/io.ts";
import { addParkedCommands } from "../src/cli/parked.ts";
import { addReplayCommand } from "../src/cli/replay.ts";
import { run } from "../src/cli/run.ts";
import { addStatusCommands } from "../src/cli/status.ts";
import { addTailCommand } from "../src/cli/tail.ts";
import { addTraceCommand } from "../src/cli/trace.ts";
import { addTransformCommand } from "../src/cli/transform.ts";
import { ConfigError, StoppingError } from "../src/model/errors.ts";
import type { StartProcess } from "../src/setup/process.ts";

// Messages outlive two collections of the young generation and are garbage soon after; the engine would let the old
// generation grow to several times what is in use. Resident under full load: 165 instead of 215 MiB, at no measurable
// cost.
setFlagsFromString("--heap-growing-percent=60");
// Without this the engine allocates more and more rows directly in the old generation once a few have lived long, though
// most are soon garbage.
setFlagsFromString("--no-allocation-site-pretenuring");

/** Exit codes (design, "Exit codes"): 0 clean stop, 2 configuration or usage, 1 anything else. */
const EXIT_USAGE = 2;
const EXIT_FAILURE = 1;
const EXIT_PIPE_CLOSED = 141;

const { env } = process;
const io = {
  env,
  stdout: process.stdout,
  stderr: process.stderr,
  setExitCode(code: number) {
    process.exitCode = code;
  },
};

// The reader of our output has gone, as `head` does: the process ends with the code that a shell shows for SIGPIPE.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(EXIT_PIPE_CLOSED);
  });
}

/** What a process has and commands have not, such as its servers, is loaded for a process alone. */
const start: StartProcess = async (options) => (await import("./wire.ts")).startProcess(options);

interface Options {
  readonly config?: string;
  readonly once?: boolean;
  readonly cells?: string;
}

const program = new Command("svc")
  .description(
    "A durable inbox and outbox relay: takes messages in over HTTP and brokers into your database, and delivers what is in the\n" +
      "outbox to HTTP and brokers, at least once and in order per key.",
  )
  .version(VERSION, "-V, --version", "print the version")
  .argument(
    "[roles...]",
    "ingest, relay, poller, retention, capture, admin; none means every role the configuration enables",
  )
  .option("-c, --config <file>", "configuration file; wins over SVC_CONFIG_FILE and /etc/svc/svc.yml")
  .option("--cells <names>", "with database.cells: the cells in which this process works, with commas between them")
  .option("--once", "with the role retention: clean up once and exit")
  .addHelpText(
    "after",
    `
Examples:
  svc dev                               try it: embedded PostgreSQL, sample configuration, a receiver that prints
  svc --config svc.yml                  run everything the configuration enables in one process
  svc ingest relay --config svc.yml     take messages in here ...
  svc poller --config svc.yml           ... and deliver them from there; add replicas of either as you need
  svc capture poller                    deliver as soon as the database's log shows an insert: docs/capture.md
  svc retention --once                  one cleaning pass, for a scheduler
  svc replay --topic orders --dry-run   which finished rows would be delivered again
  svc destinations list                 which are paused, what waits for them
  svc console sign-in                   a one-time code for the console
  svc parked list                       which rows failed for good and wait for a decision
  svc status                            the whole installation at a glance
  svc trace order-4711                  where is this message, and why does it wait
  svc cells of order-4711               with several cells: which one has the messages of a key
  svc migrate                           apply the schema migrations and exit
  svc config check --strict             is this configuration valid? every problem at once
  svc config print                      what is in effect, and the origin of each value
  svc explain topic orders.created      the destinations of a message, and why
  svc transform test --help             what a transform makes of a payload

Variables set keys too: SVC_OUTBOX_POLLINTERVALMS=50 sets outbox.pollIntervalMs. LOG_LEVEL sets the log level.
Signals: SIGTERM and SIGINT stop in order; a second one ends the process at once.
Exit codes: 0 clean stop, 2 configuration or usage error, 1 anything else.`,
  )
  .showHelpAfterError("(svc --help shows how it is used)")
  .enablePositionalOptions()
  .exitOverride()
  .action(async (roles: string[], options: Options) => {
    await run({ ...options, env, file: options.config, roles }, start);
  });

program
  .command("migrate")
  .description("apply the bundled schema migrations, check the tables, and exit")
  .option("-c, --config <file>", "configuration file")
  .addHelpText(
    "after",
    `
Runs under a database lock, so any number of replicas may run it at once. Use it as a separate step if the service
runs with database.migrate: false, for example because its user may not create tables.`,
  )
  .action(action(({ config }) => migrate(config, io)));

program
  .command("dev")
  .description(
    "run everything on this machine: embedded PostgreSQL in .svc/, sample svc.yml, and a receiver that prints deliveries",
  )
  .option("-c, --config <file>", "configuration file, made when it is not there (default: svc.yml)")
  .action(
    action(async ({ config: file }) => {
      const { dev } = await import("../src/cli/dev.ts");
      await dev({ start, env, file, directory: process.cwd(), print: (line) => process.stdout.write(`${line}\n`) });
    }),
  );

addConfigCommands(program, io);
addTransformCommand(program, io);
addExplainCommand(program, io);
addReplayCommand(program, io);
addDestinationCommands(program, io);
addParkedCommands(program, io);
addTraceCommand(program, io);
addTailCommand(program, io);
addConsoleCommand(program, io);
addStatusCommands(program, io);
addCellCommands(program, io);

try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = exitCodeOf(error);
}

function exitCodeOf(error: unknown): number {
  // Help and version end this way too, with code 0; commander has printed its message.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
  if (error instanceof StoppingError) return 0;
  process.stderr.write(`svc: ${lastWords(error)}\n`);
  return error instanceof ConfigError ? EXIT_USAGE : EXIT_FAILURE;
}
