import type { Command } from "commander";
import { parsePauseDuration } from "../core/destinations/control.ts";
import { parseReason } from "../core/finished/requests.ts";
import type { CommandIo } from "./config.ts";
import { operator, optionParser } from "./io.ts";

interface DestinationOptions {
  readonly config?: string;
  readonly json?: boolean;
  readonly reason: string;
  readonly for?: number;
}

const FILE_OPTION = [
  "-c, --config <file>",
  "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)",
] as const;

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
    .action(async (_options: unknown, command: Command) => {
      const { config: file, json = false } = command.optsWithGlobals<DestinationOptions>();
      const { listDestinations } = await import("./destinationActions.ts");
      await listDestinations({ file, json }, io);
    });

  destinations
    .command("pause <name>")
    .description("deliver nothing more to a destination, in every replica, until it is resumed")
    .requiredOption("--reason <text>", "why, for whoever lists the destinations", optionParser(parseReason))
    .option(
      "--for <duration>",
      "end by itself after this time, such as 30s, 15m, 2h or 1d",
      optionParser(parsePauseDuration),
    )
    .option(...FILE_OPTION)
    .action(async (name: string, _options: unknown, command: Command) => {
      const { config: file, reason, for: forMs } = command.optsWithGlobals<DestinationOptions>();
      const { pauseDestination } = await import("./destinationActions.ts");
      await pauseDestination({ file, name, by: operator(), reason, forMs }, io);
    });

  destinations
    .command("resume <name>")
    .description("end the pause of a destination")
    .option(...FILE_OPTION)
    .action(async (name: string, _options: unknown, command: Command) => {
      const { config: file } = command.optsWithGlobals<DestinationOptions>();
      const { resumeDestination } = await import("./destinationActions.ts");
      await resumeDestination({ file, name, by: operator() }, io);
    });
}

const EXAMPLES = `
A pause is kept in the database: it is in force in every replica within a second, and across restarts. Rows of a paused destination wait; they use up no
attempts. Paused again, the last command counts.

Exit codes: 0 done (also when there was nothing to resume), 2 configuration or usage error, 1 anything else.

Examples:
  svc destinations list
  svc destinations pause billing --reason "they migrate until noon" --for 2h
  svc destinations resume billing`;
