import type { Command } from "commander";
import { createParked } from "../../roles/finishedRows.ts";
import { type Parked, parkedRowShown } from "../core/finished/parked.ts";
import {
  type ParkedSelection,
  parseLimit,
  parseMessageId,
  parsePattern,
  parseReason,
  parseText,
  saysWhichRows,
} from "../core/finished/requests.ts";
import { createRedactor } from "../core/redaction/redact.ts";
import type { MessageId } from "../model/rows.ts";
import type { ParkedRow } from "../ports/store.ts";
import {
  type Columns,
  type CommandIo,
  FILE_OPTION,
  operator,
  optionParser,
  plainText,
  repeatedOption,
  textTable,
  usageError,
} from "./io.ts";

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
    .description("rows that failed for good and hold back their keys until an operator decides (onExhausted: park)")
    .addHelpText("after", EXAMPLES);

  selecting(parked.command("list").description("show parked rows in the order of delivery, without payloads"))
    .option("--limit <n>", "most rows to show", optionParser(parseLimit), 50)
    .option("--json", "one JSON object per line, for programs")
    .action(async (_options: ParkedCommandOptions, command: Command) => {
      const options = command.optsWithGlobals<ParkedCommandOptions>();
      const { limit = 50, json = false } = options;
      await withParked(options, io, async (parked) => {
        // One more than is shown tells whether there are more.
        const found = await parked.list(selectionOf(options), limit + 1);
        const rows = found.slice(0, limit);
        if (json) return rows.map((row) => `${JSON.stringify(parkedRowShown(row))}\n`).join("");
        if (rows.length === 0) return "no parked row matches\n";
        const more = found.length > limit ? `the first ${limit}; --limit shows more\n` : "";
        return `${textTable(rows, COLUMNS)}${more}`;
      });
    });

  changing(
    parked.command("retry").description("retry the rows at once, with attempt 0; later rows of their keys follow"),
  ).action(async (_options: ParkedCommandOptions, command: Command) => {
    const options = command.optsWithGlobals<ParkedCommandOptions>();
    requireSelection(command, options);
    await withParked(options, io, async (parked, signal) => {
      return `${rowsOf(await parked.retry(selectionOf(options), operator(), signal))} due again\n`;
    });
  });

  changing(parked.command("discard").description("make the rows dead; the next rows of their keys are delivered"))
    .requiredOption("--reason <text>", "why; kept in the row's last_error", optionParser(parseReason))
    .action(async (_options: ParkedCommandOptions, command: Command) => {
      const options = command.optsWithGlobals<ParkedCommandOptions>();
      requireSelection(command, options);
      const { reason = "" } = options;
      await withParked(options, io, async (parked, signal) => {
        return `${rowsOf(await parked.discard(selectionOf(options), operator(), reason, signal))} dead\n`;
      });
    });
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

/** Characters; far above what the options admit. */
const LONGEST_NOTE = 2000;

/** Works on the parked rows. A signal ends it between two batches, with exit code 1. */
async function withParked(
  { config: file }: ParkedCommandOptions,
  io: CommandIo,
  use: (parked: Parked, signal: AbortSignal) => Promise<string>,
): Promise<void> {
  const { onDatabase } = await import("./database.ts");
  await onDatabase(io, {
    file,
    endsOnSignal: true,
    async work({ store, secrets, audit, log, signal }) {
      await store.schema.checkColumns(["outbox", "history"]);
      return use(createParked({ store, redact: createRedactor(secrets, LONGEST_NOTE), audit, log }), signal);
    },
  });
}

function rowsOf(count: number): string {
  return count === 1 ? "1 row is" : `${count} rows are`;
}

const COLUMNS: Columns<ParkedRow> = [
  ["id", (row) => row.id],
  ["sequence", (row) => row.sequence],
  ["topic", (row) => plainText(row.topic ?? "", 40)],
  ["key", (row) => plainText(row.key ?? "", 40)],
  ["attempts", (row) => String(row.attempt)],
  ["parked", (row) => row.parkedAt?.toISOString() ?? ""],
  ["last error", (row) => plainText(row.lastError ?? "", 80)],
];
