import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { ROOT, read } from "../support/repository.ts";

/** CONTRIBUTING.md, "Adding a destination or a source": a copy of the project gets both kinds by these steps and nothing else. */

const run = promisify(execFile);

const DESTINATION = {
  "index.ts": `import type { Infer } from "../../../model/schema.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { DestinationTools } from "../../../ports/kinds.ts";
import type { stubDestinationSchema } from "./kind.ts";

/** A stub that writes deliveries to the log. */
export function createStubDestination(config: Infer<typeof stubDestinationSchema>, tools: DestinationTools): Destination {
  return {
    async publish({ id, address }) {
      tools.log.info({ id, address, host: config.stubHost }, "delivered to the stub");
    },
    close: async () => {},
  };
}
`,
  "kind.ts": `import { destinationKind } from "../../../ports/kinds.ts";

/** Keys of a stub destination. */
export const stubDestinationSchema = {
  type: "object",
  description: "Delivers to a stub.",
  required: ["stubHost", "mailbox"],
  properties: {
    stubHost: { type: "string", syntax: "notBlank", description: "Host of the stub." },
    mailbox: { type: "string", syntax: "address", description: "Mailbox: a name or an address template." },
    mailboxFrom: { type: "string", enum: ["topic", "key"], description: "Row column that holds the mailbox." },
  },
} as const;

/** A stub destination. */
export const stubDestination = destinationKind({
  schema: stubDestinationSchema,
  check: ({ stubHost }, when) =>
    when(["stubHost"], (report) => {
      if (stubHost.includes("/")) report.error("stubHost", "must be a host, not a URL");
    }),
  address: { name: "mailbox", template: "mailbox", from: "mailboxFrom" },
  routingKey: null,
  cloudEvents: { prefix: "ce-", isEncoded: true },
  explain: ({ stubHost }) => ({ name: "stub", text: stubHost }),
  async create(config, tools) {
    const { createStubDestination } = await import("./index.ts");
    return createStubDestination(config, tools);
  },
});
`,
};

const SOURCE = {
  "index.ts": `import type { Source } from "../../../ports/source.ts";
import type { SourceTools } from "../../../ports/kinds.ts";

/** A stub that has no messages. */
export function createStubSource({ name }: SourceTools): Source {
  return { name: \`stub.\${name}\`, start: async () => {}, stop: async () => {}, check: async () => {} };
}
`,
  "kind.ts": `import { sourceKind } from "../../../ports/kinds.ts";

/** Keys of a stub source. */
const stubSourceSchema = {
  type: "object",
  description: "Reads from a stub.",
  required: ["stubQueue"],
  properties: {
    stubQueue: { type: "string", syntax: "notBlank", description: "Queue to read." },
    eventTypeFromHeader: { type: "boolean", default: false, description: "Every publisher sets the event type header." },
  },
} as const;

/** A stub source. */
export const stubSource = sourceKind({
  schema: stubSourceSchema,
  check: () => {},
  attributes: { idempotencyKey: [{ header: "Stub-Id" }], aggregateId: [] },
  async create(_config, tools) {
    const { createStubSource } = await import("./index.ts");
    return createStubSource(tools);
  },
});
`,
};

const CONFIG = `
database: { type: postgresql, url: "jdbc:postgresql://localhost/svc", username: svc, password: svc }
sources: { in: { stubQueue: q } }
destinations: { out: { stubHost: stub, mailbox: "box-{{ topic }}" } }
routes: [{ topicPattern: "**", destination: out }]
`;

let copy: string;

/** Runs a program in the copy, and gives what it wrote. */
const inCopy = async (...args: readonly string[]): Promise<string> => {
  const { stdout, stderr } = await run(process.execPath, args, { cwd: copy, env: { PATH: process.env.PATH } });
  return stdout + stderr;
};
const tool = (name: string) => path.join(ROOT, "node_modules", name);

beforeAll(async () => {
  copy = await mkdtemp(path.join(tmpdir(), "svc-new-kind-"));
  for (const part of ["src", "roles", "migrations", "docs", "helm", "package.json", "biome.json", "tsconfig.json"])
    await cp(path.join(ROOT, part), path.join(copy, part), { recursive: true });
  const build = JSON.parse(read("tsconfig.build.json"));
  await writeFile(path.join(copy, "tsconfig.build.json"), JSON.stringify({ ...build, include: ["src", "roles"] }));
  await symlink(path.join(ROOT, "node_modules"), path.join(copy, "node_modules"));

  for (const [folder, files] of [
    ["destinations", DESTINATION],
    ["sources", SOURCE],
  ] as const) {
    await mkdir(path.join(copy, "src/adapters", folder, "stub"));
    for (const [file, text] of Object.entries(files))
      await writeFile(path.join(copy, "src/adapters", folder, "stub", file), text);
  }
  const kinds = path.join(copy, "src/adapters/kinds.ts");
  const lines = (await readFile(kinds, "utf8"))
    .replace("  nats: natsDestination,", "  nats: natsDestination,\n  stub: stubDestination,")
    .replace("  nats: natsSource,", "  nats: natsSource,\n  stub: stubSource,");
  const imports = ["destinations", "sources"].map(
    (folder) => `import { stub${folder === "sources" ? "Source" : "Destination"} } from "./${folder}/stub/kind.ts";\n`,
  );
  await writeFile(kinds, imports.join("") + lines);
  await inCopy(tool("typescript/bin/tsc"), "-p", "tsconfig.build.json");
  await inCopy("dist/src/dev/generate.js");
}, 120_000);

afterAll(() => rm(copy, { recursive: true, force: true }));

test("CONTRIBUTING.md names every file of the steps", () => {
  const steps = /## Adding a destination or a source\n(.*?)\n## /s.exec(read("CONTRIBUTING.md"))?.[1] ?? "";
  for (const named of [
    "src/adapters/destinations/<kind>/",
    "src/adapters/sources/<kind>/",
    ...Object.keys(DESTINATION),
    "src/adapters/kinds.ts",
    "npm run generate",
  ])
    expect(steps).toContain(named);
});

test("the reference page and the schema of the configuration have the new kinds", async () => {
  const page = await readFile(path.join(copy, "docs/configuration.md"), "utf8");
  for (const text of [page, await inCopy("dist/roles/svc.js", "config", "schema")]) {
    expect(text).toContain("stubHost");
    expect(text).toContain("stubQueue");
  }
  expect(await inCopy("dist/src/dev/generate.js", "--check")).toBe("");
});

test("the configuration, its checks and explain know them", async () => {
  await writeFile(path.join(copy, "svc.yml"), CONFIG);
  expect(await inCopy("dist/roles/svc.js", "config", "check", "--config", "svc.yml")).toContain("svc.yml");
  expect(await inCopy("dist/roles/svc.js", "explain", "topic", "orders", "--config", "svc.yml")).toMatch(
    /^destination +out \(stub\)\n[\s\S]*^stub +stub\nmailbox +box-orders {2}/m,
  );
  await writeFile(path.join(copy, "wrong.yml"), CONFIG.replace("stubHost: stub", "stubHost: http://stub"));
  await expect(inCopy("dist/roles/svc.js", "config", "check", "--config", "wrong.yml")).rejects.toThrow(
    "destinations.out.stubHost: must be a host, not a URL",
  );
});
