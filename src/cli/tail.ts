import type { Command } from "commander";
import { tail } from "../core/trace/tail.ts";
import { StoreError } from "../model/errors.ts";
import type { HistoryEntry } from "../ports/historyStore.ts";
import { pause } from "../time/wait.ts";
import { type CommandIo, lastWords, optionParser, plainText } from "./io.ts";

interface TailCommandOptions {
  readonly config?: string;
  readonly lines?: number;
  readonly json?: boolean;
}

/** Adds `tail`. @param program the command to add it to; a `--config` option of its own counts too */
export function addTailCommand(program: Command, io: CommandIo): void {
  program
    .command("tail")
    .description("show failed attempts and operators' actions of all replicas as they come, until Ctrl-C")
    .option("-c, --config <file>", "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)")
    .option("-n, --lines <number>", "how many of the latest come first; 10 by default", optionParser(parseLines))
    .option("--json", "one JSON object per line")
    .addHelpText("after", EXAMPLES)
    .action(async (_options: TailCommandOptions, command: Command) => {
      await follow(command.optsWithGlobals<TailCommandOptions>(), io);
    });
}

const EXAMPLES = `
Reads the table of the history: with outbox.history: all it shows every attempt, with off none.

Exit codes: 0 ended by a signal, 2 configuration or usage error, 1 anything else.

Examples:
  svc tail -n 50
  svc tail --json | jq 'select(.destination == "billing")'`;

const LINES_BY_DEFAULT = 10;
const MOST_LINES = 1000;

function parseLines(text: string): number {
  if (/^\d{1,4}$/.test(text) && Number(text) <= MOST_LINES) return Number(text);
  throw new Error(`a whole number from 0 to ${MOST_LINES} is expected`);
}

async function follow({ config: file, lines = LINES_BY_DEFAULT, json = false }: TailCommandOptions, io: CommandIo) {
  const { onDatabase } = await import("./database.ts");
  await onDatabase(io, {
    file,
    endsOnSignal: true,
    async work({ config, store, secrets, signal }) {
      await store.schema.checkColumns(["outbox"]);
      // A reason may repeat a field that nobody is to see.
      const hidesReasons = config.admin.redactPayloadPaths.length > 0;
      const onAway = (error: unknown) => io.stderr.write(`${lastWords(error)}: waiting for the database\n`);
      try {
        for await (const entry of tail(lines, { history: store.history, pause, onAway, signal })) {
          const { sequence: _sequence, ...shown } = hidesReasons ? { ...entry, reason: null } : entry;
          io.stdout.write(secrets.mask(json ? `${JSON.stringify(shown)}\n` : lineOf(shown), false));
        }
      } catch (error) {
        if (!(error instanceof StoreError && error.code === "schema")) throw error;
        const { historyTableName } = config.database;
        throw new Error(`the table ${historyTableName} cannot be read: see docs/trace.md, "What is kept"`);
      }
      return "";
    },
  });
}

function lineOf(entry: Omit<HistoryEntry, "sequence">): string {
  const { at, event, id, attempt, actor, destination, code, status, durationMs, reason } = entry;
  const about = [
    ...(attempt === null ? [] : [`attempt ${attempt}`]),
    ...(destination === null ? [] : [`to ${destination}`]),
    ...(actor === null ? [] : [`by ${actor}`]),
    ...(durationMs === null ? [] : [`${durationMs} ms`]),
    ...[code, status].filter((each) => each !== null),
  ].join(", ");
  const line = `${at.toISOString()}  ${event.padEnd(EVENT_WIDTH)}  ${id}  ${about}${reason === null ? "" : `: ${reason}`}`;
  return `${plainText(line, MOST_SHOWN)}\n`;
}

const EVENT_WIDTH = "discarded".length;
const MOST_SHOWN = 400;
