import { openSourcesNotice } from "../config/checks/entries.ts";
import { jsonSchema } from "../config/jsonSchema.ts";
import { type Inspection, inspectConfig } from "../config/load.ts";
import { printConfig } from "../config/print.ts";
import type { ConfigProblem } from "../model/errors.ts";
import { type AddCommands, action, type CommandIo, FILE_OPTION } from "./io.ts";

const EXIT_CONFIGURATION = 2;

interface ConfigOptions {
  readonly config?: string;
  readonly strict?: boolean;
}

export const addConfigCommands: AddCommands = (program, io) => {
  const config = program.command("config").description("check, show and document the configuration");
  config.addHelpText("after", EXAMPLES);

  config
    .command("check")
    .description("check the configuration without starting anything; lists every problem at once, exit code 2")
    .option(...FILE_OPTION)
    .option(
      "--strict",
      "make warnings errors: unknown keys and variables, settings without effect; notices stay notices",
    )
    .addHelpText("after", CHECK_EXAMPLES)
    .action(action((options: ConfigOptions) => check(options, io)));

  config
    .command("print")
    .description("show the configuration in effect as YAML, secrets masked, with the origin of each value")
    .option(...FILE_OPTION)
    .addHelpText("after", PRINT_EXAMPLES)
    .action(action((options: ConfigOptions) => print(options, io)));

  config
    .command("schema")
    .description("print the JSON Schema of the configuration file, for editors")
    .addHelpText("after", SCHEMA_EXAMPLES)
    .action(() => {
      io.stdout.write(`${JSON.stringify(jsonSchema(), null, 2)}\n`);
    });
};

function check(options: ConfigOptions, io: CommandIo): void {
  const { loaded, warnings, source } = inspect(options, io);
  if (loaded === undefined) return;
  io.stdout.write(`configuration is valid (${source})\n`);
  io.stdout.write(listed("warning", warnings));
  const notice = openSourcesNotice(loaded.config);
  if (notice !== undefined) io.stdout.write(listed("notice", [notice]));
}

function print(options: ConfigOptions, io: CommandIo): void {
  const { loaded, warnings } = inspect(options, io);
  if (loaded === undefined) return;
  io.stdout.write(printConfig(loaded));
  io.stderr.write(listed("warning", warnings));
}

/** Writes the problems with the warnings that may explain them. */
function inspect({ config: file, strict }: ConfigOptions, io: CommandIo): Inspection {
  const inspection = inspectConfig({ env: io.env, file, strict, readFile: io.readFile });
  const { loaded, problems, warnings, source } = inspection;
  if (loaded === undefined) {
    const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
    io.stderr.write(`configuration is not valid (${source}): ${count}\n`);
    io.stderr.write(listed("error", problems) + listed("warning", warnings));
    io.setExitCode(EXIT_CONFIGURATION);
  }
  return inspection;
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
  svc config print                               every key with its value and its origin
  svc config print | grep SVC_                   only what variables have set`;

const SCHEMA_EXAMPLES = `
Examples:
  svc config schema > svc.schema.json
  then, as the first line of svc.yml:
    # yaml-language-server: $schema=svc.schema.json`;
