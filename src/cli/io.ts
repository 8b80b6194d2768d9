import { hostname, userInfo } from "node:os";
import { text } from "node:stream/consumers";
import { type Command, InvalidArgumentError } from "commander";
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

/**
 * The parser of an option for the command line library: what is wrong becomes a usage error.
 *
 * @param parse throws an Error that says what is expected
 */
export function optionParser<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      const expected = errorText(error);
      throw new InvalidArgumentError(`${expected.charAt(0).toUpperCase()}${expected.slice(1)}.`);
    }
  };
}

/** The columns of a table for people: title and cell of each, in order. */
export type Columns<T> = readonly (readonly [title: string, cell: (row: T) => string])[];

/** Aligns cells in columns, for a terminal. @returns a line for the titles and one for each row; nothing without rows */
export function textTable<T>(rows: readonly T[], columns: Columns<T>): string {
  if (rows.length === 0) return "";
  const lines = [columns.map(([title]) => title), ...rows.map((row) => columns.map(([, cell]) => cell(row)))];
  const widths = columns.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const aligned = lines.map((line) => line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  "));
  return aligned.map((line) => `${line.trimEnd()}\n`).join("");
}

/** On one line and without control characters, which would reach the terminal: the texts are whatever applications and receivers wrote. */
export function plainText(text: string, width: number): string {
  const characters = [...text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, " ")];
  return characters.length > width ? `${characters.slice(0, width - 1).join("")}…` : characters.join("");
}

/** Who runs the command, such as `ada@ops-1`. A container's user may have no name. */
export function operator(): string {
  let user: string;
  try {
    user = userInfo().username;
  } catch {
    user = `uid ${process.getuid?.() ?? "unknown"}`;
  }
  return `${user}@${hostname()}`;
}
