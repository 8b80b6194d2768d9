import { text } from "node:stream/consumers";
import type { Command } from "commander";
import { readFileFromDisk } from "../config/file.ts";
import { errorText } from "../model/errors.ts";
import type { CommandIo } from "./config.ts";

/**
 * Reads what an option names; a file that cannot be read ends the command as wrong usage.
 *
 * @param option for the message, such as `--payload`
 * @param file a path, or `-` for standard input
 */
export async function readInput(command: Command, option: string, file: string, io: CommandIo): Promise<string> {
  try {
    return file === "-" ? await text(process.stdin) : (io.readFile ?? readFileFromDisk)(file);
  } catch (error) {
    return usageError(command, `${option}: cannot read ${file === "-" ? "standard input" : file}: ${errorText(error)}`);
  }
}

/** Ends the command with exit code 2. @throws CommanderError always, after the message is written */
export function usageError(command: Command, message: string): never {
  return command.error(`error: ${message}`, { exitCode: 2 });
}
