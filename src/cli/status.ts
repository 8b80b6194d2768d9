import { Option } from "commander";
import { MOST_FAILED } from "../core/operations/overview.ts";
import type { OverviewShown } from "../core/operations/shown.ts";
import { numberUpTo } from "../core/operations/syntax.ts";
import { durationText } from "../core/operations/timeline.ts";
import { mayPass, withoutTable } from "../model/errors.ts";
import type { AuditEntry } from "../ports/operationsStore.ts";
import { sleep } from "../time/wait.ts";
import { type DatabaseWork, databaseAction } from "./database.ts";
import {
  type AddCommands,
  type Columns,
  type CommandIo,
  FILE_OPTION,
  lastWords,
  optionParser,
  plainText,
  textTable,
} from "./io.ts";

interface StatusOptions {
  readonly json?: boolean;
  readonly check?: boolean;
  readonly watch?: boolean;
  readonly lines?: number;
}

export const addStatusCommands: AddCommands = (program, io) => {
  program
    .command("status")
    .description("show the whole installation at a glance: what is wrong, replicas, sources, destinations")
    .option(...FILE_OPTION)
    .option("--json", "print what GET /admin/overview answers with")
    .addOption(new Option("--check", "exit code 3 if a line with ! is shown").conflicts("watch"))
    .option("--watch", "again every two seconds, until Ctrl-C")
    .addHelpText(
      "after",
      `
Reads the database of the configuration: no process need run. Rates are by the minute, the mean of the last five.

Exit codes: 0 printed, with --check only if nothing is wrong, 3 with --check something is, 2 configuration or usage error, 1 anything else.`,
    )
    .action(databaseAction(io, (options: StatusOptions) => status(options, io)));
  program
    .command("audit")
    .description("show what operators did: replays, retries, discards, pauses, resumes")
    .option(...FILE_OPTION)
    .option(
      "-n, --lines <count>",
      "how many entries, the newest (default: 50)",
      optionParser(numberUpTo(MOST_LINES).parse),
    )
    .option("--json", "an entry a line as JSON")
    .action(databaseAction(io, audit));
};

const LINES_BY_DEFAULT = 50;
const MOST_LINES = 1000;

const WRONG_CODE = 3;

function status({ json = false, watch = false, check = false }: StatusOptions, io: CommandIo): DatabaseWork {
  return {
    endsOnSignal: watch,
    tables: ["outbox", "destinations"],
    async work({ overview, show, signal }) {
      const read = async () => {
        const shown = show(await overview.read(RATE_MINUTES, LONGEST_COUNT_MS));
        if (check && shown.problems.length > 0) io.setExitCode(WRONG_CODE);
        return json ? `${JSON.stringify(shown)}\n` : statusText(shown);
      };
      if (!watch) return await read();
      for (;;) {
        try {
          io.stdout.write(`${json ? "" : CLEAR}${await read()}`);
        } catch (error) {
          if (!mayPass(error)) throw error;
          io.stderr.write(`${lastWords(error)}: waiting for the database\n`);
        }
        await sleep(WATCH_INTERVAL_MS, signal);
      }
    },
  };
}

const RATE_MINUTES = 5;
const LONGEST_PROBLEM = 250;
const LONGEST_COUNT_MS = 10_000;
const WATCH_INTERVAL_MS = 2000;
/** Clears the terminal (ECMA-48: cursor home, erase to the end). */
const CLEAR = "\x1b[H\x1b[J";

/** The overview for people. @param shown with the figures of the last {@link RATE_MINUTES} minutes */
export function statusText(shown: OverviewShown): string {
  const { at, problems, replicas, sources, destinations, unrouted, outbox, cells = [] } = shown;
  const parts = [
    problems
      .map(({ text, reason }) => `! ${plainText(reason === null ? text : `${text}: ${reason}`, LONGEST_PROBLEM)}\n`)
      .join(""),
    outbox === null
      ? "outbox    being counted\n"
      : `outbox    ${outbox.pending} pending${oldest(outbox.oldestAgeMs)}, ${outbox.blockedKeys} blocked keys, ${outbox.parked} parked, ${atLeast(outbox.dead)} dead\n`,
    textTable(cells, CELL_COLUMNS),
    replicas === null ? "" : textTable(replicas, REPLICA_COLUMNS),
    textTable(sources, sourceColumns(at)),
    textTable(destinations, destinationColumns(at)) + unroutedText(unrouted),
  ];
  return parts.filter((part) => part !== "").join("\n");
}

