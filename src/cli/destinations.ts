import type { Command } from "commander";
import { DestinationControl, parsePauseDuration } from "../core/destinations/control.ts";
import { parseReason } from "../core/finished/requests.ts";
import type { DestinationOverview } from "../core/operations/shown.ts";
import type { Show } from "../core/redaction/hidePayload.ts";
import { type DatabaseWork, databaseAction, onDatabase, requireDestination } from "./database.ts";
import { type Columns, type CommandIo, FILE_OPTION, operator, optionParser, plainText, textTable } from "./io.ts";

interface PauseOptions {
  readonly reason: string;
  readonly for?: number;
}

/**
 * Adds `destinations list`, `destinations pause` and `destinations resume`.
 *
 * @param program the command to add them to; a `--config` option of its own counts too
 */
export function addDestinationCommands(program: Command, io: CommandIo): void {
  const destinations = program
    .command("destinations")
    .description("show, pause and resume destinations")
    .addHelpText("after", EXAMPLES);

  destinations
    .command("list")
    .description("show the state of every configured destination, and what waits for it")
    .option(...FILE_OPTION)
    .option("--json", "print what GET /admin/destinations answers with")
    .action(
      databaseAction(io, ({ json = false }: { readonly json?: boolean }) =>
        withControl(null, async (control, show) => {
          const rows = show(await control.list());
          if (json) return `${JSON.stringify({ destinations: rows }, null, 2)}\n`;
          return rows.length === 0 ? "no destinations are configured\n" : textTable(rows, COLUMNS);
        }),
      ),
    );

  destinations
    .command("pause <name>")
    .description("stop deliveries to a destination in every replica until it is resumed")
    .requiredOption("--reason <text>", "why, shown to those who list the destinations", optionParser(parseReason))
    .option(
      "--for <duration>",
      "end by itself after this time, such as 30s, 15m, 2h or 1d",
      optionParser(parsePauseDuration),
    )
    .option(...FILE_OPTION)
    .action(
      databaseAction(io, ({ reason, for: forMs }: PauseOptions, { args: [name = ""] }) =>
        withControl(name, async (control) => {
          await control.pause(name, { reason, forMs }, operator());
          return `${name} is paused${forMs === undefined ? "" : ` for ${ageOf(forMs)}`}\n`;
        }),
      ),
    );

  destinations
    .command("resume <name>")
    .description("end the pause of a destination")
    .option(...FILE_OPTION)
    .action(
      databaseAction(io, (_options, { args: [name = ""] }) =>
        withControl(name, async (control) =>
          (await control.resume(name, operator())) ? `${name} is resumed\n` : `${name} was not paused\n`,
        ),
      ),
    );
}

const EXAMPLES = `
A pause is kept in the database: it takes effect in every replica within a second and survives restarts. Rows of a
paused destination wait and use up no attempts. A further pause replaces the last one.

In the list, "in flight" counts the rows that pollers have claimed, also those that still wait for a slot, and "rate" the
deliveries that the limit granted in the last whole second, begun or not.

Exit codes: 0 done (also when there was nothing to resume), 2 configuration or usage error, 1 anything else.

Examples:
  svc destinations list
  svc destinations pause billing --reason "they migrate until noon" --for 2h
  svc destinations resume billing`;

/**
 * {@link stateSummary} of a destination, from the database.
 *
 * @param name of a configured destination
 * @throws ConfigError for a bad configuration, StoreError when no database answers
 */
export async function destinationState(file: string | undefined, name: string, io: CommandIo): Promise<string> {
  let text = "";
  const work = withControl(null, async (control, show) => {
    const row = show(await control.list()).find((each) => each.name === name);
    if (row !== undefined) text = stateSummary(row);
    return "";
  });
  await onDatabase(io, file, work);
  return text;
}

/** The state of a destination on one line: what waits for it, why its breaker is open, how a delivery failed last. */
export function stateSummary(row: DestinationOverview): string {
  const oldest = row.oldestAgeMs === null ? "" : `, the oldest due for ${ageOf(row.oldestAgeMs)}`;
  const parts = [stateText(row), `${row.backlog} rows wait${oldest}, ${row.inFlight} are in flight`];
  if (row.breaker !== null)
    parts.push(`breaker: ${plainText(row.breaker.reason ?? "no reason is known", LONGEST_REASON)}`);
  if (row.lastFailureAt !== null) {
    parts.push(`last error at ${row.lastFailureAt.toISOString()}: ${plainText(row.lastError ?? "-", LONGEST_REASON)}`);
  }
  return parts.join("; ");
}

/** Characters of a reason on the line of one destination. */
const LONGEST_REASON = 200;

type ControlWork = (control: DestinationControl, show: Show) => Promise<string>;

/**
 * @param changed the destination that the work changes: it must be configured, and the table of the pauses there; null
 *   for a read, which works without that table
 */
function withControl(changed: string | null, work: ControlWork): DatabaseWork {
  return {
    check: (config) => changed !== null && requireDestination(config, changed, "destinations"),
    async work({ config, store, show, audit, log }) {
      await store.schema.checkColumns(["outbox", "destinations"], { destinations: changed !== null });
      return work(new DestinationControl({ destinations: config.destinations, store, audit, log }), show);
    },
  };
}

const COLUMNS: Columns<DestinationOverview> = [
  ["name", ({ name }) => plainText(name, 40)],
  ["state", stateText],
  ["backlog", ({ backlog }) => String(backlog)],
  ["oldest", ({ oldestAgeMs }) => (oldestAgeMs === null ? "-" : ageOf(oldestAgeMs))],
  ["in flight", ({ inFlight }) => String(inFlight)],
  ["rate", ({ rate }) => (rate === null ? "-" : `${rate.taken} of ${rate.perSecond}/s`)],
  ["last success", ({ lastSuccessAt }) => lastSuccessAt?.toISOString() ?? "-"],
  ["last failure", ({ lastFailureAt }) => lastFailureAt?.toISOString() ?? "-"],
  ["last error", ({ lastError }) => plainText(lastError ?? "-", 60)],
];

function stateText({ state, pause, breaker }: DestinationOverview): string {
  if (pause !== null) {
    const until = pause.until === null ? "" : ` until ${pause.until.toISOString()}`;
    return `paused since ${pause.since.toISOString()}${until} by ${plainText(pause.by, 40)}: ${plainText(pause.reason, 60)}`;
  }
  if (state === "open") return `open, next probe in ${ageOf(breaker?.nextProbeMs ?? 0)}`;
  return state;
}

/** In the largest unit of which there are at least two. */
function ageOf(ms: number): string {
  const units = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["m", 60_000],
  ] as const;
  const [unit, length] = units.find(([, each]) => ms >= 2 * each) ?? ["s", 1000];
  return `${Math.ceil(ms / length)}${unit}`;
}
