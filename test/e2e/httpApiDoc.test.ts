import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "@jest/globals";
import { load as parseYaml } from "js-yaml";
import { describedApi } from "../support/describedApi.ts";
import { blocksOf } from "../support/markdown.ts";
import { read } from "../support/repository.ts";
import { type ConfigTree, merged, ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
const PAGE = read("docs/http-api.md");

/** The code blocks of a language, in the order of the page. */
const blocks = (language: string): string[] => blocksOf(PAGE, language);

const [CONFIG = ""] = blocks("yaml");
let service: Service;

beforeAll(async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const { server: _server, database: _database, ...config } = parseYaml(CONFIG) as ConfigTree;
  const pull = { inbox: { pull: { enabled: true } }, sources: { orders: { consumption: "pull" } } };
  service = await services.start({
    database,
    config: merged(config, pull),
    env: { RECEIVER_URL: receiver.url },
  });
});

/** The words of a command line, without its quotes and continued lines. */
function words(command: string): string[] {
  const joined = command.replaceAll("\\\n", " ");
  return [...joined.matchAll(/'([^']*)'|"([^"]*)"|([^\s'"]+)/g)].map(
    ([, single, double, bare]) => single ?? double ?? bare ?? "",
  );
}

interface CurlCall {
  readonly path: string;
  readonly body: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
}

/** The calls of `curl` on the page, except calls that need variables of the shell. */
function curlCalls(): CurlCall[] {
  const commands = blocks("sh")
    .flatMap((block) => block.split(/\n(?! )/))
    .filter((line) => /^curl /.test(line));
  return commands
    .filter((command) => !command.includes("$signature"))
    .map((command) => {
      const [, ...args] = words(command.split(" | ")[0] ?? "");
      const after = (option: string) => args.flatMap((arg, n) => (arg === option ? [args[n + 1] ?? ""] : []));
      const url = args.find((arg) => arg.startsWith("http://localhost:8080"));
      if (url === undefined) throw new Error(`no URL in ${command}`);
      return {
        path: new URL(url).pathname,
        body: after("-X")[0] === "POST" ? "" : after("-d")[0],
        headers: Object.fromEntries(after("-H").map((header) => header.split(": ") as [string, string])),
      };
    });
}

async function get(path: string, headers: Readonly<Record<string, string>>) {
  const answer = await fetch(`http://127.0.0.1:${service.port}${path}`, {
    headers: { ...headers, connection: "close" },
  });
  return { status: answer.status, text: await answer.text() };
}

describe("docs/http-api.md", () => {
  test("has a configuration that svc config check --strict accepts", async () => {
    const file = path.join(services.folder(), "svc.yml");
    writeFileSync(file, CONFIG);
    const check = services.processes.svc(["config", "check", "--strict", "--config", file]);
    expect([(await check.exited).code, check.stderr]).toEqual([0, []]);
  });

  test("has examples for curl that work with this configuration", async () => {
    const calls = curlCalls();
    expect(calls.length).toBeGreaterThanOrEqual(8);
    for (const { path, body, headers } of calls) {
      const answer = body === undefined ? await get(path, headers) : await service.post(body, { path, headers });
      const expected = path.startsWith("/inbox/") ? 202 : 200;
      expect([path, answer.status, answer.status === expected ? "" : answer.text]).toEqual([path, expected, ""]);
    }
  });

  test("has an example in shell that signs a request", async () => {
    const [script = ""] = blocks("sh").filter((block) => block.startsWith("body="));
    const command = script.replace("localhost:8080", `127.0.0.1:${service.port}`);
    const { stdout } = await promisify(execFile)("sh", ["-euc", command]);
    expect(stdout).toMatch(/^HTTP\/1\.1 202 [\s\S]*\{"messageId":"[0-9a-f-]{36}"\}$/);
  });

  test("has examples of signed admin and pull requests", async () => {
    const [script = ""] = blocks("sh").filter((block) => block.startsWith("signed()"));
    const auth = {
      secret: "the-secret",
      timestampHeader: "X-Timestamp",
      signaturePayloadFormat: "timestamp-dot-request",
    };
    const signed = await services.start({
      database: await services.database(),
      config: ordersTo(
        { url: "http://127.0.0.1:9" },
        {
          admin: { enabled: true, auth },
          inbox: { pull: { enabled: true, auth } },
          sources: { orders: { consumption: "pull" } },
        },
      ),
    });
    const { stdout } = await promisify(execFile)(
      "sh",
      ["-euc", script.replace("localhost:8080", `127.0.0.1:${signed.port}`).replaceAll("'\n", "'; echo\n")],
      { env: { ...process.env, ADMIN_SECRET: "the-secret" } },
    );
    expect(stdout).toMatch(/^\{"messages":\[\].*\}\n\{"paused":true\}\n\{"claimToken":null,.*\}\n$/);
  });

  test("names every route that the service can have", async () => {
    const { operations } = describedApi((await service.get("/openapi.json")).text);
    expect(operations.length).toBeGreaterThan(12);
    const named = (operation: string) => PAGE.includes(`\`${operation}\``) || /^POST \/pull\/\w+\/\w+$/.test(operation);
    expect(operations.filter((operation) => !named(operation))).toEqual([]);
    for (const [, last] of operations.flatMap((operation) => [...operation.matchAll(/^POST \/pull\/\w+(\/\w+)$/g)])) {
      expect(PAGE).toContain(`${last}\``);
    }
  });
});
