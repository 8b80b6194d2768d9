import { describe, expect, test } from "@jest/globals";
import { addDestinationCommands } from "../../../src/cli/destinations.ts";
import { addExplainCommand } from "../../../src/cli/explain.ts";
import type { AddCommands } from "../../../src/cli/io.ts";
import { addParkedCommands } from "../../../src/cli/parked.ts";
import { addReplayCommand } from "../../../src/cli/replay.ts";
import { addTransformCommand } from "../../../src/cli/transform.ts";
import { ConfigError } from "../../../src/model/errors.ts";
import { runCommand } from "../../support/commands.ts";
import { DATABASE, disk } from "../config/support.ts";

/** What is wrong with the call of a command, and is known before it asks a database. */

const FILES = disk({
  "svc.yml": `${DATABASE}
destinations: { queue: { url: "amqp://h", exchange: e } }
routes: [{ topicPattern: "**", destination: queue }]
`,
});

const run = (add: AddCommands, args: readonly string[]) => runCommand(add, args, FILES);

describe.each<[string, AddCommands, [string[], RegExp][]]>([
  [
    "parked",
    addParkedCommands,
    [
      [["retry"], /say which rows: --id, --topic, --key, --destination or --last-error, or --all/],
      [["retry", "--no-destination"], /say which rows/],
      [["retry", "--all", "--last-error", "x"], /say which rows/],
      [["retry", "--all", "--key", "k"], /say which rows/],
      [["discard", "--all"], /--reason/],
      [["discard", "--all", "--reason", " "], /not blank/],
      [["list", "--topic", "a.***"], /has \*\*\*/],
      [["list", "--limit", "0"], /from 1 to 10000/],
      [["retry", "--id", "7"], /a UUID such as/i],
    ],
  ],
  [
    "destinations",
    addDestinationCommands,
    [
      [["pause", "billing"], /required option '--reason <text>'/],
      [["pause", "billing", "--reason", "  "], /A reason that is not blank is expected/],
      [["pause", "billing", "--reason", "x".repeat(1001)], /at most 1000 characters/],
      [["pause", "billing", "--reason", "r", "--for", "0h"], /A whole number from 1/],
    ],
  ],
  [
    "replay",
    addReplayCommand,
    [
      [[], /A replay needs at least one filter\./],
      [["--dry-run"], /A replay needs at least one filter\./],
      [["--inbox"], /A replay needs at least one filter\./],
      [["--no-destination"], /A replay needs at least one filter\./],
      [["--inbox", "--source", "events", "--reason", "x"], /"reason" cannot be combined with "inbox"/],
      [["--source", "events"], /"source" needs "inbox"/],
      [["--inbox", "--source", "events", "--topic", "a"], /"topics" cannot be combined with "inbox"/],
      [["--add", "audit"], /A replay needs at least one filter\./],
      [["--topic", "a", "--add", "audit", "--to", "billing"], /"toDestination" cannot be combined with "add"/],
      [["--state", "pending"], /"sent" or "dead" is expected/],
      [["--id", "17"], /--id <uuid>' argument '17' is invalid. A UUID such as/],
      [["--created-after", "2026-01-05"], /--created-after.*An ISO-8601 instant with Z/],
      [["everything"], /too many arguments/],
    ],
  ],
  [
    "transform",
    addTransformCommand,
    [
      [["test"], /exactly one of --expression, --expression-file and --of/],
      [["test", "--expression", "1", "--of", "routes[0]"], /exactly one of/],
      [["test", "--expression", "1", "--payload", "nowhere.json"], /--payload: cannot read nowhere\.json/],
      [["test", "--expression-file", "nowhere.jsonata"], /--expression-file: cannot read nowhere\.jsonata/],
      [["test", "--expression", "1", "--attempt", "-1"], /--attempt.*whole number of at least 0/],
      [["test", "--expression", "1", "--header", "no value"], /--header.*"Name: value"/],
      [["test", "--of", "destinations.queue", "-c", "svc.yml"], /destinations\.queue has no transform/],
    ],
  ],
  ["explain", addExplainCommand, [[["topic", "-c", "svc.yml"], /missing required argument 'name'/]]],
])("svc %s", (name, add, cases) => {
  const titled = cases.map(([args, message]) => [args.join(" ").slice(0, 60), args, message] as const);
  test.each(titled)("%j is a usage error that says what is expected", async (_, args, message) => {
    const { error, stdout, stderr } = await run(add, [name, ...args]);
    expect(error?.name).toBe("CommanderError");
    expect([stdout, stderr]).toEqual(["", expect.stringMatching(message)]);
  });
});

test.each([
  ["transform test", addTransformCommand, ["transform", "test", "--of", "routes[0]"]],
  ["explain topic", addExplainCommand, ["explain", "topic", "x"]],
])("svc %s names the configuration file that it cannot read", async (_, add, args) => {
  const { error, stdout } = await run(add, [...args, "--config", "nowhere.yml"]);
  expect(error).toBeInstanceOf(ConfigError);
  expect([stdout, error?.message]).toEqual(["", expect.stringContaining("nowhere.yml")]);
});
