import type { Command } from "commander";
import { createOverview } from "../../roles/trace.ts";
import { MOST_FAILED } from "../core/operations/overview.ts";
import type { OverviewShown } from "../core/operations/shown.ts";
import { mayPass, withoutTable } from "../model/errors.ts";
import type { AuditEntry } from "../ports/operationsStore.ts";
import { sleep } from "../time/wait.ts";
import { type DatabaseWork, databaseAction } from "./database.ts";
import { type Columns, type CommandIo, FILE_OPTION, lastWords, numberOption, plainText, textTable } from "./io.ts";

interface StatusOptions {
  readonly json?: boolean;
  readonly watch?: boolean;
  readonly lines?: number;
}

/** Adds `status` and `audit`. @param program the command to add them to; a `--config` option of its own counts too */
export function addStatusCommands(program: Command, io: CommandIo): void {
  program
    .command("status")
    .description("show the whole installation at a glance: what is wrong, replicas, sources, destinations")
    .option(...FILE_OPTION)
    .option("--json", "print what GET /admin/overview answers with")
    .option("--watch", "again every two seconds, until Ctrl-C")
    .addHelpText(
      "after",
      `
Reads the database of the configuration: no process need run. Rates are those of the last five minutes.

Exit codes: 0 printed, whatever it shows, 2 configuration or usage error, 1 anything else.`,
    )
    .action(databaseAction(io, (options: StatusOptions) => status(options, io)));
  program
    .command("audit")
    .description("show what operators did: replays, retries, discards, pauses, resumes")
    .option(...FILE_OPTION)
    .option("-n, --lines <count>", "how many entries, the newest (default: 50)", numberOption(1, MOST_LINES))
    .option("--json", "an entry a line as JSON")
    .action(databaseAction(io, audit));
}

const LINES_BY_DEFAULT = 50;
const MOST_LINES = 1000;

function status({ json = false, watch = false }: StatusOptions, io: CommandIo): DatabaseWork {
  return {
    endsOnSignal: watch,
    async work(tools) {
      await tools.store.schema.checkColumns(["outbox", "destinations"]);
      const overview = createOverview(tools, LONGEST_COUNT_MS);
      const show = async () => {
        const shown = tools.show(await overview.read(RATE_MINUTES));
        return json ? `${JSON.stringify(shown)}\n` : statusText(shown);
      };
      if (!watch) return await show();
      for (;;) {
        try {
          io.stdout.write(`${json ? "" : CLEAR}${await show()}`);
        } catch (error) {
          if (!mayPass(error)) throw error;
          io.stderr.write(`${lastWords(error)}: waiting for the database\n`);
        }
        await sleep(WATCH_INTERVAL_MS, tools.signal);
      }
    },
  };
}

const RATE_MINUTES = 5;
const LONGEST_COUNT_MS = 10_000;
const WATCH_INTERVAL_MS = 2000;
/** Clears the terminal (ECMA-48: cursor home, erase to the end). */
const CLEAR = "\x1b[H\x1b[J";

/** The overview for people. @param shown with the figures of the last {@link RATE_MINUTES} minutes */
export function statusText(shown: OverviewShown): string {
  const { at, replicas, sources, destinations, outbox, cells = [] } = shown;
  const parts = [
    warningsOf(shown)
      .map((warning) => `! ${warning}\n`)
      .join(""),
    outbox === null
      ? "outbox    being counted\n"
      : `outbox    ${outbox.pending} pending${oldest(outbox.oldestAgeMs)}, ${outbox.blockedKeys} blocked keys, ${outbox.parked} parked, ${atLeast(outbox.dead)} dead\n`,
    textTable(cells, CELL_COLUMNS),
    replicas === null ? "" : textTable(replicas, REPLICA_COLUMNS),
    textTable(sources, sourceColumns(at)),
    textTable(destinations, destinationColumns(at)),
  ];
  return parts.filter((part) => part !== "").join("\n");
}

/** What an operator should look at first. */
function warningsOf({
  replicas,
  roles,
  sources,
  destinations,
  outbox,
  relayEnabled,
  cells = [],
}: OverviewShown): readonly string[] {
  const runs = (role: string) => roles === null || (roles[role]?.replicas ?? 0) > 0;
  const isReceiving = sources.some(({ pending }) => (pending ?? 0) > 0);
  return [
    ...cells
      .filter(({ awaySince }) => awaySince !== null)
      .map(
        ({ name, reason }) =>
          `the cell ${name} does not answer: its figures are missing (${plainText(reason ?? "", 100)})`,
      ),
    ...(replicas === null
      ? ["the replicas are not known: the table of the processes cannot be read (docs/status.md)"]
      : []),
    ...(runs("poller") ? [] : ["no poller is alive: nothing is delivered"]),
    ...(isReceiving && !runs("relay") ? ["no relay is alive: messages wait in the inbox"] : []),
    ...(isReceiving && !relayEnabled ? ["inbox.relay.enabled is false: messages wait in the inbox"] : []),
    ...destinations
      .filter(({ state }) => state !== "ok")
      .map(({ name, state, pause, breaker }) => {
        const why = pause?.reason ?? breaker?.reason;
        return `${name} is ${state}${why === undefined || why === null ? "" : `: ${plainText(why, 100)}`}`;
      }),
    ...(outbox !== null && outbox.parked > 0 ? [`${outbox.parked} rows are parked: svc parked list`] : []),
    ...destinations.flatMap(({ name, minutes }) => {
      const dead = (minutes ?? []).reduce((sum, minute) => sum + minute.dead, 0);
      return dead === 0 ? [] : [`${dead} rows for ${name} died in the last ${RATE_MINUTES} minutes`];
    }),
  ];
}

function oldest(ageMs: number | null): string {
  return ageMs === null ? "" : `, the oldest for ${ageText(ageMs)}`;
}

function atLeast(count: number | null): string {
  if (count === null) return "?";
  return count >= MOST_FAILED ? `${count} or more` : String(count);
}

function ageText(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** A minute, in the mean of the last ones. The figures include the part of the present minute that has passed. */
function rate<M>(minutes: readonly M[] | null, counter: keyof M, at: Date): string {
  if (minutes === null) return "?";
  const sum = minutes.reduce((total, minute) => total + Number(minute[counter]), 0);
  return String(Math.round(sum / (RATE_MINUTES + (at.getTime() % 60_000) / 60_000)));
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
  ["waiting", ({ pending }) => number(pending)],
  ["oldest", ({ oldestAgeMs }) => (oldestAgeMs === null ? "" : ageText(oldestAgeMs))],
];

const destinationColumns = (at: Date): Columns<OverviewShown["destinations"][number]> => [
  ["destination", ({ name }) => plainText(name, 40)],
  ["state", ({ state }) => state],
  ["sent/min", ({ minutes }) => rate(minutes, "sent", at)],
  ["failed/min", ({ minutes }) => rate(minutes, "failed", at)],
  ["waiting", ({ backlog }) => number(backlog)],
  ["oldest", ({ oldestAgeMs }) => (oldestAgeMs === null ? "" : ageText(oldestAgeMs))],
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
        ? oldestFirst.map(({ position: _position, ...entry }) => `${JSON.stringify(entry)}\n`).join("")
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
