import { describe, expect, test } from "@jest/globals";
import { Command } from "commander";
import { load as parse } from "js-yaml";
import { addConfigCommands } from "../../../src/cli/config.ts";
import { jsonSchema } from "../../../src/config/jsonSchema.ts";
import { DATABASE, disk } from "../config/support.ts";

/** Runs `svc <args>` over files and variables, and gives what it wrote. */
async function svc(
  args: readonly string[],
  files: Readonly<Record<string, string>>,
  env: Readonly<Record<string, string>> = {},
) {
  const written = { stdout: "", stderr: "", exitCode: 0 };
  const program = new Command("svc").option("--config <file>").exitOverride();
  const output = (text: string) => {
    written.stdout += text;
  };
  program.configureOutput({ writeOut: output });
  addConfigCommands(program, {
    env,
    readFile: disk(files),
    stdout: { write: output },
    stderr: {
      write: (text: string) => {
        written.stderr += text;
      },
    },
    setExitCode: (code) => {
      written.exitCode = code;
    },
  });
  await program.parseAsync(["node", "svc", ...args]).catch((error: { code?: string }) => {
    if (error.code !== "commander.helpDisplayed") throw error;
  });
  return written;
}

const FILES = {
  "/etc/svc/svc.yml": DATABASE,
  "other.yml": `${DATABASE}outbox: { batchsize: 5 }\n`,
  "bad.yml": "outbox: { batchSize: x }\n",
};

describe("svc config check", () => {
  test("says that the configuration is valid, and which it is", async () => {
    expect(await svc(["config", "check"], FILES)).toEqual({
      stdout: "configuration is valid (/etc/svc/svc.yml)\n",
      stderr: "",
      exitCode: 0,
    });
  });

  test("lists warnings", async () => {
    const { stdout, exitCode } = await svc(["config", "check", "--config", "other.yml"], FILES);
    expect(stdout).toBe(
      'configuration is valid (other.yml)\nwarning: outbox.batchsize: is not a known key and is ignored; did you mean "batchSize"? (other.yml, line 5)\n',
    );
    expect(exitCode).toBe(0);
  });

  test("names the sources that accept any caller, once, and not as a warning", async () => {
    const sources = ["a", "b"].map((name) => `  ${name}: { path: /${name}, idempotencyKeyPath: $.id, topic: t }`);
    const closed = "  c: { path: /c, idempotencyKeyPath: $.id, topic: t, auth: { token: t } }";
    const files = { "open.yml": [`${DATABASE}sources:`, ...sources, closed, ""].join("\n") };
    expect(await svc(["config", "check", "--strict", "--config", "open.yml"], files)).toEqual({
      stdout:
        "configuration is valid (open.yml)\nnotice: sources: without auth, anybody who reaches the data port can send messages to a, b: set sources.<name>.auth, unless only trusted callers reach it\n",
      stderr: "",
      exitCode: 0,
    });
  });

  test("takes --config in front of the command too", async () => {
    expect((await svc(["--config", "other.yml", "config", "check"], FILES)).stdout).toContain("(other.yml)");
  });

  test("makes warnings errors with --strict", async () => {
    expect(await svc(["config", "check", "--strict", "--config", "other.yml"], FILES)).toEqual({
      stdout: "",
      stderr:
        'configuration is not valid (other.yml): 1 problem\nerror: outbox.batchsize: is not a known key and is ignored; did you mean "batchSize"? (other.yml, line 5)\n',
      exitCode: 2,
    });
  });

  test("lists every problem with exit code 2", async () => {
    const { stdout, stderr, exitCode } = await svc(["config", "check", "--config", "bad.yml"], FILES);
    expect(stdout).toBe("");
    expect(stderr.split("\n").map((line) => line.split(": ", 2).join(": "))).toEqual([
      "configuration is not valid (bad.yml): 4 problems",
      "error: database.url",
      "error: database.username",
      "error: database.password",
      "error: outbox.batchSize",
      "",
    ]);
    expect(exitCode).toBe(2);
  });

  test("says that a file does not exist", async () => {
    expect(await svc(["config", "check"], FILES, { SVC_CONFIG_FILE: "gone.yml" })).toMatchObject({
      stderr: expect.stringContaining(
        "error: gone.yml: cannot read the configuration file, which SVC_CONFIG_FILE names",
      ),
      exitCode: 2,
    });
  });
});

