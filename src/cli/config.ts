import type { Command } from "commander";
import type { Environment } from "../config/environment.ts";
import type { ReadFile } from "../config/file.ts";
import { jsonSchema } from "../config/jsonSchema.ts";
import { type Inspection, inspectConfig, type LoadedConfig } from "../config/load.ts";
import { openSourcesNotice } from "../config/openSources.ts";
import { printConfig } from "../config/print.ts";
import type { ConfigProblem } from "../model/errors.ts";

/** What the commands need of the process, so that a test can stand in for it. */
export interface CommandIo {
  readonly env: Environment;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
  /** Sets the code with which the process will end. */
  readonly setExitCode: (code: number) => void;
  /** Reads files; from the disk unless given. */
  readonly readFile?: ReadFile;
}

const EXIT_CONFIGURATION = 2;

interface ConfigOptions {
  readonly config?: string;
  readonly strict?: boolean;
}

/**
 * Adds `config check`, `config print` and `config schema`.
 *
 * @param program the command to add them to; a `--config` option of its own counts too
 */
export function addConfigCommands(program: Command, io: CommandIo): void {
  const config = program.command("config").description("check, show and document the configuration");
  config.addHelpText("after", EXAMPLES);
  const fileOption = [
    "--config <file>",
    "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)",
  ] as const;

  config
    .command("check")
    .description("check the configuration without starting anything; lists every problem at once, exit code 2")
    .option(...fileOption)
    .option(
      "--strict",
      "make warnings errors: unknown keys and variables, settings without effect; notices stay notices",
    )
    .addHelpText("after", CHECK_EXAMPLES)
    .action((_options: ConfigOptions, command: Command) => check(command.optsWithGlobals<ConfigOptions>(), io));

  config
    .command("print")
    .description("show the configuration in effect as YAML, secrets masked, with the origin of each value")
    .option(...fileOption)
    .addHelpText("after", PRINT_EXAMPLES)
    .action((_options: ConfigOptions, command: Command) => print(command.optsWithGlobals<ConfigOptions>(), io));

  config
    .command("schema")
    .description("print the JSON Schema of the configuration file, for editors")
    .addHelpText("after", SCHEMA_EXAMPLES)
    .action(() => {
      io.stdout.write(`${JSON.stringify(jsonSchema(), null, 2)}\n`);
    });
}

function check(options: ConfigOptions, io: CommandIo): void {
  const inspection = inspect(options, io);
  const loaded = reportProblems(inspection, io);
  if (loaded === undefined) return;
  io.stdout.write(`configuration is valid (${inspection.source})\n`);
  io.stdout.write(listed("warning", inspection.warnings));
  const notice = openSourcesNotice(loaded.config);
  if (notice !== undefined) io.stdout.write(listed("notice", [notice]));
}

function print(options: ConfigOptions, io: CommandIo): void {
  const inspection = inspect(options, io);
  const loaded = reportProblems(inspection, io);
  if (loaded === undefined) return;
  io.stdout.write(printConfig(loaded));
  io.stderr.write(listed("warning", inspection.warnings));
}

function inspect(options: ConfigOptions, io: CommandIo): Inspection {
  const readFile = io.readFile === undefined ? {} : { readFile: io.readFile };
  return inspectConfig({ env: io.env, file: options.config, strict: options.strict, ...readFile });
}

/** Writes the problems, if there are any, with the warnings that may explain them; gives the configuration if there are none. */
function reportProblems(inspection: Inspection, io: CommandIo): LoadedConfig | undefined {
  const { loaded, problems, warnings, source } = inspection;
  if (loaded !== undefined) return loaded;
  const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  io.stderr.write(`configuration is not valid (${source}): ${count}\n`);
  io.stderr.write(listed("error", problems) + listed("warning", warnings));
  io.setExitCode(EXIT_CONFIGURATION);
  return undefined;
}

function listed(level: string, problems: readonly ConfigProblem[]): string {
  return problems.map(({ path, message }) => `${level}: ${path}: ${message}\n`).join("");
}

const EXAMPLES = `
Values come from SVC_ variables, then the YAML file, then the defaults.

Examples:
  svc config check --config svc.yml              is this file right?
  SVC_OUTBOX_BATCHSIZE=500 svc config print      what would be in effect, and why?
  svc config schema > svc.schema.json            completion and checks in your editor`;

const CHECK_EXAMPLES = `
Examples:
  svc config check                               the configuration that svc would start with
  svc config check --config deploy/svc.yml       another file, with the variables of this shell
  svc config check --strict                      for a pipeline: a misspelt key fails too`;

const PRINT_EXAMPLES = `
Secrets show as Secret(***), and passwords inside URLs as ***.

Examples:
  svc config print                               every key with its value and where it came from
  svc config print | grep SVC_                   only what variables have set`;

const SCHEMA_EXAMPLES = `
Examples:
  svc config schema > svc.schema.json
  then, as the first line of svc.yml:
    # yaml-language-server: $schema=svc.schema.json`;