function unroutedText({ dead, parked, topics }: OverviewShown["unrouted"]): string {
  if (dead + parked === 0) return "";
  return `no destination  ${parked} parked, ${atLeast(dead)} dead; topics: ${plainText(topics.join(", "), 100)}\n`;
}

function oldest(ageMs: number | null): string {
  return ageMs === null ? "" : `, the oldest for ${durationText(ageMs)}`;
}

function atLeast(count: number | null): string {
  if (count === null) return "?";
  return count >= MOST_FAILED ? `${count} or more` : String(count);
}

/** A minute, in the mean of the last ones. The figures include the part of the present minute that has passed. */
function rate<M>(minutes: readonly M[] | null, counters: keyof M | readonly (keyof M)[], at: Date): string {
  if (minutes === null) return "?";
  const sum = minutes.reduce(
    (total, minute) => total + [counters].flat().reduce((all, each) => all + Number(minute[each as keyof M]), 0),
    0,
  );
  const mean = sum / (RATE_MINUTES + (at.getTime() % 60_000) / 60_000);
  return mean > 0 && mean < 10 ? mean.toFixed(1) : String(Math.round(mean));
}

const number = (value: number | null): string => (value === null ? "?" : String(value));

const CELL_COLUMNS: Columns<NonNullable<OverviewShown["cells"]>[number]> = [
  ["cell", ({ name }) => plainText(name, 40)],
  ["state", ({ awaySince }) => (awaySince === null ? "ok" : `away since ${awaySince.toISOString()}`)],
];

const REPLICA_COLUMNS: Columns<NonNullable<OverviewShown["replicas"]>[number]> = [
  ["replica", ({ name }) => plainText(name, 60)],
  ["version", ({ version }) => version],
  ["roles", ({ roles }) => roles.join(" ")],
  ["up since", ({ startedAt }) => startedAt?.toISOString() ?? ""],
];

const sourceColumns = (at: Date): Columns<OverviewShown["sources"][number]> => [
  ["source", ({ name }) => plainText(name, 40)],
  ["received/min", ({ minutes }) => rate(minutes, "received", at)],
  ["duplicate/min", ({ minutes }) => rate(minutes, "duplicate", at)],
  ["filtered/min", ({ minutes }) => rate(minutes, "filtered", at)],
  ["refused/min", ({ minutes }) => rate(minutes, "refused", at)],
  ["waiting", ({ pending }) => number(pending)],
  ["oldest", ({ oldestAgeMs }) => (oldestAgeMs === null ? "" : durationText(oldestAgeMs))],
];

const destinationColumns = (at: Date): Columns<OverviewShown["destinations"][number]> => [
  ["destination", ({ name }) => plainText(name, 40)],
  ["state", ({ state }) => state],
  ["sent/min", ({ minutes }) => rate(minutes, "sent", at)],
  ["failed/min", ({ minutes }) => rate(minutes, ["failed", "dead"], at)],
  ["waiting", ({ backlog }) => number(backlog)],
  ["oldest", ({ oldestAgeMs }) => (oldestAgeMs === null ? "" : durationText(oldestAgeMs))],
  ["blocked keys", ({ blockedKeys }) => number(blockedKeys)],
  ["parked", ({ parked }) => number(parked)],
  ["dead", ({ dead }) => atLeast(dead)],
  ["last error", ({ lastError }) => plainText(lastError ?? "", 60)],
];

function audit({ lines = LINES_BY_DEFAULT, json = false }: StatusOptions): DatabaseWork {
  return {
    async work({ config, store }) {
      const entries = await store.operations.audit(null, lines).catch(withoutTable);
      if (entries === undefined) {
        const table = `${config.database.operationsTablePrefix}audit`;
        throw new Error(`the table ${table} cannot be read: see docs/status.md, "Tables"`);
      }
      const oldestFirst = entries.toReversed();
      return json
        ? oldestFirst.map((entry) => `${JSON.stringify(entry)}\n`).join("")
        : textTable(oldestFirst, AUDIT_COLUMNS);
    },
  };
}

const AUDIT_COLUMNS: Columns<AuditEntry> = [
  ["time", ({ at }) => at?.toISOString() ?? ""],
  ["who", ({ actor }) => plainText(actor, 40)],
  ["did", ({ action }) => action],
  ["with", ({ target }) => plainText(target ?? "", 40)],
  ["detail", ({ detail }) => plainText(detail ?? "", 200)],
];
