import { existsSync, readFileSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { type Command, InvalidArgumentError } from "commander";
import type { Environment } from "../config/environment.ts";
import { type ReadFile, readFileFromDisk } from "../config/file.ts";
import { errorText } from "../model/errors.ts";
import { escapeControls } from "../model/text.ts";
import type { SecretMasker } from "../ports/runtime.ts";

/** What the commands share: the process as they see it, options, tables for a terminal, the last error. */

/** The process as a command sees it; tests replace it. */
export interface CommandIo {
  readonly env: Environment;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown; readonly isTTY?: boolean };
  /** Sets the exit code of the process. */
  readonly setExitCode: (code: number) => void;
  /** Reads files; from the disk unless given. */
  readonly readFile?: ReadFile;
}

/** Adds commands to another one, whose own `--config` option counts too. */
export type AddCommands = (program: Command, io: CommandIo) => void;

/** The option of every command that reads the configuration. */
export const FILE_OPTION = [
  "-c, --config <file>",
  "configuration file (default: SVC_CONFIG_FILE, else /etc/svc/svc.yml)",
] as const;

/**
 * Reads what an option names; a file that cannot be read ends the command as wrong usage.
 *
 * @param file a path, or `-` for standard input
 */
export async function readInput(command: Command, option: string, file: string, io: CommandIo): Promise<string> {
  try {
    return file === "-" ? await text(process.stdin) : (io.readFile ?? readFileFromDisk)(file);
  } catch (error) {
    return usageError(command, `${option}: cannot read ${file === "-" ? "standard input" : file}: ${errorText(error)}`);
  }
}

/** The action of a command. @param act gets the options, also those before the command's name, and the command */
export function action<O>(act: (options: O & { readonly config?: string }, command: Command) => void | Promise<void>) {
  return (...given: readonly unknown[]) => {
    const command = given.at(-1) as Command;
    return act(command.optsWithGlobals(), command);
  };
}

/** Ends the command with exit code 2. @throws CommanderError always, after the message is written */
export function usageError(command: Command, message: string): never {
  return command.error(`error: ${message}`, { exitCode: 2 });
}

/** Makes a parser of an option, with usage errors. @param parse throws an Error that says what is expected */
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

/** The parser of an option that may be given several times. @param parse as for {@link optionParser} */
export function repeatedOption<T>(parse: (text: string) => T): (text: string, before?: readonly T[]) => readonly T[] {
  return (text, before = []) => [...before, optionParser(parse)(text)];
}

/** The columns of a table for people: title and cell of each, in order. */
export type Columns<T> = readonly (readonly [title: string, cell: (row: T) => string])[];

/** The column for the cell that has a row; none without cells. */
export function cellColumn<T extends { readonly cell?: string | undefined }>(rows: readonly T[]): Columns<T> {
  return rows.some(({ cell }) => cell !== undefined) ? [["cell", ({ cell }) => plainText(cell ?? "", 40)]] : [];
}

/** Aligns cells in columns. @returns a line for the titles and one for each row; nothing without rows */
export function textTable<T>(rows: readonly T[], columns: Columns<T>): string {
  if (rows.length === 0) return "";
  const lines = [columns.map(([title]) => title), ...rows.map((row) => columns.map(([, cell]) => cell(row)))];
  const widths = columns.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const aligned = lines.map((line) => line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  "));
  return aligned.map((line) => `${line.trimEnd()}\n`).join("");
}

/** A text of an application or a receiver on one line, without control characters for the terminal. */
export function plainText(text: string, width: number): string {
  const characters = [...text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, " ")];
  return characters.length > width ? `${characters.slice(0, width - 1).join("")}…` : characters.join("");
}

/**
 * The line that says what a change of rows has done.
 *
 * @param left the rows that it did not change and why, in words; undefined for none
 * @throws Error with the same text if it changed no row for that reason
 */
export function doneText(done: string, changed: number, left: string | undefined): string {
  if (left === undefined) return `${done}\n`;
  if (changed === 0) throw new Error(`${done}; ${left}`);
  return `${done}; ${plainText(left, LONGEST_LINE)}\n`;
}

const LONGEST_LINE = 2000;

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

let secrets: Pick<SecretMasker, "mask"> | undefined;

/** Sets what {@link lastWords} masks, once a configuration is loaded. */
export function maskLastWords(masker: Pick<SecretMasker, "mask">): void {
  secrets = masker;
}

/** The text of the error that ends the process, for standard error. */
export function lastWords(error: unknown): string {
  const message = errorText(error);
  return escapeControls(secrets?.mask(message, false, true) ?? message);
}

/** The nearest folder above this file, which may be compiled, that has another one. */
export function folderWith(file: string): string | undefined {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    if (existsSync(join(folder, file))) return folder;
    if (dirname(folder) === folder) return undefined;
  }
}

export const VERSION: string = (() => {
  const manifest: unknown = JSON.parse(readFileSync(join(folderWith("package.json") ?? "/", "package.json"), "utf8"));
  return String((manifest as { version?: unknown }).version);
})();
