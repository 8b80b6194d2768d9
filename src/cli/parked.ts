import type { Command } from "commander";
import {
  type ParkedSelection,
  parseLimit,
  parseMessageId,
  parsePattern,
  parseReason,
  parseText,
  saysWhichRows,
} from "../core/finished/requests.ts";
import type { MessageId } from "../model/rows.ts";
import type { CommandIo } from "./config.ts";
import { optionParser, usageError } from "./io.ts";

interface ParkedCommandOptions extends ParkedSelection {
  readonly config?: string;
  readonly id?: readonly MessageId[];
  readonly all?: boolean;
  readonly reason?: string;
  readonly limit?: number;
  readonly json?: boolean;
}

/**
 * Adds `parked list`, `parked retry` and `parked discard`.
 *
 * @param program the command to add them to; a `--config` option of its own counts too
 */
export function addParkedCommands(program: Command, io: CommandIo): void {
  const parked = program
    .command("parked")
    .description("rows that failed for good and wait, first of their keys, for an operator (onExhausted: park)")
    .addHelpText("after", EXAMPLES);

  selecting(parked.command("list").description("show parked rows, in the order of delivery; never their payload"))
    .option("--limit <n>", "most rows to show", optionParser(parseLimit), 50)
    .option("--json", "one JSON object a line, for programs")
    .action(async (_options: ParkedCommandOptions, command: Command) => {
      const options = command.optsWithGlobals<ParkedCommandOptions>();
      const { listParked } = await import("./parkedRows.ts");
      const { limit = 50, json = false } = options;
      await listParked({ file: options.config, selection: selectionOf(options), limit, json }, io);
    });

  changing(
    parked.command("retry").description("try the rows again at once, with attempt 0; their keys go on behind them"),
  ).action(async (_options: ParkedCommandOptions, command: Command) => {
    const options = command.optsWithGlobals<ParkedCommandOptions>();
    requireSelection(command, options);
    const { retryParked } = await import("./parkedRows.ts");
    await retryParked({ file: options.config, selection: selectionOf(options) }, io);
  });

  changing(
    parked
      .command("discard")
      .description("give the rows up: they are dead, and the next rows of their keys are delivered"),
  )
    .requiredOption("--reason <text>", "why; kept in the row's last_error", optionParser(parseReason))
    .action(async (_options: ParkedCommandOptions, command: Command) => {
      const options = command.optsWithGlobals<ParkedCommandOptions>();
      requireSelection(command, options);
      const { discardParked } = await import("./parkedRows.ts");
      await discardParked({ file: options.config, selection: selectionOf(options), reason: options.reason ?? "" }, io);
    });
}

const EXAMPLES = `
A retried row that fails for good is parked again. Ctrl-C stops retry and discard between two batches: what was changed stays changed.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else.

Examples:
  svc parked list --topic 'orders.**'
  svc parked retry --all                                             the receiver is well again
  svc parked discard --id 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f --reason 'order was cancelled'`;

function selecting(command: Command): Command {
  return command
    .option("-c, --config <file>", "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)")
    .option(
      "--topic <pattern>",
      "only rows whose topic matches, as in routes: 'orders.*', 'orders.**'",
      optionParser(parsePattern),
    )
    .option("--key <key>", "only the row of this key", optionParser(parseText));
}

function changing(command: Command): Command {
  return selecting(command)
    .option(
      "--id <uuid>",
      "only this row; for several rows say it several times",
      (text, before?: readonly MessageId[]) => [...(before ?? []), optionParser(parseMessageId)(text)],
    )
    .option("--all", "every parked row");
}

function selectionOf({ id: ids, topic, key }: ParkedCommandOptions): ParkedSelection {
  return { ids, topic, key };
}

function requireSelection(command: Command, options: ParkedCommandOptions): void {
  if (!saysWhichRows(selectionOf(options), options.all)) {
    usageError(
      command,
      "say which rows: --id, --topic or --key, or --all for every parked row, which goes with none of them",
    );
  }
}
