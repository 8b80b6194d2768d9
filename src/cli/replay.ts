import { requireName } from "../config/kinds.ts";
import { InterruptedError, othersText } from "../core/operations/replay.ts";
import {
  hasFilter,
  MOST_PER_SECOND,
  misfit,
  NO_FILTER,
  type ReplayPreview,
  type ReplayRequest,
} from "../core/operations/replayRequest.ts";
import type { FailedGroup } from "../core/operations/shown.ts";
import { FINISHED_STATE, instant, MESSAGE_ID, numberUpTo, STORABLE } from "../core/operations/syntax.ts";
import type { MessageId } from "../model/rows.ts";
import type { FinishedRow, FinishedState } from "../ports/finishedRows.ts";
import { type DatabaseWork, databaseAction } from "./database.ts";
import {
  type AddCommands,
  type Columns,
  type CommandIo,
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

interface ReplayOptions {
  readonly inbox?: boolean;
  readonly source?: string;
  readonly state?: FinishedState;
  readonly id?: readonly MessageId[];
  readonly topic?: readonly string[];
  /** False with `--no-destination`. */
  readonly destination?: string | false;
  readonly reason?: string;
  readonly to?: string;
  readonly add?: string;
  readonly createdAfter?: string;
  readonly createdBefore?: string;
  readonly dryRun?: boolean;
  readonly finishedBefore?: string;
  readonly perSecond?: number;
}

export const addReplayCommand: AddCommands = (program, io) => {
  program
    .command("replay")
    .description("deliver finished rows again: moves sent and dead outbox rows that match every filter back to pending")
    .option(...FILE_OPTION)
    .option("--inbox", "receive dead inbox rows again instead; takes --state, --id, --source and the two instants")
    .option("--source <name>", "only inbox rows of this source", optionParser(STORABLE.parse))
    .option("--state <state>", "only rows in this state: sent or dead", optionParser(FINISHED_STATE.parse))
    .option("--id <uuid>", "only this row; may be repeated", repeatedOption(MESSAGE_ID.parse))
    .option("--topic <topic>", "only rows with this topic; may be repeated", repeatedOption(STORABLE.parse))
    .option("--destination <name>", "only rows that go to this destination", optionParser(STORABLE.parse))
    .option("--no-destination", "only rows that no route sends anywhere")
    .option("--reason <text>", "only dead rows that failed for this reason, but for numbers and ids in it")
    .option(
      "--created-after <instant>",
      "only rows created after, such as 2026-01-05T08:30:00Z",
      optionParser(instant("after").parse),
    )
    .option("--created-before <instant>", "only rows created before", optionParser(instant("before").parse))
    .option(
      "--finished-before <instant>",
      "only rows that finished before: for the rest of a replay that ended early, the time that it printed",
      optionParser(instant("before").parse),
    )
    .option("--to <name>", "deliver them to this destination from now on", optionParser(STORABLE.parse))
    .option(
      "--add <name>",
      "deliver matching messages to this destination of their list, too, unless they have gone there; with --id, --topic and the two instants",
      optionParser(STORABLE.parse),
    )
    .option("--dry-run", "count the rows and show some of them; change nothing")
    .option("--per-second <count>", "most rows in a second", optionParser(numberUpTo(MOST_PER_SECOND).parse))
    .addHelpText("after", EXAMPLES)
    .action(
      databaseAction(io, (options: ReplayOptions, command) => {
        const { id: ids, topic: topics, to: toDestination, add } = options;
        const { inbox, source, state, reason, createdAfter, createdBefore, finishedBefore } = options;
        const destination = options.destination === false ? null : options.destination;
        const where = { inbox, source, state, ids, topics, destination, reason };
        const request = { ...where, createdAfter, createdBefore, finishedBefore, toDestination, add };
        if (!hasFilter(request)) usageError(command, `${NO_FILTER} ${FILTERS}`);
        const problem = misfit(request);
        if (problem !== undefined) usageError(command, problem);
        return replayRows(request, options, io);
      }),
    );
};

const FILTERS =
  "The filters are --state, --id, --topic, --destination, --reason, --created-after, --created-before and --finished-before; with --inbox also --source.";

const EXAMPLES = `
The rows keep their id, and are delivered before everything created later, in order per key. Make the dry run first:
without --state dead, sent rows match as well. A long replay goes no faster than the pollers deliver, and no faster than
--per-second. With --to the rows go to that destination from now on, also in later replays. Ctrl-C stops it between two
batches; rows that were moved stay moved. To move the rest, repeat it with the --finished-before that it prints.

With --add no row moves: each matching message of a route with a list of destinations gets a delivery to that one, if it
never had one. Add the destination to the list and restart the processes first.

With --inbox dead inbox rows pass the filter, attributes and transform of their source again and are relayed, or stay
dead with the new reason. Up to 50,000 rows, the oldest first: repeat it for the rest.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else.

Examples:
  svc replay --state dead --destination billing --dry-run            what would be delivered again?
  svc replay --destination billing --created-after 2026-01-05T08:00:00Z --created-before 2026-01-05T09:30:00Z
  svc replay --state dead --destination billing --to billing-standby  the same rows, to another destination
  svc replay --no-destination --reason 'no route matches the topic "orders.craeted"'   one group of failures
  svc replay --topic orders.created --add fraud                       what was sent before "fraud" was in the list
  svc replay --inbox --source github                                  dead inbox rows of one source
  svc replay --id 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f               this one row`;

/** Moves the rows or, in a dry run, shows them. A signal ends it between two batches, with exit code 1. */
function replayRows(request: ReplayRequest, { dryRun = false, perSecond }: ReplayOptions, io: CommandIo): DatabaseWork {
  const { destination, toDestination, add, inbox } = request;
  return {
    endsOnSignal: true,
    tables: ["outbox", "history", ...(inbox ? (["inbox"] as const) : [])],
    async work({ replay, show, signal }) {
      if (dryRun) return previewText(show(await replay.preview(request, SAMPLE_SIZE, signal)), doneTo(request));
      const pace = { perSecond, onProgress: showing(io.stderr) };
      const { moved, refusal } = await replay.run(request, operator(), signal, pace).catch((error: unknown) => {
        if (!(error instanceof InterruptedError)) throw error;
        const { message, cause, done, finishedBefore } = error;
        if (finishedBefore === undefined) throw done.moved === 0 ? cause : error;
        throw new Error(`${message}: repeat it with --finished-before ${finishedBefore} for the rest`, { cause });
      });
      return doneText(`${rowsOf(moved)} ${doneTo(request)}`, moved, refusal && othersText(refusal));
    },
    check({ destinations }) {
      const names = Object.keys(destinations);
      if (typeof destination === "string") requireName("destination", destination, names, "--destination");
      if (toDestination !== undefined) requireName("destination", toDestination, names, "--to");
      if (add !== undefined) requireName("destination", add, names, "--add");
    },
  };
}

/** @returns shows the progress on a stream: a line now and then, which a terminal overwrites */
function showing(stream: CommandIo["stderr"]): (moved: number) => void {
  let shownAt = performance.now();
  return (moved) => {
    const now = performance.now();
    if (now - shownAt < (stream.isTTY === true ? REDRAWN_MS : LINE_MS)) return;
    shownAt = now;
    stream.write(`${moved} rows moved${stream.isTTY === true ? "  \r" : "\n"}`);
  };
}

const REDRAWN_MS = 200;
const LINE_MS = 10_000;

const doneTo = ({ add }: Pick<ReplayRequest, "add">): string => (add === undefined ? "moved to pending" : "added");

function previewText({ count, sample, groups }: ReplayPreview, done: string): string {
  const shown = sample.length < count ? `; the first ${sample.length} of them:` : "";
  const table = textTable(sample, [...cellColumn(sample), ...COLUMNS]);
  return `${rowsOf(count)} would be ${done}${shown}\n${table}${count === 0 ? "" : `\n${textTable(groups, GROUPS)}`}`;
}

const GROUPS: Columns<FailedGroup> = [
  ["rows", ({ count }) => String(count)],
  ["destination", ({ destination }) => plainText(destination ?? "none", 40)],
  ["topic", ({ topic }) => plainText(topic ?? "", 40)],
  ["reason", ({ reason }) => plainText(reason ?? "", 120)],
];

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
