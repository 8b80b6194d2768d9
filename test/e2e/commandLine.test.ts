import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import type { RunningProcess } from "../support/processes.ts";
import { type ConfigTree, ordersTo, useServices } from "../support/service.ts";

const services = useServices();
const { svc } = services.processes;
failOnLeaks();

const PASSWORD = "hunter2-and-more";
const UNUSED = { url: "jdbc:postgresql://127.0.0.1:1/none", username: "svc", password: PASSWORD };
const RECEIVER = { url: "http://127.0.0.1:9" };

/** A configuration file of a service that is never really run. */
const configFile = (overrides: ConfigTree = {}) =>
  services.configFile(ordersTo(RECEIVER, { database: UNUSED, ...overrides }));

async function ended(child: RunningProcess) {
  const { code } = await child.exited;
  return { code, stdout: child.stdout.join("\n"), stderr: child.stderr.join("\n") };
}

describe("the command line", () => {
  test("--version prints the version of the package", async () => {
    const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
      version: string;
    };
    expect(await ended(svc(["--version"]))).toEqual({ code: 0, stdout: version, stderr: "" });
  });

  test.each(["config schema", "--help"])("%s into a reader that has gone ends quietly", async (command) => {
    // Closed before anything is written.
    const script = 'exec 3>&1; { "$@"; echo "code $?" >&3; } | true';
    const program = [
      process.execPath,
      fileURLToPath(new URL("../../dist/roles/svc.js", import.meta.url)),
      ...command.split(" "),
    ];
    const [stdout, stderr] = await new Promise<[string, string]>((resolve, reject) =>
      execFile("sh", ["-c", script, "sh", ...program], (error, out, err) =>
        error ? reject(error) : resolve([out, err]),
      ),
    );
    expect([stdout.trim(), stderr]).toEqual(["code 141", ""]);
  });

  test("--help names the roles, the commands and the exit codes", async () => {
    const { code, stdout } = await ended(svc(["--help"]));
    expect(code).toBe(0);
    for (const word of ["ingest", "relay", "poller", "migrate", "dev", "config", "Exit codes"]) {
      expect(stdout).toContain(word);
    }
  });

  test("ends with code 2 and a hint on an unknown option or role", async () => {
    const option = await ended(svc(["--confg", "x"]));
    expect(option.code).toBe(2);
    expect(option.stderr).toMatch(/unknown option '--confg'[\s\S]*--help/);
    const role = await ended(svc(["polller", "--config", configFile()]));
    expect(role.code).toBe(2);
    expect(role.stderr).toMatch(/polller/);
    expect(role.stderr).toMatch(/poller/);
    expect((await ended(svc(["poller", "--once", "--config", configFile()]))).code).toBe(2);
  });

  test("ends with code 2 on a bad configuration, with every problem and without the secrets", async () => {
    const file = configFile({ outbox: { batchSize: 0 }, routes: [{ topicPattern: "***", destination: "nobody" }] });
    const { code, stderr, stdout } = await ended(svc(["--config", file]));
    expect(code).toBe(2);
    expect(stderr).toMatch(/outbox\.batchSize/);
    expect(stderr).toMatch(/routes\[0\]\.topicPattern/);
    expect(stderr).toMatch(/routes\[0\]\.destination/);
    expect(stderr + stdout).not.toContain(PASSWORD);
  });

  // The chart's Jobs end at once on code 2, and try again on any other.
  test("ends with code 2 for what only another configuration mends, and with 1 while no database answers", async () => {
    const run = (file: string, env = {}) => ended(svc(["migrate"], { env: { SVC_CONFIG_FILE: file, ...env } }));
    const unreachable = { database: { ...UNUSED, startupTimeoutMs: 100 } };
    const right = configFile(unreachable);
    const noYaml = path.join(services.folder(), "svc.yml");
    writeFileSync(noYaml, "database: [");
    const wrong = await Promise.all([
      run("/does/not/exist.yml"),
      run(noYaml),
      run(configFile({ outbox: { batchSize: 0 }, database: { ...UNUSED, password: "file:/no/secret" } })),
      run(right, { LOG_LEVEL: "loud" }),
    ]);
    const words = ["/does/not/exist\\.yml", noYaml, "/no/secret[^]*outbox\\.batchSize", "loud"];
    expect(wrong).toMatchObject(words.map((word) => ({ code: 2, stderr: expect.stringMatching(word) })));

    const { code, stderr } = await run(right);
    expect([code, stderr]).toEqual([1, expect.stringContaining("no database answered within 100 ms")]);
  });

  test("operators' commands say at once, in one sentence, that no database answers", async () => {
    // A service waits for five minutes here.
    const file = configFile({ database: { ...UNUSED, startupTimeoutMs: 300_000 } });
    const commands = ["status", "parked list", "tail"].map((command) => svc([...command.split(" "), "--config", file]));
    for (const command of commands) {
      const { code, stdout, stderr } = await ended(command);
      expect([code, stdout]).toEqual([1, ""]);
      expect(stderr).toMatch(/^svc: no database answered within 2000 ms: .*ECONNREFUSED.*$/);
    }
  });

  test("ends with code 1 and names the port and its key when the port is in use", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const taken = createServer().listen(0);
    await once(taken, "listening");
    services.defer(() => taken.close());
    const { port } = taken.address() as AddressInfo;
    const config = ordersTo(receiver, { server: { httpPort: port } });
    const service = await services.launch({ database, config });
    const { code, stderr } = await ended(service.process);
    expect(code).toBe(1);
    expect(stderr).toMatch(new RegExp(`cannot listen on port ${port} \\(server.httpPort\\): another process listens`));
  });
});

describe("svc migrate", () => {
  test("makes the tables, says so, and does nothing the second time", async () => {
    const database = await services.database();
    const address = { url: database.jdbcUrl, username: database.user, password: database.password };
    const file = configFile({ database: { ...address, migrate: false } });
    const tables = () =>
      database.query(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename IN ('inbox', 'outbox')",
      );
    const before = await ended(svc(["--config", file]));
    expect([before.code, await tables()]).toEqual([2, []]);

    const first = await ended(svc(["migrate", "--config", file]));
    expect([first.code, first.stdout]).toEqual([0, expect.stringMatching(/^migrations applied: /m)]);
    expect(await tables()).toHaveLength(2);
    const second = await ended(svc(["migrate", "--config", file]));
    expect([second.code, second.stdout]).toEqual([0, expect.stringMatching(/^the schema is up to date$/m)]);
  });

  test("refuses renamed tables, which the bundled migrations do not know", async () => {
    const file = configFile({ database: { ...UNUSED, outboxTableName: "my_outbox", migrate: false } });
    const { code, stderr } = await ended(svc(["migrate", "--config", file]));
    expect(code).toBe(2);
    expect(stderr).toMatch(/default names/);
  });
});
