import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from "node:fs";
import { isBuiltin } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { load } from "js-yaml";
import { jsonSchema } from "../../src/config/jsonSchema.ts";
import { ROOT, read } from "../support/repository.ts";

/** What `npm pack` makes: complete, nothing more, and it runs if only the dependencies of production are installed. */

const manifest = JSON.parse(read("package.json")) as {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
};
const run = promisify(execFile);

let folder = "";
let packed: readonly string[] = [];

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "svc-package-"));
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: ROOT });
  const [made] = JSON.parse(stdout) as readonly {
    readonly filename: string;
    readonly files: readonly { readonly path: string }[];
  }[];
  packed = (made?.files ?? []).map((file) => file.path);
  await run("tar", ["-xzf", path.join(folder, made?.filename ?? ""), "-C", folder]);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const files = (top: string) =>
  readdirSync(path.join(ROOT, top), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(ROOT, path.join(entry.parentPath, entry.name)));

describe("the package", () => {
  test("holds the program, the migrations, the documentation and the sample files, all of them and nothing else", () => {
    const bundle = /^src\/console\//;
    const program = [...files("src").filter((file) => !bundle.test(file)), ...files("roles")]
      .filter((file) => !file.endsWith(".d.ts"))
      .map((file) => `dist/${file.replace(/\.ts$/, ".js")}`);
    const expected = [
      ...program,
      "dist/config.schema.json",
      ...files("migrations"),
      ...files("docs"),
      // npm takes every README along.
      "deploy/README.md",
      "helm/svc/README.md",
      "deploy/split-into-cells.sql",
      "deploy/svc.example.yml",
      "helm/svc/files/alerts.yml",
      "helm/svc/files/svc-dashboard.json",
      "CHANGELOG.md",
      "LICENSE",
      "README.md",
      "package.json",
    ];
    const console = packed.filter((file) => file.startsWith("dist/console/"));
    expect(console.map((file) => file.replace(/-[A-Z0-9]{8}\./, ".")).toSorted()).toEqual([
      "dist/console/app.css",
      "dist/console/app.js",
      "dist/console/index.html",
    ]);
    expect(packed.toSorted()).toEqual([...expected, ...console].toSorted());
  });

  test("names every package that it imports among its dependencies", () => {
    const declared = new Set(Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies }));
    const foreign = packed
      .filter((file) => file.endsWith(".js"))
      .flatMap((file) => importedPackages(readFileSync(path.join(folder, "package", file), "utf8")));
    expect(new Set(foreign).size).toBeGreaterThan(10);
    expect(foreign.filter((name) => !declared.has(name))).toEqual([]);
  });

  test("has a command of its own name: npx knows another package by the name svc", () => {
    const { name, bin } = JSON.parse(read("package.json")) as { name: string; bin: Record<string, string> };
    expect(bin).toEqual({ svc: "dist/roles/svc.js", [name]: "dist/roles/svc.js" });
    const documents = [...files("docs").filter((file) => file.endsWith(".md")), "README.md", "deploy/README.md"];
    expect(documents.filter((file) => /\bnpx svc(?!-relay)\b/.test(read(file)))).toEqual([]);
  });

  test("has a command that may be executed after each build: npx sets that only when it first links the clone", () => {
    expect(statSync(path.join(ROOT, "dist/roles/svc.js")).mode & 0o111).toBe(0o111);
  });

  test("runs", async () => {
    symlinkSync(path.join(ROOT, "node_modules"), path.join(folder, "package/node_modules"));
    // Somewhere else, with nothing of this environment.
    const svc = async (...args: readonly string[]) =>
      (await run(process.execPath, [path.join(folder, "package/dist/roles/svc.js"), ...args], { cwd: folder, env: {} }))
        .stdout;
    const [version, schema, help] = await Promise.all([
      svc("--version"),
      svc("config", "schema"),
      svc("migrate", "--help"),
    ]);
    expect(version.trim()).toBe(manifest.version);
    expect(JSON.parse(schema)).toEqual(jsonSchema());
    expect(help).toContain("Usage: svc migrate");
  });
});

test("package, lock file, chart and changelog name the same version", () => {
  const lock = JSON.parse(read("package-lock.json")) as {
    readonly version: string;
    readonly packages: Readonly<Record<string, { readonly version?: string }>>;
  };
  const chart = load(read("helm/svc/Chart.yaml")) as { readonly version: string; readonly appVersion: string };
  const [, released] = /^## (\d+\.\d+\.\d+)/m.exec(read("CHANGELOG.md")) ?? [];
  const named = {
    lock: lock.version,
    root: lock.packages[""]?.version,
    chart: chart.version,
    image: chart.appVersion,
    released,
  };
  for (const [where, version] of Object.entries(named)) expect([where, version]).toEqual([where, manifest.version]);
});

/** Names of the packages in the import and export statements of a compiled module. */
function importedPackages(code: string): readonly string[] {
  const statements =
    /^\s*(?:import|export)\b[^;"'`]*?\bfrom\s*"([^"]+)"|^\s*import\s*"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;
  return [...code.matchAll(statements)]
    .map((match) => match[1] ?? match[2] ?? match[3] ?? "")
    .filter((specifier) => !specifier.startsWith(".") && !isBuiltin(specifier))
    .map((specifier) => specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/"));
}
