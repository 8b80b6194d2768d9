import { requireName } from "../config/kinds.ts";
import { othersText } from "../core/operations/replay.ts";
import type { JobRun, JobShown, ReplayJobs } from "../core/operations/replayJobs.ts";
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
import { withoutTable } from "../model/errors.ts";
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
  readonly perSecond?: number;
  readonly resume?: string;
  readonly jobs?: boolean;
}

/** Adds `replay`. */
export const addReplayCommand: AddCommands = (program, io) => {
  program
    .command("replay")
    .description("deliver finished rows again: moves sent and dead outbox rows that match every filter back to pending")
    .option(...FILE_OPTION)
    .option("--inbox", "receive dead inbox rows again, instead; goes with --state, --id, --source and the two instants")
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
    .option("--to <name>", "deliver them to this destination from now on", optionParser(STORABLE.parse))
    .option(
      "--add <name>",
      "deliver matching messages to this destination of their list, too, unless they have gone there; with --id, --topic and the two instants",
      optionParser(STORABLE.parse),
    )
    .option("--dry-run", "count the rows and show some of them; change nothing")
    .option("--per-second <count>", "most rows in a second", optionParser(numberUpTo(MOST_PER_SECOND).parse))
    .option(
      "--resume <id>",
      "resume an interrupted or failed replay, or one whose process is gone",
      optionParser(MESSAGE_ID.parse),
    )
    .option("--jobs", "list the replays, newest first")
    .addHelpText("after", EXAMPLES)
    .action(
      databaseAction(io, (options: ReplayOptions, command) => {
        const { id: ids, topic: topics, to: toDestination, add, perSecond } = options;
        const { inbox, source, state, reason, createdAfter, createdBefore } = options;
        const destination = options.destination === false ? null : options.destination;
        const where = { inbox, source, state, ids, topics, destination, reason };
        const request = { ...where, createdAfter, createdBefore, toDestination, add };
        if (options.jobs === true)
          return withJobs(async ({ jobs, show }) => {
            return textTable(show(await jobs.list(MOST_JOBS)), JOB_COLUMNS);
          });
        if (options.resume !== undefined) return resumeJob(options.resume, io);
        if (!hasFilter(request)) usageError(command, `${NO_FILTER} ${FILTERS}`);
        const problem = misfit({ ...request, perSecond });
        if (problem !== undefined) usageError(command, problem);
        return replayRows(request, options, io);
      }),
    );
};

const FILTERS =
  "The filters are --state, --id, --topic, --destination, --reason, --created-after and --created-before; with --inbox also --source.";

const EXAMPLES = `
The rows keep their id, and are delivered before everything created later, in order per key. Make the dry run first:
without --state dead, sent rows match as well. A long replay goes no faster than the pollers deliver, and no faster than
--per-second. With --to the rows go to that destination from now on, also in later replays. Ctrl-C stops it between two
batches, and prints the command that resumes it; rows that were moved stay moved.

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
    ...withJobs(async ({ jobs, replay, show, signal }) => {
      if (dryRun) return previewText(show(await replay.preview(request, SAMPLE_SIZE, signal)), doneTo(request));
      if (!inbox)
        return await execute(jobs, await jobs.start(request, operator(), perSecond ?? null, signal), signal, io);
      const { moved, refusal } = await replay.run(request, operator(), signal);
      return movedText(moved, refusal && othersText(refusal), request);
    }),
    check({ destinations }) {
      const names = Object.keys(destinations);
      if (typeof destination === "string") requireName("destination", destination, names, "--destination");
      if (toDestination !== undefined) requireName("destination", toDestination, names, "--to");
      if (add !== undefined) requireName("destination", add, names, "--add");
    },
    ...(inbox && { tables: ["inbox", ...TABLES] }),
  };
}

/** Runs a job again, behind its position; a process that still runs it stops. */
function resumeJob(id: string, io: CommandIo): DatabaseWork {
  return withJobs(async ({ jobs, signal }) => {
    const run = await jobs.resume(id, operator());
    if (run !== undefined) return await execute(jobs, run, signal, io);
    const job = await jobs.get(id);
    if (job === undefined) throw new Error(`there is no replay ${id}: svc replay --jobs lists them`);
    throw new Error(`the replay ${id} is ${job.state}: only a running, interrupted or failed one can be resumed`);
  });
}

const TABLES = ["outbox", "history"] as const;

function withJobs(work: DatabaseWork["work"]): DatabaseWork {
  return {
    endsOnSignal: true,
    tables: TABLES,
    work: (tools) =>
      work(tools).catch((error: unknown) => {
        withoutTable(error);
        const table = `${tools.config.database.operationsTablePrefix}job`;
        throw new Error(`the table ${table} cannot be used: see docs/status.md, "Tables"`, { cause: error });
      }),
  };
}

/** @throws Error with the command that resumes the job, when the signal aborts or the database fails */
async function execute(jobs: ReplayJobs, run: JobRun, signal: AbortSignal, io: CommandIo): Promise<string> {
  const { id } = run;
  const resumes = `svc replay --resume ${id} resumes it`;
  const job = await jobs.execute(run, signal, showing(io.stderr)).catch((error: unknown) => {
    throw new Error(`the replay ended early: ${resumes}`, { cause: error });
  });
  const { state = "gone", moved = 0, lastError = null, filter = {} } = job ?? {};
  if (state === "done") return movedText(moved, lastError ?? undefined, filter as ReplayRequest);
  if (state === "interrupted") {
    const were = `${moved} ${moved === 1 ? "row was" : "rows were"}`;
    throw new Error(`the replay ended early, after ${were} moved: ${resumes}`);
  }
  const what = state === "running" ? "resumed by another process" : state;
  throw new Error(`the replay ${id} is ${what} after ${rowsOf(moved)}`);
}

/** @returns shows the progress on a stream: a line now and then, which a terminal overwrites */
function showing(stream: CommandIo["stderr"]): (moved: number, total: number | null) => void {
  let shownAt = performance.now();
  return (moved, total) => {
    const now = performance.now();
    if (now - shownAt < (stream.isTTY === true ? REDRAWN_MS : LINE_MS)) return;
    shownAt = now;
    const of = total === null ? "" : ` of ${total}`;
    stream.write(`${moved}${of} rows moved${stream.isTTY === true ? "  \r" : "\n"}`);
  };
}

const REDRAWN_MS = 200;
const LINE_MS = 10_000;
const MOST_JOBS = 50;

const doneTo = ({ add }: Pick<ReplayRequest, "add">): string => (add === undefined ? "moved to pending" : "added");

function movedText(moved: number, left: string | undefined, request: Pick<ReplayRequest, "add">): string {
  return doneText(`${rowsOf(moved)} ${doneTo(request)}`, moved, left);
}

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

const JOB_COLUMNS: Columns<JobShown> = [
  ["id", ({ id }) => id],
  ["state", ({ state }) => state],
  ["moved", ({ moved, total }) => (total === null ? String(moved) : `${moved} of ${total}`)],
  ["by", ({ by }) => plainText(by, 40)],
  ["started", ({ createdAt }) => createdAt?.toISOString() ?? ""],
  ["last progress", ({ updatedAt }) => updatedAt?.toISOString() ?? ""],
  ["filter", ({ filter }) => plainText(JSON.stringify(filter), 80)],
  ["last error", ({ lastError }) => plainText(lastError ?? "", 80)],
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
