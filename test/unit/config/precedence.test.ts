import { describe, expect, test } from "@jest/globals";
import { loadConfig } from "../../../src/config/load.ts";
import { DATABASE, disk, load } from "./support.ts";

const ENV_DATABASE = {
  SVC_DATABASE_URL: "jdbc:postgresql://env/svc",
  SVC_DATABASE_USERNAME: "svc",
  SVC_DATABASE_PASSWORD: "p",
};
const file = (port: number) => `${DATABASE}server:\n  httpPort: ${port}\n`;

describe("which file counts", () => {
  const files = disk({ "/cli.yml": file(1), "/variable.yml": file(2), "/etc/svc/svc.yml": file(3) });
  const portOf = (env: Record<string, string>, named?: string, readFile = files) =>
    loadConfig({ env, readFile, file: named }).config.server.httpPort;

  test("the file of the command line wins over SVC_CONFIG_FILE", () => {
    expect(portOf({ SVC_CONFIG_FILE: "/variable.yml" }, "/cli.yml")).toBe(1);
  });

  test("SVC_CONFIG_FILE wins over /etc/svc/svc.yml", () => {
    expect(portOf({ SVC_CONFIG_FILE: "/variable.yml" })).toBe(2);
  });

  test("/etc/svc/svc.yml is read when nothing names a file, or an empty variable does", () => {
    expect(portOf({})).toBe(3);
    expect(portOf({ SVC_CONFIG_FILE: "" })).toBe(3);
  });

  test("the packaged file is read when there is no file and no SVC_ variable", () => {
    const loaded = loadConfig({ env: { HOME: "/root" }, readFile: disk({}) });
    expect(loaded.source).toBe("packaged default file");
    expect(loaded.config.database.url).toBe("jdbc:postgresql://localhost:5432/svc");
    expect(loaded.origins.get("database.url")).toEqual({ kind: "packaged" });
  });

  test("the packaged file is not read when any SVC_ variable is set", () => {
    expect(() => loadConfig({ env: { SVC_SERVER_HTTPPORT: "9" }, readFile: disk({}) })).toThrow(
      /database\.url: is required/,
    );
    expect(() => loadConfig({ env: { SVC_NONSENSE: "9" }, readFile: disk({}) })).toThrow(/database\.url: is required/);
  });

  test("variables alone can be a complete configuration", () => {
    const loaded = loadConfig({ env: ENV_DATABASE, readFile: disk({}) });
    expect(loaded.config.database.password.reveal()).toBe("p");
    expect(loaded.origins.get("database.url")).toEqual({ kind: "environment", name: "SVC_DATABASE_URL" });
  });

  test("an external file replaces the packaged one as a whole", () => {
    const readFile = disk({ "/etc/svc/svc.yml": "server: { httpPort: 9 }\n" });
    expect(() => loadConfig({ env: {}, readFile })).toThrow(/database\.url: is required/);
  });

  test.each([
    ["the command line", "/gone.yml", {}, "/gone.yml: cannot read the configuration file: there is no such file"],
    [
      "SVC_CONFIG_FILE",
      undefined,
      { SVC_CONFIG_FILE: "/gone.yml" },
      "/gone.yml: cannot read the configuration file, which SVC_CONFIG_FILE names: there is no such file",
    ],
  ])("a missing file that %s names stops the start", (_who, named, env, message) => {
    expect(() => loadConfig({ env: { ...ENV_DATABASE, ...env }, readFile: disk({}), file: named })).toThrow(message);
  });

  test("a default file that exists and cannot be read stops the start", () => {
    const readFile = () => {
      throw Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
    };
    expect(() => loadConfig({ env: ENV_DATABASE, readFile })).toThrow("/etc/svc/svc.yml: cannot read");
  });
});

describe("which value counts", () => {
  test.each([
    ["variable, file and default", { SVC_OUTBOX_BATCHSIZE: "7" }, "outbox: { batchSize: 6 }\n", 7, "environment"],
    ["variable and default", { SVC_OUTBOX_BATCHSIZE: "7" }, "", 7, "environment"],
    ["file and default", {}, "outbox: { batchSize: 6 }\n", 6, "file"],
    ["an empty variable, file and default", { SVC_OUTBOX_BATCHSIZE: "" }, "outbox: { batchSize: 6 }\n", 6, "file"],
    ["an empty value in the file and default", {}, "outbox: { batchSize: }\n", 100, "file"],
    ["default", {}, "", 100, undefined],
  ])("of %s", (_what, env, yaml, value, origin) => {
    const loaded = load(DATABASE + yaml, { env });
    expect(loaded.config.outbox.batchSize).toBe(value);
    expect(loaded.origins.get("outbox.batchSize")?.kind).toBe(origin);
  });

  test("a value of the file has its line, a derived one has the key it came from", () => {
    const { origins } = load(`${DATABASE}outbox:\n  batchSize: 6\n`);
    expect(origins.get("outbox.batchSize")).toEqual({ kind: "file", file: "svc.yml", line: 6 });
    expect(origins.get("inbox.relay.maxAttempts")).toEqual({ kind: "derived", from: "outbox.maxAttempts" });
  });

  test("values behind a YAML alias and a merge come from the file", () => {
    const entry = "    baseUrl: http://h\n    headers: { a: b }\n";
    const { config, origins } = load(`${DATABASE}destinations:\n  x: &x\n${entry}  y:\n    <<: *x\n    path: /y\n`);
    expect(config.destinations.y).toMatchObject({ baseUrl: "http://h", path: "/y", headers: { a: "b" } });
    expect(origins.get("destinations.y.headers.a")).toMatchObject({ kind: "file", line: 9 });
  });

  test("a variable over an aliased block leaves the block it was copied from alone", () => {
    const yaml = `${DATABASE}destinations:\n  x: &x\n    baseUrl: http://h\n  y: *x\n`;
    const { config } = load(yaml, { env: { SVC_DESTINATIONS_Y_BASEURL: "http://other" } });
    expect(config.destinations).toMatchObject({ x: { baseUrl: "http://h" }, y: { baseUrl: "http://other" } });
  });
});
