import { execFile } from "node:child_process";
import { chmodSync, existsSync, lstatSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { ROOT, read } from "../support/repository.ts";
import { build, keptBy, parseDockerfile, texts } from "./dockerfile.ts";

/**
 * The image without a container engine: the COPY and RUN lines of deploy/Dockerfile are carried out in their order in an empty folder, and what the last
 * stage copies must run. Not covered are the base image with its Node.js, the two commands that change its operating system (the package tini, the folder of the
 * capture state), and the installation of the development packages, in whose place those of the tests are used.
 */

const manifest = JSON.parse(read("package.json")) as {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly license: string;
  readonly engines: { readonly node: string };
};
const stages = parseDockerfile(read("deploy/Dockerfile"));
const final = stages.at(-1) ?? { name: "", image: "", instructions: [] };
/** A user that nobody else is, as in the image; only root can become it. */
const AS_IN_THE_IMAGE = process.getuid?.() === 0 ? { uid: 10001, gid: 10001 } : {};

describe("deploy/Dockerfile", () => {
  test("names one base image by major and minor version, which the package runs on", () => {
    const images = new Set(stages.map(({ image }) => image));
    expect(images.size).toBe(1);
    const [, major, minor] = /^node:(\d+)\.(\d+)-[a-z]+-slim$/.exec([...images][0] ?? "") ?? [];
    const [, leastMajor, leastMinor] = /^>=(\d+)\.(\d+)$/.exec(manifest.engines.node) ?? [];
    expect(Number(major) * 1000 + Number(minor)).toBeGreaterThanOrEqual(Number(leastMajor) * 1000 + Number(leastMinor));
  });

  test("runs as an unprivileged user, with an init as process 1 and no shell", () => {
    expect(texts(final, "USER")).toEqual(["10001:10001"]);
    expect(texts(final, "ENTRYPOINT").map((text) => JSON.parse(text) as unknown)).toEqual([
      ["/usr/bin/tini", "--", "node", "--max-semi-space-size=32", "/app/dist/roles/svc.js"],
    ]);
    expect(texts(final, "RUN")[0]).toContain("apt-get install --yes --no-install-recommends tini");
  });

  test("is labelled as the package is", () => {
    const [labels = ""] = texts(final, "LABEL");
    const found = Object.fromEntries(
      [...labels.matchAll(/org\.opencontainers\.image\.(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]),
    );
    expect(found).toEqual({
      title: manifest.name,
      description: manifest.description,
      licenses: manifest.license,
      // biome-ignore-start lint/suspicious/noTemplateCurlyInString: they stand so in the file.
      version: "${VERSION}",
      revision: "${REVISION}",
      created: "${CREATED}",
      // biome-ignore-end lint/suspicious/noTemplateCurlyInString: see above.
    });
    expect(texts(final, "ARG")).toEqual(["VERSION", "REVISION", "CREATED"]);
  });

  test("is given no more than it copies", () => {
    const isKept = keptBy(read(".dockerignore"));
    const copied = stages.flatMap(({ instructions }) =>
      instructions
        .filter(({ name, flags }) => name === "COPY" && flags.from === undefined)
        .flatMap(({ text }) => text.split(/\s+/).slice(0, -1)),
    );
    expect(readdirSync(ROOT).filter(isKept).toSorted()).toEqual([...new Set(copied)].toSorted());
  });
});

/** The installation that the tests themselves run with, from the same lock file: once more it would cost twenty seconds. */
const WITH_DEVELOPMENT = "npm ci --ignore-scripts --no-audit --no-fund";

async function runIn(workdir: string, command: string): Promise<void> {
  const modules = path.join(workdir, "node_modules");
  const isLinked = lstatSync(modules, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
  if (isLinked && command.includes("node_modules")) throw new Error(`not among the packages of the tests: ${command}`);
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, npm_config_prefer_offline: "true" };
  await promisify(execFile)("/bin/sh", ["-c", command], { cwd: workdir, env, maxBuffer: 2 ** 26 });
}

describe("what its commands build", () => {
  let folder = "";
  let app = "";

  beforeAll(async () => {
    folder = mkdtempSync(path.join(tmpdir(), "svc-image-"));
    // Another user starts what is in here.
    chmodSync(folder, 0o755);
    const notRun: string[] = [];
    const root = await build(stages, {
      context: ROOT,
      ignore: read(".dockerignore"),
      folder,
      async run(command, workdir) {
        if (/^(apt-get|install) /.test(command)) notRun.push(command);
        else if (command === WITH_DEVELOPMENT)
          symlinkSync(path.join(ROOT, "node_modules"), path.join(workdir, "node_modules"));
        else await runIn(workdir, command);
      },
    });
    expect(notRun).toEqual(texts(final, "RUN"));
    app = path.join(root, "app");
  }, 180_000);

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Runs in the built folder with nothing of this environment, and the program at the path of the entry point. */
  const svc = async (...args: readonly string[]) => {
    const program = path.join(app, "dist/roles/svc.js");
    return (await promisify(execFile)(process.execPath, [program, ...args], { cwd: app, env: {}, ...AS_IN_THE_IMAGE }))
      .stdout;
  };

  test("is the program, its migrations, and what it depends on", () => {
    expect(readdirSync(app).toSorted()).toEqual(["LICENSE", "dist", "migrations", "node_modules", "package.json"]);
    expect(readdirSync(path.join(app, "dist")).toSorted()).toEqual(["config.schema.json", "console", "roles", "src"]);
    expect(
      readdirSync(path.join(app, "dist"), { recursive: true }).filter(
        (file) => !/(\.js|\/[^.]+|^[^.]+|^config\.schema\.json|^console\/[^/]+\.(html|css))$/.test(String(file)),
      ),
    ).toEqual([]);
  });

  test("holds no development package and no server, but for the program that reads lz4 and the tracing", () => {
    const { packages } = JSON.parse(read("package-lock.json")) as {
      readonly packages: Readonly<Record<string, { readonly dev?: boolean; readonly optional?: boolean }>>;
    };
    const unwanted = Object.entries(packages).filter(([, { dev = false, optional = false }]) => dev || optional);
    expect(unwanted.length).toBeGreaterThan(100);
    const there = unwanted.map(([folder]) => folder).filter((folder) => existsSync(path.join(app, folder)));
    // The second is what `pg` would use elsewhere: some kilobytes.
    const tolerated = /^node_modules\/(@antoniomuso\/lz4-napi-[a-z0-9-]+|pg-cloudflare|@opentelemetry\/[a-z-]+)$/;
    expect(there.filter((folder) => !tolerated.test(folder))).toEqual([]);
  });

  test("starts as the image's user", async () => {
    expect((await svc("--version")).trim()).toBe(manifest.version);
    expect(await svc("config", "check")).toContain("configuration is valid");
  });

  test("has every package that a module of it imports", async () => {
    const modules = readdirSync(path.join(app, "dist/src"), { recursive: true })
      .map((file) => `./dist/src/${String(file)}`)
      .filter((file) => file.endsWith(".js"));
    expect(modules.length).toBeGreaterThan(100);
    const script = `for (const file of ${JSON.stringify(modules)}) await import(new URL(file, "file://${app}/"));`;
    const args = ["--input-type=module", "-e", script];
    await promisify(execFile)(process.execPath, args, { cwd: app, env: {}, ...AS_IN_THE_IMAGE });
  });
});
