import { requireName } from "../config/kinds.ts";
import type { DestinationOverview } from "../core/operations/shown.ts";
import { PAUSE_DURATION, REASON } from "../core/operations/syntax.ts";
import { type DatabaseWork, databaseAction } from "./database.ts";
import { type AddCommands, type Columns, FILE_OPTION, operator, optionParser, plainText, textTable } from "./io.ts";

interface PauseOptions {
  readonly reason: string;
  readonly for?: number;
}

export const addDestinationCommands: AddCommands = (program, io) => {
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
        listing((rows) => {
          if (json) return `${JSON.stringify({ destinations: rows }, null, 2)}\n`;
          return rows.length === 0 ? "no destinations are configured\n" : textTable(rows, COLUMNS);
        }),
      ),
    );

  destinations
    .command("pause <name>")
    .description("stop deliveries to a destination in every replica until it is resumed")
    .requiredOption("--reason <text>", "why; the list of destinations shows it", optionParser(REASON.parse))
    .option(
      "--for <duration>",
      "end by itself after this time, such as 30s, 15m, 2h or 1d",
      optionParser(PAUSE_DURATION.parse),
    )
    .option(...FILE_OPTION)
    .action(
      databaseAction(io, ({ reason, for: forMs }: PauseOptions, { args: [name = ""] }) =>
        changing(name, async ({ destinations }) => {
          await destinations.pause(name, { reason, forMs }, operator());
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
        changing(name, async ({ destinations }) =>
          (await destinations.resume(name, operator())) ? `${name} is resumed\n` : `${name} was not paused\n`,
        ),
      ),
    );
};

const EXAMPLES = `
A pause is kept in the database: it takes effect in every replica within a second and survives restarts. Rows of a
paused destination wait and use up no attempts. A further pause replaces the last one.

In the list, "in flight" counts the rows that pollers have claimed, including rows that still wait for a slot, and
"rate" the deliveries that the limit granted in the last whole second, begun or not.

Exit codes: 0 done (also when there was nothing to resume), 2 configuration or usage error, 1 anything else.

Examples:
  svc destinations list
  svc destinations pause billing --reason "they migrate until noon" --for 2h
  svc destinations resume billing`;

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

const TABLES = ["outbox", "destinations"] as const;

/** A read, which works without the table of the pauses. */
export function listing(print: (rows: readonly DestinationOverview[]) => string): DatabaseWork {
  return { tables: TABLES, work: async ({ destinations, show }) => print(show(await destinations.list())) };
}

function changing(name: string, work: DatabaseWork["work"]): DatabaseWork {
  return {
    check: ({ destinations }) => requireName("destination", name, Object.keys(destinations), "destinations"),
    tables: TABLES,
    needs: { destinations: true },
    work,
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

/** In the largest unit that gives at least 2. */
function ageOf(ms: number): string {
  const units = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["m", 60_000],
  ] as const;
  const [unit, length] = units.find(([, each]) => ms >= 2 * each) ?? ["s", 1000];
  return `${Math.ceil(ms / length)}${unit}`;
}
