import type { Command } from "commander";
import { requireName } from "../config/kinds.ts";
import { MOST_LISTED, type ParkedSelection, parkedRowShown, saysWhichRows } from "../core/operations/parked.ts";
import { othersText } from "../core/operations/replay.ts";
import { MESSAGE_ID, numberUpTo, REASON, STORABLE, TOPIC_PATTERN } from "../core/operations/syntax.ts";
import { splitSequence } from "../model/cellPositions.ts";
import type { MessageId } from "../model/rows.ts";
import type { Changed } from "../ports/finishedRows.ts";
import type { ParkedRow } from "../ports/store.ts";
import { type DatabaseTools, type DatabaseWork, databaseAction } from "./database.ts";
import {
  type AddCommands,
  type Columns,
  cellColumn,
  doneText,
  FILE_OPTION,
  operator,
  optionParser,
  plainText,
  repeatedOption,
  textTable,
  usageError,
} from "./io.ts";

interface ParkedCommandOptions extends Pick<ParkedSelection, "topic" | "key"> {
  /** False with `--no-destination`. */
  readonly destination?: string | false;
  readonly lastError?: string;
  readonly id?: readonly MessageId[];
  readonly all?: boolean;
  readonly reason?: string;
  readonly limit?: number;
  readonly json?: boolean;
}

export const addParkedCommands: AddCommands = (program, io) => {
  const parked = program
    .command("parked")
    .description("rows that failed for good and hold back their keys until an operator decides (onExhausted: park)")
    .addHelpText("after", EXAMPLES);

  selecting(parked.command("list").description("show parked rows in the order of delivery, without payloads"))
    .option("--limit <n>", "most rows to show", optionParser(numberUpTo(MOST_LISTED).parse), 50)
    .option("--json", "one JSON object per line, for programs")
    .action(databaseAction(io, (options: ParkedCommandOptions) => onRows(options, listing(options))));

  changing(
    parked.command("retry").description("retry the rows at once, with attempt 0; later rows of their keys follow"),
  ).action(
    databaseAction(io, (options: ParkedCommandOptions, command) => {
      const selection = requireSelection(command, options);
      const work = async ({ parked, signal }: DatabaseTools) =>
        changedText(await parked.retry(selection, operator(), signal), "due again");
      return onRows(options, work);
    }),
  );

  changing(parked.command("discard").description("make the rows dead; the next rows of their keys are delivered"))
    .requiredOption("--reason <text>", "why; kept in the row's last_error", optionParser(REASON.parse))
    .action(
      databaseAction(io, (options: ParkedCommandOptions, command) => {
        const selection = requireSelection(command, options);
        const work = async ({ parked, signal }: DatabaseTools) =>
          changedText(await parked.discard(selection, operator(), options.reason ?? "", signal), "dead");
        return onRows(options, work);
      }),
    );
};

/** A signal ends it between two batches, with exit code 1. */
const onRows = ({ destination }: ParkedCommandOptions, work: DatabaseWork["work"]): DatabaseWork => ({
  check({ destinations }) {
    if (typeof destination === "string")
      requireName("destination", destination, Object.keys(destinations), "--destination");
  },
  endsOnSignal: true,
  tables: ["outbox", "history"],
  work,
});

const EXAMPLES = `
A retried row that fails for good is parked again. Ctrl-C stops retry and discard between two batches; rows that were
changed stay changed.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else.

Examples:
  svc parked list --topic 'orders.**'
  svc parked retry --destination billing                             the receiver is back
  svc parked list --last-error 'answered 404: no such customer cus_17'     one group of failures
  svc parked discard --id 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f --reason 'order was cancelled'`;

function selecting(command: Command): Command {
  return command
    .option(...FILE_OPTION)
    .option(
      "--topic <pattern>",
      "only rows whose topic matches, as in routes: 'orders.*', 'orders.**'",
      optionParser(TOPIC_PATTERN.parse),
    )
    .option("--key <key>", "only the row of this key", optionParser(STORABLE.parse))
    .option("--destination <name>", "only rows that go to this destination", optionParser(STORABLE.parse))
    .option("--no-destination", "only rows that no route sends anywhere")
    .option("--last-error <text>", "only rows that failed for this reason, but for numbers and ids in it");
}

function changing(command: Command): Command {
  return selecting(command)
    .option("--id <uuid>", "only this row; may be repeated", repeatedOption(MESSAGE_ID.parse))
    .option("--all", "every parked row");
}

const selectionOf = ({ id: ids, topic, key, destination, lastError }: ParkedCommandOptions): ParkedSelection => ({
  ...{ ids, topic, key, reason: lastError },
  destination: destination === false ? null : destination,
});

function requireSelection(command: Command, options: ParkedCommandOptions): ParkedSelection {
  const selection = selectionOf(options);
  if (saysWhichRows(selection, options.all)) return selection;
  const which = "--id, --topic, --key, --destination or --last-error, or --all alone for every parked row";
  return usageError(command, `say which rows: ${which}`);
}

const listing = ({ limit = 50, json = false, ...options }: ParkedCommandOptions) =>
  async function list({ parked, show }: DatabaseTools): Promise<string> {
    // One more than is shown tells whether there are more.
    const found = show(await parked.list(selectionOf(options), limit + 1));
    const rows = found.slice(0, limit);
    if (json) return rows.map((row) => `${JSON.stringify(parkedRowShown(row))}\n`).join("");
    if (rows.length === 0) return "no parked row matches\n";
    const more = found.length > limit ? `the first ${limit}; --limit shows more\n` : "";
    return `${textTable(rows, [...cellColumn(rows), ...COLUMNS])}${more}`;
  };

function changedText({ changed, refusal }: Changed, what: string): string {
  return doneText(
    `${changed === 1 ? "1 row is" : `${changed} rows are`} ${what}`,
    changed,
    refusal && othersText(refusal),
  );
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
