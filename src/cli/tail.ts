import { numberUpTo } from "../core/operations/syntax.ts";
import { tail } from "../core/operations/tail.ts";
import { withoutTable } from "../model/errors.ts";
import type { HistoryEntry } from "../ports/historyStore.ts";
import { pause } from "../time/wait.ts";
import { type DatabaseWork, databaseAction } from "./database.ts";
import { type AddCommands, type CommandIo, FILE_OPTION, lastWords, optionParser, plainText } from "./io.ts";
import { factsOf } from "./trace.ts";

interface TailCommandOptions {
  readonly lines?: number;
  readonly json?: boolean;
}

export const addTailCommand: AddCommands = (program, io) => {
  program
    .command("tail")
    .description("show failed attempts and operators' actions of all replicas as they come, until Ctrl-C")
    .option(...FILE_OPTION)
    .option(
      "-n, --lines <number>",
      "how many of the latest come first; 10 by default",
      optionParser(numberUpTo(MOST_LINES, 0).parse),
    )
    .option("--json", "one JSON object per line")
    .addHelpText("after", EXAMPLES)
    .action(databaseAction(io, (options: TailCommandOptions) => follow(options, io)));
};

const EXAMPLES = `
Reads the table of the history: with outbox.history: all it shows every attempt, with off none.

Exit codes: 0 ended by a signal, 2 configuration or usage error, 1 anything else.

Examples:
  svc tail -n 50
  svc tail --json | jq 'select(.destination == "billing")'`;

const LINES_BY_DEFAULT = 10;
const MOST_LINES = 1000;

function follow({ lines = LINES_BY_DEFAULT, json = false }: TailCommandOptions, io: CommandIo): DatabaseWork {
  return {
    endsOnSignal: true,
    tables: ["outbox"],
    async work({ config, store, show, signal }) {
      const onAway = (error: unknown) => io.stderr.write(`${lastWords(error)}: waiting for the database\n`);
      try {
        for await (const entry of tail(lines, { histories: store.histories, pause, onAway, signal })) {
          const { sequence: _sequence, ...shown } = show(entry);
          io.stdout.write(json ? `${JSON.stringify(shown)}\n` : lineOf(shown));
        }
      } catch (error) {
        withoutTable(error);
        const { historyTableName } = config.database;
        throw new Error(`the table ${historyTableName} cannot be read: see docs/trace.md, "What is kept"`);
      }
      return "";
    },
  };
}

function lineOf(entry: Omit<HistoryEntry, "sequence">): string {
  const { at, event, cell, id, reason } = entry;
  const where = cell === undefined ? "" : `${cell}  `;
  const line = `${at.toISOString()}  ${event.padEnd(EVENT_WIDTH)}  ${where}${id}  ${factsOf(entry)}${reason === null ? "" : `: ${reason}`}`;
  return `${plainText(line, MOST_SHOWN)}\n`;
}

const EVENT_WIDTH = "discarded".length;
const MOST_SHOWN = 400;
