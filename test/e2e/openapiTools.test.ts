import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "@jest/globals";
import { describeWithTools, toolPath } from "../support/describeWithTools.ts";
import { ordersTo, useServices } from "../support/service.ts";
import { loadWith } from "../unit/config/support.ts";
import { documentOf, EVERYTHING } from "../unit/http/routesOf.ts";

/** The document and the service as programs see them that others wrote: a linter of OpenAPI documents, and a tester that only knows the document. */

const services = useServices("block");
const run = promisify(execFile);
const auth = { type: "bearer", token: "the-token" };
const source = { idempotencyKeyPath: "$.id", topic: "orders.x" };
const CONFIG = ordersTo(
  { url: "http://127.0.0.1:9" },
  {
    inbox: { maxBodyBytes: 100_000, pull: { enabled: true, auth } },
    admin: { enabled: true, auth },
    sources: {
      guarded: { ...source, path: "/guarded", auth },
      pulled: { ...source, path: "/pulled", idempotencyKeyPath: "$.order['the id'][0]", consumption: "pull" },
    },
  },
);

describeWithTools(["openapi-linter"], "the linter of OpenAPI documents", () => {
  test("finds nothing", async () => {
    const document = JSON.stringify(await documentOf(loadWith(EVERYTHING)));
    const { createConfig, lintFromString } = await import(pathToFileURL(toolPath("openapi-linter")).href);
    const config = await createConfig({
      extends: ["recommended-strict"],
      rules: {
        // GET routes without parameters refuse nothing.
        "operation-4xx-response": "off",
      },
    });
    const problems = await lintFromString({ source: document, absoluteRef: "openapi.json", config });
    expect(problems.map(({ ruleId, message, location }: Problem) => [ruleId, message, location[0]?.pointer])).toEqual(
      [],
    );
  });
});

interface Problem {
  readonly ruleId: string;
  readonly message: string;
  readonly location: readonly { readonly pointer?: string }[];
}

describeWithTools(["schemathesis"], "schemathesis with all its checks", () => {
  test("finds no answer that the document does not have", async () => {
    const service = await services.start({ database: await services.database(), config: CONFIG });
    const folder = services.folder();
    const file = path.join(folder, "openapi.json");
    const settings = path.join(folder, "schemathesis.toml");
    writeFileSync(file, (await service.get("/openapi.json")).text);
    writeFileSync(settings, SETTINGS);
    const args = [
      `--config-file=${settings}`,
      "run",
      file,
      `--url=http://127.0.0.1:${service.port}`,
      "--checks=all",
      "--seed=456",
      "--max-examples=8",
      "--max-time=15",
      "--no-color",
      // It answers after the wait that was asked for.
      "--exclude-operation-id=pull_claim_pulled",
      // Its answer does not end.
      "--exclude-operation-id=admin_events",
    ];
    const { stdout } = await run(toolPath("schemathesis"), args, { cwd: folder, timeout: 150_000 }).catch(
      (error: { stdout?: string; message: string }) => {
        throw new Error(`${error.stdout ?? ""}\n${error.message}`);
      },
    );
    expect(stdout).toMatch(/Test cases:\s+(\d+) generated, \1 passed/);
    expect((await service.readiness()).verdict).toBe("healthy");
  }, 180_000);
});

const SETTINGS = `
[auth.openapi.pull]
bearer = "the-token"
[auth.openapi.admin]
bearer = "the-token"
[auth.openapi."source.guarded"]
bearer = "the-token"
# No schema says what compiles, which key a source takes, and which fields go together.
[[operations]]
include-operation-id-regex = "admin_transform_test|receive_.*|admin_replays?|admin_parked_(retry|discard)"
checks.positive_data_acceptance.expected-statuses = [200, 202, 400]
`;
