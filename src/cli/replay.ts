import type { Command } from "commander";
import { createReplay } from "../../roles/finishedRows.ts";
import {
  hasFilter,
  NO_FILTER,
  parseFinishedState,
  parseInstant,
  parseMessageId,
  parseText,
  type ReplayRequest,
} from "../core/finished/requests.ts";
import type { MessageId } from "../model/rows.ts";
import type { FinishedRow, FinishedState } from "../ports/finishedRows.ts";
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

interface ReplayOptions {
  readonly config?: string;
  readonly state?: FinishedState;
  readonly id?: readonly MessageId[];
  readonly topic?: readonly string[];
  readonly destination?: string;
  readonly createdAfter?: string;
  readonly createdBefore?: string;
  readonly dryRun?: boolean;
}

/** Adds `replay`. @param program the command to add it to; a `--config` option of its own counts too */
export function addReplayCommand(program: Command, io: CommandIo): void {
  program
    .command("replay")
    .description("deliver finished rows again: moves sent and dead outbox rows that match every filter back to pending")
    .option(...FILE_OPTION)
    .option("--state <state>", "only rows in this state: sent or dead", optionParser(parseFinishedState))
    .option("--id <uuid>", "only this row; may be repeated", repeatedOption(parseMessageId))
    .option("--topic <topic>", "only rows with this topic; may be repeated", repeatedOption(parseText))
    .option(
      "--destination <name>",
      "only rows whose topic the routes send to this destination",
      optionParser(parseText),
    )
    .option(
      "--created-after <instant>",
      "only rows created after, such as 2026-01-05T08:30:00Z",
      optionParser((text) => parseInstant(text, "after")),
    )
    .option(
      "--created-before <instant>",
      "only rows created before",
      optionParser((text) => parseInstant(text, "before")),
    )
    .option("--dry-run", "count the rows and show some of them; change nothing")
    .addHelpText("after", EXAMPLES)
    .action(async (_options: ReplayOptions, command: Command) => {
      const options = command.optsWithGlobals<ReplayOptions>();
      const { state, id: ids, topic: topics, destination, createdAfter, createdBefore } = options;
      const request: ReplayRequest = { state, ids, topics, destination, createdAfter, createdBefore };
      if (!hasFilter(request)) usageError(command, `${NO_FILTER} ${FILTERS}`);
      await replay(options, request, io);
    });
}

const FILTERS = "The filters are --state, --id, --topic, --destination, --created-after and --created-before.";

const EXAMPLES = `
The rows keep their id, and are delivered before everything created later, in order per key. Make the dry run first:
without --state dead, sent rows match as well. A long replay goes no faster than the pollers deliver. Ctrl-C stops it
between two batches; rows that were moved stay moved. The same command again moves the rest and, without --state dead,
the rows delivered since.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else.

Examples:
  svc replay --state dead --destination billing --dry-run            what would be delivered again?
  svc replay --destination billing --created-after 2026-01-05T08:00:00Z --created-before 2026-01-05T09:30:00Z
  svc replay --id 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f               this one row`;

/** Moves the rows or, in a dry run, shows them. A signal ends it between two batches, with exit code 1. */
async function replay(
  { config: file, dryRun = false }: ReplayOptions,
  request: ReplayRequest,
  io: CommandIo,
): Promise<void> {
  const { onDatabase, requireDestination } = await import("./database.ts");
  const { destination } = request;
  await onDatabase(io, {
    file,
    check: (config) => destination !== undefined && requireDestination(config, destination, "--destination"),
    endsOnSignal: true,
    async work({ config, store, audit, log, signal }) {
      await store.schema.checkColumns(["outbox", "history"]);
      const rows = createReplay({ config, store, audit, log });
      if (!dryRun) return `${rowsOf((await rows.run(request, operator(), signal)).moved)} moved to pending\n`;
      const { count, sample } = await rows.preview(request, SAMPLE_SIZE, signal);
      const shown = sample.length < count ? `; the first ${sample.length} of them:` : "";
      return `${rowsOf(count)} would be moved to pending${shown}\n${textTable(sample, COLUMNS)}`;
    },
  });
}

const SAMPLE_SIZE = 10;

function rowsOf(count: number): string {
  return count === 1 ? "1 row" : `${count} rows`;
}

const COLUMNS: Columns<FinishedRow> = [
  ["id", (row) => row.id],
  ["topic", (row) => plainText(row.topic ?? "", 40)],
  ["key", (row) => plainText(row.key ?? "", 40)],
  ["state", (row) => row.state],
  ["attempt", (row) => String(row.attempt)],
  ["created", (row) => row.createdAt?.toISOString() ?? ""],
  ["last error", (row) => plainText(row.lastError ?? "", 80)],
];
