import type { Command } from "commander";
import { loadConfig } from "../config/load.ts";
import { escapeControls } from "../model/text.ts";
import type { CommandIo } from "./config.ts";
import { readInput } from "./io.ts";

interface ExplainOptions {
  readonly config?: string;
  readonly key?: string;
  readonly aggregateType?: string;
  readonly payload?: string;
  readonly state?: boolean;
}

const EXIT_NOT_DELIVERED = 1;

/**
 * Adds `explain topic`.
 *
 * @param program the command to add it to; a `--config` option of its own counts too
 */
export function addExplainCommand(program: Command, io: CommandIo): void {
  const explain = program.command("explain").description("say what the configuration does with a message");
  explain.addHelpText("after", EXAMPLES);
  explain
    .command("topic")
    .description(
      "say where a row with this topic goes: route, destination with its limits, transforms, address and key",
    )
    .argument("<name>", "topic of the outbox row")
    .option("-c, --config <file>", "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)")
    .option("--key <key>", "the row's key (default: none)")
    .option("--aggregate-type <type>", "the row's aggregate type (default: none)")
    .option(
      "--payload <file>",
      "file with the row's payload, for templates that take a field of it; - is standard input",
    )
    .option("--state", "ask the database how the destination is doing")
    .addHelpText("after", EXAMPLES)
    .action(async (name: string, _options: ExplainOptions, command: Command) => {
      const options = command.optsWithGlobals<ExplainOptions>();
      const readFile = io.readFile === undefined ? {} : { readFile: io.readFile };
      const { config } = loadConfig({ env: io.env, file: options.config, ...readFile });
      const { explainTopic } = await import("./explainTopic.ts");
      const { delivered, destination, lines } = explainTopic(config, {
        topic: name,
        key: options.key ?? null,
        aggregateType: options.aggregateType ?? null,
        payload: options.payload === undefined ? null : await readInput(command, "--payload", options.payload, io),
      });
      const state =
        options.state === true && destination !== undefined ? [await stateLine(options, destination, io)] : [];
      const width = Math.max(...lines.map(({ label }) => label.length));
      for (const { label, text } of [...lines, ...state])
        io.stdout.write(`${label.padEnd(width)}  ${escapeControls(text)}\n`);
      if (!delivered) io.setExitCode(EXIT_NOT_DELIVERED);
    });
}

async function stateLine(options: ExplainOptions, destination: string, io: CommandIo) {
  const { destinationState } = await import("./destinationActions.ts");
  return { label: "state", text: await destinationState(options.config, destination, io) };
}

const EXAMPLES = `
Without --state no database is asked. Exit code 1 when no route matches: such a row goes dead.

Examples:
  svc explain topic order.created --config svc.yml
  svc explain topic order.created --key c-1 --payload order.json    with what the address templates take
  svc explain topic order.created --state                           whether it is paused, what waits`;
