import type { Command } from "commander";
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
import type { FinishedState } from "../ports/finishedRows.ts";
import type { CommandIo } from "./config.ts";
import { optionParser, usageError } from "./io.ts";

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

/**
 * Adds `replay`.
 *
 * @param program the command to add it to; a `--config` option of its own counts too
 */
export function addReplayCommand(program: Command, io: CommandIo): void {
  program
    .command("replay")
    .description("deliver finished rows again: moves sent and dead outbox rows that match every filter back to pending")
    .option("-c, --config <file>", "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)")
    .option("--state <state>", "only rows in this state: sent or dead", optionParser(parseFinishedState))
    .option("--id <uuid>", "only this row; for several rows say it several times", each(parseMessageId))
    .option("--topic <topic>", "only rows with this topic; several topics likewise", each(parseText))
    .option(
      "--destination <name>",
      "only rows whose topic the routes send to this destination",
      optionParser(parseText),
    )
    .option(
      "--created-after <instant>",
      "only rows created after, such as 2026-01-05T08:30:00Z",
      optionParser(instant("after")),
    )
    .option("--created-before <instant>", "only rows created before", optionParser(instant("before")))
    .option("--dry-run", "count the rows and show some of them; change nothing")
    .addHelpText("after", EXAMPLES)
    .action(async (_options: ReplayOptions, command: Command) => {
      const options = command.optsWithGlobals<ReplayOptions>();
      const { state, id: ids, topic: topics, destination, createdAfter, createdBefore } = options;
      const request: ReplayRequest = { state, ids, topics, destination, createdAfter, createdBefore };
      if (!hasFilter(request)) usageError(command, `${NO_FILTER} ${FILTERS}`);
      const { replayRows } = await import("./replayRows.ts");
      await replayRows({ file: options.config, request, dryRun: options.dryRun ?? false }, io);
    });
}

const FILTERS = "The filters are --state, --id, --topic, --destination, --created-after and --created-before.";

const EXAMPLES = `
The rows keep their id, and come again before everything that was created later; those of one key in their order. Make the dry run first:
without --state dead, rows that were sent match as well. A long replay goes no faster than the pollers deliver. Ctrl-C stops it between two batches: what was
moved stays moved. The same command made again moves the rest, and without --state dead once more what has been delivered since.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else.

Examples:
  svc replay --state dead --destination billing --dry-run            what would go again?
  svc replay --destination billing --created-after 2026-01-05T08:00:00Z --created-before 2026-01-05T09:30:00Z
  svc replay --id 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f               this one row`;

function instant(bound: "after" | "before"): (text: string) => string {
  return (text) => parseInstant(text, bound);
}

/** An option that may be given several times. */
function each<T>(parse: (text: string) => T): (text: string, before: readonly T[] | undefined) => readonly T[] {
  return (text, before = []) => [...before, optionParser(parse)(text)];
}