describe("svc config print", () => {
  test("shows each value with its origin, as YAML", async () => {
    const { stdout, exitCode } = await svc(["config", "print"], FILES, { SVC_OUTBOX_BATCHSIZE: "7" });
    const origin = (key: string) => new RegExp(`^ +${key}: (.*?) +# (.*)$`, "m").exec(stdout)?.slice(1);
    expect(exitCode).toBe(0);
    expect(origin("username")).toEqual(["svc", "/etc/svc/svc.yml, line 3"]);
    expect(origin("batchSize")).toEqual(["7", "SVC_OUTBOX_BATCHSIZE"]);
    expect(origin("concurrency")).toEqual(["8", "default"]);
    expect(origin("password")).toEqual(["Secret(***)", "/etc/svc/svc.yml, line 4"]);
    expect(parse(stdout)).toMatchObject({ outbox: { batchSize: 7 }, database: { migrate: true }, routes: [] });
  });

  test("prints awkward text so that YAML reads it back", async () => {
    const texts = [
      "true",
      "",
      " x ",
      "a: b",
      "- a",
      "#c",
      "*",
      "&a",
      "line\nbreak",
      '"',
      "é",
      "1e3",
      "~",
      "{{ topic }}",
      "a#b",
      "null",
    ];
    const headers = texts.map((text, index) => `h${index}: ${JSON.stringify(text)}`).filter((_, index) => index !== 8);
    const yaml = `${DATABASE}destinations: { "a b": { baseUrl: http://h, headers: { ${headers.join(", ")} }, transform: { expression: "a &\\n  b" } } }\n`;
    const { stdout, stderr } = await svc(["config", "print", "--config", "a.yml"], { "a.yml": yaml });
    expect(stderr).toBe("");
    const expected = Object.fromEntries(
      texts.map((text, index) => [`h${index}`, text]).filter((_, index) => index !== 8),
    );
    expect(parse(stdout)).toMatchObject({
      destinations: { "a b": { type: "http", headers: expected, transform: { expression: "a &\n  b" } } },
    });
  });

  test("masks every secret that signs", async () => {
    const signing = "{ scheme: standard-webhooks, secrets: [whsec_MfKQ9r8G, whsec_C2FVsBQI] }";
    const yaml = `${DATABASE}destinations: { a: { baseUrl: http://h, signing: ${signing} } }\n`;
    const { stdout, exitCode } = await svc(["config", "print", "--config", "a.yml"], { "a.yml": yaml });
    expect([exitCode, stdout]).toEqual([0, expect.stringContaining("standard-webhooks")]);
    expect(stdout).not.toMatch(/MfKQ9r8G|C2FVsBQI/);
  });

  test("shows the problems instead when there are any", async () => {
    const { stdout, stderr, exitCode } = await svc(["config", "print", "--config", "bad.yml"], FILES);
    expect([stdout, exitCode]).toEqual(["", 2]);
    expect(stderr).toContain("error: outbox.batchSize");
  });
});

describe("svc config schema", () => {
  test("prints the JSON Schema", async () => {
    const { stdout } = await svc(["config", "schema"], {});
    expect(JSON.parse(stdout)).toEqual(jsonSchema());
  });
});

test.each([[["config"]], [["config", "check"]], [["config", "print"]], [["config", "schema"]]])(
  "svc %j --help has examples",
  async (args) => {
    expect((await svc([...args, "--help"], {})).stdout).toContain("Examples:\n  svc config");
  },
);
