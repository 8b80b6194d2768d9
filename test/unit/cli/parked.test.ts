import { expect, test } from "@jest/globals";
import { Command, CommanderError } from "commander";
import { addParkedCommands } from "../../../src/cli/parked.ts";

/** Runs `svc parked <args>` without a configuration. @returns what it says of its use */
async function usageOf(args: readonly string[]): Promise<string> {
  let said = "";
  const write = (text: string) => {
    said += text;
  };
  const program = new Command("svc")
    .exitOverride()
    .showHelpAfterError()
    .configureOutput({ writeOut: write, writeErr: write });
  addParkedCommands(program, { env: {}, stdout: { write }, stderr: { write }, setExitCode: () => {} });
  await expect(program.parseAsync(["node", "svc", "parked", ...args])).rejects.toBeInstanceOf(CommanderError);
  return said;
}

test.each([
  [["retry"], /say which rows: --id, --topic or --key, or --all/],
  [["retry", "--all", "--key", "k"], /say which rows/],
  [["discard", "--all"], /--reason/],
  [["discard", "--all", "--reason", " "], /not blank/],
  [["list", "--topic", "a.***"], /has \*\*\*/],
  [["list", "--limit", "0"], /from 1 to 10000/],
  [["retry", "--id", "7"], /a UUID such as/i],
])("svc parked %j is a usage error that says what is expected", async (args, message) => {
  expect(await usageOf(args)).toMatch(message);
});
