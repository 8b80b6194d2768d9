import type { Command } from "commander";
import { parseText } from "../core/finished/requests.ts";
import { type CommandIo, optionParser } from "./io.ts";

interface TraceOptions {
  readonly config?: string;
  readonly json?: boolean;
}

/** Adds `trace`. @param program the command to add it to; a `--config` option of its own counts too */
export function addTraceCommand(program: Command, io: CommandIo): void {
  program
    .command("trace")
    .description("show what happened to a message, and why it waits")
    .argument("<text>", "its id, idempotency key, correlation id, or the key of its rows", optionParser(parseText))
    .option("-c, --config <file>", "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)")
    .option("--json", "print what GET /admin/messages/{id} answers with, in an array")
    .addHelpText("after", EXAMPLES)
    .action(async (text: string, _options: TraceOptions, command: Command) => {
      const { config: file, json = false } = command.optsWithGlobals<TraceOptions>();
      const { traceMessages } = await import("./traceMessages.ts");
      await traceMessages({ file, text, json }, io);
    });
}

const EXAMPLES = `
Reads the database of the configuration: no other process need run. An id or an idempotency key is found by an index; a correlation id or a key is searched among
the newest rows, for ten seconds at most. Several messages may have it: the newest 20 are shown.

Exit codes: 0 found, 3 no such message, 2 configuration or usage error, 1 anything else.

Examples:
  svc trace 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f      by id, as in the log and in x-message-id
  svc trace order-4711                                by idempotency key, correlation id or key
  svc trace order-4711 --json | jq '.[0].waits'`;
