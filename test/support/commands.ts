import { Command } from "commander";
import type { AddCommands, CommandIo } from "../../src/cli/io.ts";

/** What a command that ran in this process did. */
export interface CommandRun {
  readonly stdout: string;
  readonly stderr: string;
  /** The exit code that it set; 0 when none. */
  readonly exitCode: number;
  /** What it threw, a usage error included: the binary makes the exit code of it (test/e2e/commandLine.test.ts). */
  readonly error: Error | undefined;
}

/**
 * Runs a command of `svc` in this process, on the files and databases that it names. The binary costs half a second of
 * processor time more: it is for what only a process has, such as its exit code, signals and log.
 *
 * @param add adds the command, as the binary does
 * @param readFile for commands without a database; the others read from the disk
 */
export async function runCommand(
  add: AddCommands,
  args: readonly string[],
  readFile?: CommandIo["readFile"],
): Promise<CommandRun> {
  const written = { stdout: "", stderr: "", exitCode: 0 };
  const write = (stream: "stdout" | "stderr") => (text: string) => {
    written[stream] += text;
  };
  const program = new Command("svc").option("-c, --config <file>").enablePositionalOptions().exitOverride();
  program.configureOutput({ writeOut: write("stdout"), writeErr: write("stderr") });
  add(program, {
    // The log of a command goes to the process's own output.
    env: { LOG_LEVEL: "fatal" },
    ...(readFile === undefined ? {} : { readFile }),
    stdout: { write: write("stdout") },
    stderr: { write: write("stderr") },
    setExitCode: (code) => {
      written.exitCode = code;
    },
  });
  try {
    await program.parseAsync(["node", "svc", ...args]);
    return { ...written, error: undefined };
  } catch (error) {
    return { ...written, error: error as Error };
  }
}
