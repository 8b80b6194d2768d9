import type { Command } from "commander";
import { loadConfig } from "../config/load.ts";
import { TransformError } from "../model/errors.ts";
import { escapeControls, escapeUnseen } from "../model/text.ts";
import type { Evaluator } from "../ports/evaluator.ts";
import { EvaluatorPool } from "../runtime/evaluation/pool.ts";
import { EVALUATOR_SCRIPT } from "../setup/transforms.ts";
import { type AddCommands, action, type CommandIo, optionParser, readInput, repeatedOption, usageError } from "./io.ts";
import { type Trial, TrialError, type TrialInput, trialOfConfigured, trialOfExpression } from "./trial.ts";

type Evaluates = Pick<Evaluator, "evaluate">;

interface TestOptions extends Omit<TrialInput, "payload"> {
  readonly expression?: string;
  readonly expressionFile?: string;
  readonly of?: string;
  /** A file. */
  readonly payload?: string;
  readonly config?: string;
}

const EXIT_FAILED = 1;
/** As in the service. */
const MEMORY_LIMIT_MB = 256;

export const addTransformCommand: AddCommands = (program, io) => {
  const transform = program.command("transform").description("try transforms");
  transform.addHelpText("after", EXAMPLES);
  transform
    .command("test")
    .description("evaluate a transform on a payload as the service would, and print the result; needs no database")
    .option("--expression <text>", "JSONata expression")
    .option("--expression-file <file>", "file with the expression; - is standard input")
    .option(
      "--of <key path>",
      "a configured transform: destinations.orders, routes[0], routes[1].destinations[0], sources.github; or condition: routes[1].destinations[0].when",
    )
    .option("--payload <file>", "file with the payload, which is JSON; - is standard input (default: the payload null)")
    .option("--topic <topic>", "value of $topic (default: test.topic; of a source: its event type)")
    .option("--source <name>", "value of $source")
    .option(
      "--header <header>",
      'a received header, such as "X-Tenant: blue"; may be repeated',
      repeatedOption(parseHeader),
    )
    .option("--attempt <n>", "value of $attempt (default: 0)", optionParser(wholeNumberFrom(0)))
    .option(
      "--timeout-ms <ms>",
      "longest evaluation (default: that of the transform, else 100)",
      optionParser(wholeNumberFrom(1)),
    )
    .option("-c, --config <file>", "configuration file for --of (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)")
    .addHelpText("after", EXAMPLES)
    .action(
      action(async (options: TestOptions, command) => {
        const evaluator = new EvaluatorPool({ script: EVALUATOR_SCRIPT, workers: 1, memoryLimitMb: MEMORY_LIMIT_MB });
        try {
          await evaluate(await trialOf(options, command, io, evaluator), evaluator, io);
        } finally {
          await evaluator.close();
        }
      }),
    );
};

async function evaluate(
  { evaluation, onError, isCondition = false }: Trial,
  evaluator: Evaluates,
  io: CommandIo,
): Promise<void> {
  try {
    const result = await evaluator.evaluate(evaluation);
    io.stdout.write(`${escapeUnseen(JSON.stringify(JSON.parse(result), null, 2))}\n`);
  } catch (error) {
    if (!(error instanceof TransformError)) throw error;
    io.stderr.write(`svc: the ${isCondition ? "condition" : "transform"} failed: ${escapeControls(error.message)}\n`);
    if (onError !== null && !isCondition) io.stderr.write(`With onError ${onError}, ${CONSEQUENCES[onError]}.\n`);
    io.setExitCode(EXIT_FAILED);
  }
}

const CONSEQUENCES = {
  Fail: "a delivery fails and is tried again; a receipt is refused",
  Skip: "the input is used unchanged",
  Dead: "the row is dead at once; a receipt is refused",
} as const;

/** @throws CommanderError for options that contradict each other, ConfigError if `--of` needs a valid configuration */
async function trialOf(options: TestOptions, command: Command, io: CommandIo, evaluator: Evaluates): Promise<Trial> {
  const { expression, expressionFile, of: keyPath, payload } = options;
  if ([expression, expressionFile, keyPath].filter((given) => given !== undefined).length !== 1) {
    usageError(command, "give exactly one of --expression, --expression-file and --of");
  }
  if (expressionFile === "-" && payload === "-") {
    usageError(command, "only one of --expression-file and --payload can be standard input");
  }
  const json = payload === undefined ? "null" : await readInput(command, "--payload", payload, io);
  const input: TrialInput = { ...options, payload: json };
  const now = new Date();
  if (keyPath === undefined) {
    const text = expression ?? (await readInput(command, "--expression-file", expressionFile ?? "-", io));
    return trialOfExpression(text, input, now);
  }
  const onFailure = (key: string, code: string) => {
    io.stderr.write(`svc: ${key} failed (${code}) and gives no value\n`);
  };
  const { config } = loadConfig({ env: io.env, file: options.config, readFile: io.readFile });
  try {
    return await trialOfConfigured(keyPath, config, input, now, { evaluator, onFailure });
  } catch (error) {
    if (error instanceof TrialError) usageError(command, error.message);
    throw error;
  }
}

function parseHeader(header: string): readonly [string, string] {
  const [, name, value] = /^([^\s:]+):(.*)$/s.exec(header) ?? [];
  if (name === undefined || value === undefined) throw new Error('expected "Name: value"');
  return [name, value.trim()];
}

function wholeNumberFrom(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= least) return value;
    throw new Error(`expected a whole number of at least ${least}`);
  };
}

const EXAMPLES = `
Exit codes: 0 the expression ran, 1 it failed, 2 wrong usage or configuration.

Examples:
  svc transform test --expression '{"id": id, "total": $sum(lines.price)}' --payload order.json
  svc transform test --expression-file order.jsonata --payload order.json --topic order.created
  svc transform test --of destinations.billing --payload order.json --config svc.yml
  svc transform test --of sources.orders --payload order.json --header "X-Tenant: blue"`;
