import type { Command } from "commander";
import { createRowChanges } from "../../roles/finishedRows.ts";
import { leftText } from "../core/finished/leftRows.ts";
import { type Parked, type ParkedChanged, parkedRowShown } from "../core/finished/parked.ts";
import {
  MOST_LISTED,
  type ParkedSelection,
  parseMessageId,
  parsePattern,
  parseReason,
  parseText,
  saysWhichRows,
} from "../core/finished/requests.ts";
import { splitSequence } from "../model/cellPositions.ts";
import type { MessageId } from "../model/rows.ts";
import type { ParkedRow } from "../ports/store.ts";
import { type DatabaseTools, type DatabaseWork, databaseAction } from "./database.ts";
import {
  type Columns,
  type CommandIo,
  cellColumn,
  doneText,
  FILE_OPTION,
  numberOption,
  operator,
  optionParser,
  plainText,
  repeatedOption,
  textTable,
  usageError,
} from "./io.ts";

interface ParkedCommandOptions extends ParkedSelection {
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
    .description("rows that failed for good and hold back their keys until an operator decides (onExhausted: park)")
    .addHelpText("after", EXAMPLES);

  selecting(parked.command("list").description("show parked rows in the order of delivery, without payloads"))
    .option("--limit <n>", "most rows to show", numberOption(1, MOST_LISTED), 50)
    .option("--json", "one JSON object per line, for programs")
    .action(databaseAction(io, (options: ParkedCommandOptions) => withParked(listed(options))));

  changing(
    parked.command("retry").description("retry the rows at once, with attempt 0; later rows of their keys follow"),
  ).action(
    databaseAction(io, (options: ParkedCommandOptions, command) => {
      const selection = requireSelection(command, options);
      return withParked(async (rows, { signal }) =>
        changedText(await rows.retry(selection, operator(), signal), "due again"),
      );
    }),
  );

  changing(parked.command("discard").description("make the rows dead; the next rows of their keys are delivered"))
    .requiredOption("--reason <text>", "why; kept in the row's last_error", optionParser(parseReason))
    .action(
      databaseAction(io, (options: ParkedCommandOptions, command) => {
        const selection = requireSelection(command, options);
        const { reason = "" } = options;
        return withParked(async (rows, { signal }) =>
          changedText(await rows.discard(selection, operator(), reason, signal), "dead"),
        );
      }),
    );
}

const EXAMPLES = `
A retried row that fails for good is parked again. Ctrl-C stops retry and discard between two batches; rows that were
changed stay changed.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else.

Examples:
  svc parked list --topic 'orders.**'
  svc parked retry --all                                             the receiver is back
  svc parked discard --id 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f --reason 'order was cancelled'`;

function selecting(command: Command): Command {
  return command
    .option(...FILE_OPTION)
    .option(
      "--topic <pattern>",
      "only rows whose topic matches, as in routes: 'orders.*', 'orders.**'",
      optionParser(parsePattern),
    )
    .option("--key <key>", "only the row of this key", optionParser(parseText));
}

function changing(command: Command): Command {
  return selecting(command)
    .option("--id <uuid>", "only this row; may be repeated", repeatedOption(parseMessageId))
    .option("--all", "every parked row");
}

function requireSelection(command: Command, { id: ids, topic, key, all }: ParkedCommandOptions): ParkedSelection {
  const selection = { ids, topic, key };
  if (saysWhichRows(selection, all)) return selection;
  const which = "--id, --topic or --key, or --all for every parked row, which goes with none of them";
  return usageError(command, `say which rows: ${which}`);
}

const listed = ({ topic, key, limit = 50, json = false }: ParkedCommandOptions) =>
  async function list(parked: Parked, { show }: DatabaseTools): Promise<string> {
    // One more than is shown tells whether there are more.
    const found = show(await parked.list({ topic, key }, limit + 1));
    const rows = found.slice(0, limit);
    if (json) return rows.map((row) => `${JSON.stringify(parkedRowShown(row))}\n`).join("");
    if (rows.length === 0) return "no parked row matches\n";
    const more = found.length > limit ? `the first ${limit}; --limit shows more\n` : "";
    return `${textTable(rows, [...cellColumn(rows), ...COLUMNS])}${more}`;
  };

/** Works on the parked rows. A signal ends it between two batches, with exit code 1. */
function withParked(use: (parked: Parked, tools: DatabaseTools) => Promise<string>): DatabaseWork {
  return {
    endsOnSignal: true,
    async work(tools) {
      await tools.store.schema.checkColumns(["outbox", "history"]);
      return use(createRowChanges(tools).parked, tools);
    },
  };
}

function changedText({ changed, ...left }: ParkedChanged, what: string): string {
  return doneText(`${changed === 1 ? "1 row is" : `${changed} rows are`} ${what}`, changed, leftText(left));
}

const COLUMNS: Columns<ParkedRow> = [
  ["id", (row) => row.id],
  ["sequence", (row) => splitSequence(row.sequence).sequence],
  ["topic", (row) => plainText(row.topic ?? "", 40)],
  ["key", (row) => plainText(row.key ?? "", 40)],
  ["attempts", (row) => String(row.attempt)],
  ["parked", (row) => row.parkedAt?.toISOString() ?? ""],
  ["last error", (row) => plainText(row.lastError ?? "", 80)],
];
