import type { Command } from "commander";
import { createRowChanges } from "../../roles/finishedRows.ts";
import { everySource } from "../../roles/ingest.ts";
import { openTransforms } from "../../roles/transforms.ts";
import { leftText } from "../core/finished/leftRows.ts";
import type { Replay } from "../core/finished/replay.ts";
import type { JobRun, JobShown, ReplayJobs } from "../core/finished/replayJobs.ts";
import {
  hasFilter,
  MOST_PER_SECOND,
  misfit,
  NO_FILTER,
  parseFinishedState,
  parseInstant,
  parseMessageId,
  parseText,
  type ReplayPreview,
  type ReplayRequest,
} from "../core/finished/requests.ts";
import { Tally } from "../core/operations/heartbeat.ts";
import type { Show } from "../core/redaction/hidePayload.ts";
import { withoutTable } from "../model/errors.ts";
import type { MessageId } from "../model/rows.ts";
import type { FinishedRow, FinishedState } from "../ports/finishedRows.ts";
import { createMetrics } from "../runtime/metrics.ts";
import { type DatabaseTools, type DatabaseWork, databaseAction, requireDestination } from "./database.ts";
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

interface ReplayOptions {
  readonly inbox?: boolean;
  readonly source?: string;
  readonly state?: FinishedState;
  readonly id?: readonly MessageId[];
  readonly topic?: readonly string[];
  readonly destination?: string;
  readonly to?: string;
  readonly createdAfter?: string;
  readonly createdBefore?: string;
  readonly dryRun?: boolean;
  readonly perSecond?: number;
  readonly resume?: string;
  readonly jobs?: boolean;
}

/** Adds `replay`. @param program the command to add it to; a `--config` option of its own counts too */
export function addReplayCommand(program: Command, io: CommandIo): void {
  program
    .command("replay")
    .description("deliver finished rows again: moves sent and dead outbox rows that match every filter back to pending")
    .option(...FILE_OPTION)
    .option("--inbox", "receive dead inbox rows again, instead; goes with --state, --id, --source and the two instants")
    .option("--source <name>", "only inbox rows of this source", optionParser(parseText))
    .option("--state <state>", "only rows in this state: sent or dead", optionParser(parseFinishedState))
    .option("--id <uuid>", "only this row; may be repeated", repeatedOption(parseMessageId))
    .option("--topic <topic>", "only rows with this topic; may be repeated", repeatedOption(parseText))
    .option("--destination <name>", "only rows that go to this destination", optionParser(parseText))
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
    .option("--to <name>", "deliver them to this destination from now on", optionParser(parseText))
    .option("--dry-run", "count the rows and show some of them; change nothing")
    .option("--per-second <count>", "most rows in a second", numberOption(1, MOST_PER_SECOND))
    .option(
      "--resume <id>",
      "resume an interrupted or failed replay, or one whose process is gone",
      optionParser(parseMessageId),
    )
    .option("--jobs", "list the replays, newest first")
    .addHelpText("after", EXAMPLES)
    .action(
      databaseAction(io, (options: ReplayOptions, command) => {
        const { id: ids, topic: topics, to: toDestination, perSecond } = options;
        const { inbox, source, state, destination, createdAfter, createdBefore } = options;
        const where = { inbox, source, state, ids, topics, destination };
        const request = { ...where, createdAfter, createdBefore, toDestination };
        if (options.jobs === true)
          return withJobs(async ({ jobs, show }) => {
            const listed = show(await jobs.list(MOST_JOBS));
            return textTable(listed, [...cellColumn(listed), ...JOB_COLUMNS]);
          });
        if (options.resume !== undefined) return resumeJob(options.resume, io);
        if (!hasFilter(request)) usageError(command, `${NO_FILTER} ${FILTERS}`);
        const reason = misfit({ ...request, perSecond });
        if (reason !== undefined) usageError(command, reason);
        return replay(request, options, io);
      }),
    );
}

const FILTERS =
  "The filters are --state, --id, --topic, --destination, --created-after and --created-before; with --inbox also --source.";

const EXAMPLES = `
The rows keep their id, and are delivered before everything created later, in order per key. Make the dry run first:
without --state dead, sent rows match as well. A long replay goes no faster than the pollers deliver, and no faster than
--per-second. With --to the rows go to that destination from now on, also in later replays. Ctrl-C stops it between two
batches, and prints the command that resumes it; rows that were moved stay moved.

With --inbox dead inbox rows pass the filter, attributes and transform of their source again and are relayed, or stay
dead with the new reason. Up to 50,000 rows, the oldest first: repeat it for the rest.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else.

Examples:
  svc replay --state dead --destination billing --dry-run            what would be delivered again?
  svc replay --destination billing --created-after 2026-01-05T08:00:00Z --created-before 2026-01-05T09:30:00Z
  svc replay --state dead --destination billing --to billing-standby  the same rows, to another destination
  svc replay --inbox --source github                                  dead inbox rows of one source
  svc replay --id 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f               this one row`;

