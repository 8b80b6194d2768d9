import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { onceTable } from "../../clients/typescript/src/index.ts";
import { CLIENTS_FOLDER, goProgram, runProgram } from "../support/clientPrograms.ts";
import { describeWithTools, toolPath } from "../support/describeWithTools.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";
import { CASES } from "./contract.ts";

/** The clients for Python, Go and Java pass clients/contract/cases.json: clients/contract/README.md describes their runners. */

const TOKEN = "pull-sesame-1";
const TIMEOUT_MS = 180_000;

interface Runner {
  readonly tool: "client-python" | "client-go" | "client-java";
  /** The program, its arguments, and its variables. @param packages where test/services/install.sh has put its packages */
  readonly command: (packages: string) => readonly [readonly string[], Readonly<Record<string, string>>?];
  /** The kinds of cases that it repeats, and over which drivers. */
  readonly repeated: Readonly<Record<string, readonly string[]>>;
}

const PYTHON_DRIVERS = ["psycopg-async", "asyncpg", "sqlalchemy", "sqlalchemy-async", "django"];

const RUNNERS: Readonly<Record<string, Runner>> = {
  Python: {
    tool: "client-python",
    command: (python) => [[python, "python/tests/contract.py"]],
    repeated: { enqueue: PYTHON_DRIVERS, once: PYTHON_DRIVERS },
  },
  Go: {
    tool: "client-go",
    command: (modules) => goProgram(modules, "."),
    repeated: { enqueue: ["pgx"], once: ["pgx"] },
  },
  Java: {
    tool: "client-java",
    command: (repository) => [
      ["mvn", "-o", "-q", "-f", "java/pom.xml", `-Dmaven.repo.local=${repository}`, "test-compile", "exec:java"],
    ],
    repeated: { enqueue: ["spring"] },
  },
};

failOnLeaks("block");

for (const [language, { tool, command, repeated }] of Object.entries(RUNNERS)) {
  describeWithTools([tool], `the client for ${language}`, () => {
    const services = useServices("block");
    const stopping = new AbortController();
    let lines: readonly string[] = [];
    let errors = "";

    beforeAll(async () => {
      const database = await services.database();
      const pulled = { path: "/pulled", idempotencyKeyPath: "$.id", consumption: "pull" };
      const pull = { enabled: true, maxAttempts: 3, auth: { token: TOKEN } };
      const config = ordersTo({ url: "http://127.0.0.1:9" }, { sources: { pulled }, inbox: { pull } });
      const service = await services.start({ database, config, roles: ["ingest"] });
      await database.query("CREATE TABLE written (id text)");
      await database.query(onceTable);
      const [program, variables] = command(toolPath(tool));
      const env = {
        ...variables,
        CONTRACT_CASES: `${CLIENTS_FOLDER}contract/cases.json`,
        DATABASE_URL: database.url,
        PULL_URL: `http://127.0.0.1:${service.port}/pull`,
        PULL_TOKEN: TOKEN,
      };
      const { code, stdout, stderr } = await runProgram(program, env, stopping.signal);
      lines = stdout.split("\n");
      errors = stderr;
      if (code !== 0 && !lines.some((line) => line.startsWith("not ok"))) {
        throw new Error(`the runner ended with code ${code} and printed:\n${stdout}${stderr}`);
      }
    }, TIMEOUT_MS);
    afterAll(() => stopping.abort());

    test.each(namesOf(repeated))("%s", (name) => {
      const line = lines.find((each) => each === `ok ${name}` || each.startsWith(`not ok ${name}:`));
      expect(line ?? `no line of it; the errors:\n${errors}`).toBe(`ok ${name}`);
    });

    test("nothing else fails", () => {
      expect(lines.filter((line) => line.startsWith("not ok"))).toEqual([]);
    });
  });
}

/** What the runner prints of each case: kind, with transport or driver, and id. */
function namesOf(repeated: Runner["repeated"]): readonly string[] {
  return CASES.flatMap((each) =>
    each.kind === "worker"
      ? (each.transports ?? ["sql", "http"]).map((transport) => `worker-${transport} ${each.id}`)
      : ["", ...(repeated[each.kind] ?? [])].map((driver) => `${each.kind}${driver && `-${driver}`} ${each.id}`),
  );
}