/** Moves the rows or, in a dry run, shows them. A signal ends it between two batches, with exit code 1. */
function replay(request: ReplayRequest, { dryRun = false, perSecond }: ReplayOptions, io: CommandIo): DatabaseWork {
  const { destination, toDestination, inbox } = request;
  return {
    check(config) {
      if (destination !== undefined) requireDestination(config, destination, "--destination");
      if (toDestination !== undefined) requireDestination(config, toDestination, "--to");
    },
    ...withJobs(async ({ jobs, rows, show, signal }) => {
      if (dryRun) return previewText(show(await rows.preview(request, SAMPLE_SIZE, signal)));
      if (!inbox)
        return await execute(jobs, await jobs.start(request, operator(), perSecond ?? null, signal), signal, io);
      const { moved, ...left } = await rows.run(request, operator(), signal);
      return movedText(moved, leftText(left));
    }, inbox),
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

interface JobTools {
  readonly jobs: ReplayJobs;
  readonly rows: Replay;
  readonly show: Show;
  readonly signal: AbortSignal;
}

/** @param inbox whether the work needs the inbox table */
function withJobs(work: (tools: JobTools) => Promise<string>, inbox = false): DatabaseWork {
  return {
    endsOnSignal: true,
    async work(tools) {
      const { config, store, show, signal, log } = tools;
      await store.schema.checkColumns(inbox ? ["inbox", "outbox", "history"] : ["outbox", "history"]);
      const transforms = inbox ? openTransforms(config, new Set(), log) : undefined;
      const { jobs, replay: rows } = createRowChanges(tools, undefined, transforms && sourcesOf(tools, transforms));
      try {
        return await work({ jobs, rows, show, signal });
      } catch (error) {
        withoutTable(error);
        const table = `${config.database.operationsTablePrefix}job`;
        throw new Error(`the table ${table} cannot be used: see docs/status.md, "Tables"`, { cause: error });
      } finally {
        await transforms?.service.stop(signal);
      }
    },
  };
}

/** What receives inbox rows again. */
function sourcesOf(tools: DatabaseTools, { evaluator }: ReturnType<typeof openTransforms>) {
  // Nobody scrapes this process.
  const { metrics } = createMetrics({ version: "", roles: [], processMetrics: false });
  return everySource({ ...tools, evaluator, metrics, tally: new Tally(tools.clock) });
}

/** @throws Error with the command that resumes the job, when the signal aborts or the database fails */
async function execute(jobs: ReplayJobs, run: JobRun, signal: AbortSignal, io: CommandIo): Promise<string> {
  const { id } = run;
  let job: JobShown | undefined;
  try {
    const total = (await jobs.get(id))?.total ?? null;
    job = await jobs.execute(run, signal, showing(io.stderr, total));
  } catch (error) {
    throw new Error(`the replay ended early: svc replay --resume ${id} resumes it`, { cause: error });
  }
  const { state = "gone", moved = 0, lastError = null } = job ?? {};
  if (state === "done") return movedText(moved, lastError ?? undefined);
  if (state === "interrupted") {
    const were = `${moved} ${moved === 1 ? "row was" : "rows were"}`;
    throw new Error(`the replay ended early, after ${were} moved: svc replay --resume ${id} resumes it`);
  }
  const what = state === "running" ? "resumed by another process" : state;
  throw new Error(`the replay ${id} is ${what} after ${rowsOf(moved)}`);
}

/** @returns shows the progress on a stream: a line now and then, which a terminal overwrites */
function showing(stream: CommandIo["stderr"], total: number | null): (moved: number) => void {
  const startedAt = performance.now();
  let shownAt = startedAt;
  return (moved) => {
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

function movedText(moved: number, left: string | undefined): string {
  return doneText(`${rowsOf(moved)} moved to pending`, moved, left);
}

function previewText({ count, sample }: ReplayPreview): string {
  const shown = sample.length < count ? `; the first ${sample.length} of them:` : "";
  return `${rowsOf(count)} would be moved to pending${shown}\n${textTable(sample, [...cellColumn(sample), ...COLUMNS])}`;
}

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
